"""What a pretraining run will be, before it is: sizes, tokens, traffic and memory, from the configuration alone."""

from bert.config import ModelConfig, PretrainConfig

OPTIMIZER_BYTES = 20  # a weight in float32, its two moments, its accumulated gradient and the gradient being added
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


def activations(config: PretrainConfig, sequence: int, predictions: int) -> int:
    """Bytes kept for the backward pass of one micro-batch: an estimate.

    A layer keeps B T D (34 + 5 N T / D) bytes in 16 bits (Korthikanti et al. 2022, "Reducing Activation Recomputation",
    section 4.1), the second part not if attention is fused; the heads P scores of the vocabulary in the compute type
    and in float32.
    """
    model, size = config.model, BYTES[config.precision.compute]
    rows = config.batch.per_device * sequence
    pairs = 0 if model.fused_attention else 5 * model.num_attention_heads * sequence
    layer = rows * (34 * model.hidden_size + pairs) * size // 2
    scores = config.batch.per_device * predictions * model.vocab_size * (size + 4)
    if model.recompute_activations:  # the float32 input of every layer, and all of the one that is computed again
        return model.num_hidden_layers * rows * model.hidden_size * 4 + layer + scores
    return model.num_hidden_layers * layer + scores


def describe(config: PretrainConfig, ranks: int, *, sequence: int, predictions: int, available: int) -> dict[str, str]:
    """The plan as lines of a table. sequence: tokens; available: training sequences in the data.

    Raises UsageError if the batch cannot be cut for so many ranks.
    """
    count, run, batch = parameters(config.model), config.run, config.batch
    accumulation = batch.accumulation(ranks)
    sequences = run.steps * batch.total
    state = count * OPTIMIZER_BYTES
    arithmetic = sequences * flops(config.model, sequence, predictions, states_read(predictions))
    working = activations(config, sequence, predictions)
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
        "memory of a rank": f"{(state + working) / 2**30:,.1f} GiB: {state / 2**30:,.1f} of weights, gradients and "
        f"moments, about {working / 2**30:,.1f} of activations",
        "checkpoint": f"{count * 12 / 2**30:,.1f} GiB, {run.keep + 1} at most at a time",
    }
