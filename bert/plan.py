"""What a pretraining run will be, before it is: sizes, tokens, traffic and memory, from the configuration alone."""

import dataclasses

from bert.config import ModelConfig, PretrainConfig

STATE_BYTES = 16  # a weight in float32, its two moments and its accumulated gradient
UPDATE_BYTES = 20  # these, and the gradient summed over the ranks
BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}


def parameters(model: ModelConfig) -> int:
    """How many numbers a model learns in pretraining, both heads included."""
    width, inner, words = model.hidden_size, model.intermediate_size, model.vocab_size
    norm = 2 * width
    attention, mlp = 4 * width * (width + 1), (width + 1) * inner + (inner + 1) * width
    embeddings = (words + model.max_position_embeddings + model.type_vocab_size) * width
    masked_lm, pooler, following = width * (width + 1) + norm + words, width * (width + 1), 2 * width + 2
    # One norm more: of the embeddings, or with norms placed before the sub-layers of the last layer's output.
    layers = model.num_hidden_layers * (attention + mlp + 2 * norm)
    return embeddings + norm + layers + masked_lm + pooler + following


def flops(model: ModelConfig, sequence: int, predictions: float, states: float | None = None) -> float:
    """Floating-point operations of training on one sequence, a product and a sum being two: matrix products alone.

    predictions: tokens whose words are predicted; states: those that the last layer is computed for past its attention,
    all by default. The backward pass has twice the products of the forward pass. Nothing is counted for what is
    computed again.
    """
    width, layers = model.hidden_size, model.num_hidden_layers
    attention = 2 * sequence * 3 * width * width + 4 * sequence * sequence * width
    tokens = (layers - 1) * sequence + (sequence if states is None else states)
    head = 2 * predictions * width * (width + model.vocab_size)
    return 3.0 * (layers * attention + 2 * tokens * width * (width + 2 * model.intermediate_size) + head)


def states_read(predictions: int) -> int:
    """Tokens of a pretraining sequence whose last states are read: those predicted, and the first for what follows."""
    return predictions + 1


def activations(config: PretrainConfig, sequence: int, predictions: int, rows: int = 0) -> dict[str, int]:
    """Bytes that one micro-batch needs beside weights, gradients and moments, by what they are for: an estimate.

    It is of a step that XLA compiles for a GPU; what is kept was read from such programs, and a test compares the sum
    with the compiler's (docs/results/2026-11-gpu-check.md). rows: those of `sequence` tokens that the sequences are
    packed into; by default each sequence has one of its own. "Narrow" is the compute type.
    """
    model, size = config.model, BYTES[config.precision.compute]
    layers, width, inner = model.num_hidden_layers, model.hidden_size, model.intermediate_size
    tokens = (rows or config.batch.per_device) * sequence
    read = config.batch.per_device * states_read(predictions)
    past = (layers - 1) * tokens + read  # tokens of all layers past their attention
    heads, fused = model.num_attention_heads, model.fused_attention
    pairs = 0 if fused else layers * tokens * heads * sequence  # attention weights of all layers
    vocabulary = model.vocab_size + -model.vocab_size % model.vocab_multiple
    kernels = layers * (4 * width * width + 2 * width * inner) + vocabulary * width
    # A byte for an attention weight, and for an element of what each of the two sub-layers gives. XLA draws the bits
    # of a layer that is computed again only once: it keeps them.
    bits = pairs * (model.attention_probs_dropout_prob > 0) + 2 * past * width * (model.hidden_dropout_prob > 0)
    scores = 2 * config.batch.per_device * predictions * vocabulary * 4  # and their gradient, in float32
    found = {
        "narrow kernels": kernels * size * (size < 4),  # the masters are what float32 reads
        "sum of the embeddings": tokens * width * 4,
        "random bits of dropout": bits,
    }
    if model.recompute_activations:
        # Of one layer: a float32 and two narrow arrays of a softmax and its gradient, or three narrow ones of a GELU
        # and its gradient, whichever are larger; and queries, keys, values, context, output and a float32 sum.
        again = max(pairs // layers * (4 + 2 * size), 3 * tokens * inner * size) + tokens * width * (5 * size + 4)
        return found | {
            "inputs of the layers": layers * tokens * width * 4,  # float32
            "a layer computed again, or scores": max(again, scores),
        }
    # Scores, and weights after dropout. Of cuDNN's attention the float32 sums of each row, and one mask for all layers.
    weights = layers * tokens * heads * 4 + tokens * sequence * size if fused else 2 * pairs * size
    # What layer norm's gradient reads: after a sum the narrow sum less its mean, before a sub-layer the float32 stream.
    kept = size if model.norm_placement == "post" else 4
    return found | {
        "residual stream": 2 * past * width * (kept + size),  # and the narrow rows that it gives
        # Queries, keys, values and what the heads give; and, unless fused, that once more, with the heads side by side.
        "attention": (4 * layers * tokens + (not fused) * past) * width * size,
        "attention weights": weights,
        "feed-forward": 2 * past * inner * size,  # before and after GELU
        "scores of the vocabulary": scores,
    }


def describe(config: PretrainConfig, ranks: int, *, sequence: int, predictions: int, available: int) -> dict[str, str]:
    """The plan on GPUs as lines of a table. sequence: tokens; available: training sequences in the data.

    Raises UsageError if the batch cannot be cut for so many ranks.
    """
    config = dataclasses.replace(config, precision=config.precision.resolved(gpu=True))
    count, run, batch = parameters(config.model), config.run, config.batch
    accumulation = batch.accumulation(ranks)
    sequences = run.steps * batch.total
    state = count * STATE_BYTES
    arithmetic = sequences * flops(config.model, sequence, predictions, states_read(predictions))
    working = sum(activations(config, sequence, predictions).values())
    memory = max(state + working, count * (UPDATE_BYTES if ranks > 1 else STATE_BYTES))
    traffic = count * (2 if config.precision.compress else 4)
    most = "at most " if batch.pack else ""  # how many rows the instances need is not known before they are read
    return {
        "parameters": f"{count:,}",
        "updates": f"{run.steps:,} of {batch.total:,} sequences of {sequence} tokens",
        "tokens": f"{most}{sequences * sequence:,}, padding included",
        "data": f"{available:,} sequences, gone through {sequences / available:.2f} times",
        "ranks": f"{ranks:,}, each {accumulation:,} micro-batches of {batch.per_device:,} an update",
        "arithmetic": f"{most}{arithmetic:.3g} FLOP in matrix products",
        "summed over ranks": f"{traffic / 1e6:,.0f} MB an update",
        "memory of a rank": f"{memory / 2**30:,.1f} GiB: {state / 2**30:,.1f} of weights, gradients and "
        f"moments, about {working / 2**30:,.1f} of activations",
        "checkpoint": f"{count * 12 / 2**30:,.1f} GiB, {run.keep + 1} at most at a time",
    }
