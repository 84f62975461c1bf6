"""Estimate a pretraining run: activations, communication, what the update holds, and the plan as a table.

further, teacher: as in `bert.model.cost`.
"""

import dataclasses

from bert.core.config import ModelConfig, ObjectiveConfig, ParallelConfig, PretrainConfig
from bert.model import weights
from bert.model.cost import (
    CHUNK_BYTES,
    MOMENTS,
    flops,
    local_parameters,
    parameters,
    projection_parameters,
    state_bytes,
    states_read,
)

BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}


def embeddings_share(model: ModelConfig, parts: int = 1, further: ModelConfig | None = None) -> float:
    """Return the share of the embeddings among the parameters of a rank: their gradients are complete last."""
    tables = [table for row in weights.OUTER if row.kind == "table" for table in weights.of_part(row, model)]
    rows = sum(-(-table.shape[0] // (1 if table.axis is None else parts)) for table in tables)
    return rows * model.embedding_width / local_parameters(model, parts, further)


def exposed_share(model: ModelConfig, parallel: ParallelConfig, further: ModelConfig | None = None) -> float:
    """Return the share of a rank's gradients whose sum overlap cannot hide.

    These are the gradients of the embeddings and of one bucket: nothing is sent until the first bucket is complete.
    """
    gradients = 4.0 * local_parameters(model, parallel.tensor, further)
    return min(1.0, embeddings_share(model, parallel.tensor, further) + parallel.bucket_bytes(gradients) / gradients)


def checkpoint_bytes(config: PretrainConfig, teacher: ModelConfig | None) -> int:
    """Return the size of a checkpoint: all weights in float32, and what the optimizer keeps of each."""
    count = parameters(config.model, config.further) + projection_parameters(config, teacher)
    return count * (BYTES["float32"] + config.optimizer.bytes_kept)


def update_bytes(
    model: ModelConfig,
    replicas: int,
    parallel: ParallelConfig,
    further: ModelConfig | None = None,
    teacher: ModelConfig | None = None,
    kept: int = MOMENTS,
    beside: int = 0,
) -> int:
    """Return the bytes on each rank during the update: `state_bytes`, and what several ranks exchange.

    With several ranks, each rank holds all summed gradients. With a sharded optimizer, it holds only its share of the
    summed gradients and of the new weights, and the gathered new weights of one bucket. A variable that is larger than
    a bucket is a bucket by itself.
    """
    state = state_bytes(model, replicas, parallel, further, teacher=teacher, kept=kept, beside=beside)
    count = local_parameters(model, parallel.tensor, further) + beside
    if replicas == 1:
        return state
    if not parallel.shard_optimizer:
        return state + 4 * count
    largest = 4 * model.hidden_size * -(-max(model.vocab_size, model.intermediate_size) // parallel.tensor)
    return state + 8 * count // replicas + int(min(4 * count, max(parallel.bucket_bytes(4 * count), largest)))


def update_flops(config: PretrainConfig, sequence: int, predictions: int, teacher: ModelConfig | None = None) -> float:
    """Return the floating-point operations of training on one sequence, as `flops`, including the teacher's.

    A teacher computes only the forward pass, up to the last layer that the model learns from. Losses of layers add
    products in both models.
    """
    model, distill = config.model, config.distill
    states = None if model.causal else states_read(predictions)
    if teacher is None:
        return flops(model, sequence, predictions, states, further=config.further)
    scored, taught = (predictions if is_scored else 0 for is_scored in (distill.outputs, distill.has_soft_labels))
    own = flops(model, sequence, scored, None if distill.needs_last_states else states)
    used = dataclasses.replace(teacher, num_hidden_layers=distill.layers_used(model, teacher))
    compared = (distill.attention > 0) * model.num_hidden_layers + (distill.relations > 0) * 3
    products = 2.0 * compared * sequence * sequence * (3 * model.hidden_size + teacher.hidden_size)
    projected = 6.0 * sequence * (model.num_hidden_layers + 1) * projection_parameters(config, teacher)
    return own + flops(used, sequence, taught) / 3 + products + projected


def activations(
    config: PretrainConfig,
    sequence: int,
    predictions: int,
    rows: int = 0,
    *,
    cpu: bool = False,
    teacher: ModelConfig | None = None,
) -> dict[str, int]:
    """Return an estimate of the bytes of one micro-batch beside weights, gradients and moments, by purpose.

    The estimate is for a step that XLA compiles for a GPU. Its terms follow the arrays in such programs; a test
    compares the sum with the compiler's own figure (docs/results/2026-11-gpu-check.md). rows: packed rows of `sequence`
    tokens, by default one per sequence. "Narrow" means in the compute type. cpu: of a step on a CPU that XLA does not
    compile as a whole; docs/results/2026-11-planner.md compares it with measurements.
    """
    if teacher:
        terms = activations(config, sequence, predictions, rows, cpu=cpu)
        scores, layer = _teacher_activations(config, teacher, sequence, predictions, rows)
        terms |= {"losses of layers": _distance_activations(config, teacher, sequence, rows)}
        return terms | {"teacher": max(scores, layer - sum(terms.values()))}
    if config.further:  # the arrays of two models; the further one computes the scores of words
        own, plain = config.further, ObjectiveConfig()
        each = [
            _of_one_model(dataclasses.replace(config, model=model, objective=plain), sequence, scored, rows, cpu)
            for model, scored in ((config.model, 0), (own, predictions))
        ]
        return {purpose: sum(of_model[purpose] for of_model in each) for purpose in each[0]}
    return _of_one_model(config, sequence, predictions, rows, cpu)


def _of_one_model(config: PretrainConfig, sequence: int, predictions: int, rows: int, cpu: bool) -> dict[str, int]:
    """Return the bytes as `activations`, without a teacher and a further encoder."""
    model, size, wide = config.model, BYTES[config.precision.compute], BYTES[config.precision.residual]
    layers, width, inner = model.num_hidden_layers, model.hidden_size, model.intermediate_size
    tokens = (rows or config.batch.per_device) * sequence
    whole = model.causal or not predictions or config.distill.needs_last_states
    last = tokens if whole else config.batch.per_device * states_read(predictions)
    past = (layers - 1) * tokens + last  # tokens of all layers after their attention
    heads, fused, rate = model.num_attention_heads, model.fused_attention, model.attention_probs_dropout_prob
    pairs = 0 if fused else layers * tokens * heads * sequence  # attention weights of all layers
    vocabulary = model.vocab_size + -model.vocab_size % model.vocab_multiple
    of_layer = [weight for row in weights.LAYER for weight in weights.of_part(row, model) if len(weight.shape) == 2]
    kernels = layers * weights.count(of_layer) + vocabulary * width
    # One byte per attention weight, and per element of the output of each of the two sub-layers, or one bit where
    # attention or layer norm is fused. XLA stores these also for a layer that is recomputed.
    of_weights = layers * tokens * heads * sequence // 8 if fused else pairs
    of_outputs = 2 * past * width // (8 if model.fused_norm else 1)
    bits = of_weights * (rate > 0) + of_outputs * (model.hidden_dropout_prob > 0)
    scores = 2 * config.batch.per_device * predictions * vocabulary * 4  # and their gradient, in float32
    if model.causal:  # of a chunk, and the gradients by the word embeddings and by the last states
        scores = min(scores, 2 * CHUNK_BYTES) + vocabulary * width * 4 + tokens * width * 4
    common = {
        "narrow kernels": kernels * size * (size < 4),  # float32 needs no copy
        "sum of embeddings": tokens * width * 4,
        "dropout bits": bits,
    }
    # The input of layer norm's gradient: with norms after a sum, narrow; before a sub-layer, the stream.
    norm_input = size if model.norm_placement == "post" else wide
    stream = norm_input + size  # and the narrow output of layer norm
    if cpu:  # the stream, the product that is added to it, and a narrow copy for the next product if it is one
        stream = wide + size + size * (size < wide)
    if model.recompute_activations:
        # Of one layer: one float32 and two narrow arrays of a softmax and its gradient, or three narrow arrays of a
        # GELU and its gradient (if gated, also three of the other factor), whichever is larger; and queries, keys,
        # values, context, output and a sum.
        feed_forward = 3 * (1 + model.gated) * tokens * inner * size
        layer = max(pairs // layers * (4 + 2 * size), feed_forward) + tokens * width * (5 * size + wide)
        if cpu:  # all arrays of the layer, as below, at once, and the gradient of a GELU
            layer = pairs // layers * 2 * size + feed_forward + tokens * width * (5 * size + 2 * stream)
        return common | {
            "inputs of the layers": layers * tokens * width * wide,
            "a recomputed layer, or vocabulary logits": max(layer, scores),
        }
    # Weights before and after dropout; with fused attention float32 sums of rows, and cuDNN's one mask for all layers.
    copies = 2 if rate > 0 or cpu else 1
    fused_weights = layers * tokens * heads * 4 + tokens * sequence * size * (rate == 0)
    attention_weights = fused_weights if fused else copies * pairs * size
    return common | {
        "residual stream": 2 * past * width * stream,
        # Queries, keys, values and context; unless fused, a copy of the context with the heads side by side.
        "attention": (4 * layers * tokens + (not fused) * past) * width * size,
        "attention weights": attention_weights,
        "feed-forward": (2 + model.gated) * past * inner * size,  # before and after GELU
        "vocabulary logits": scores,
    }


def _teacher_activations(
    config: PretrainConfig, teacher: ModelConfig, sequence: int, predictions: int, rows: int
) -> tuple[int, int]:
    """Return the bytes of a teacher's scores of the vocabulary [B, P, V], and the bytes of one of its layers.

    The loss keeps only the scores, in float32, and the arrays of `_distance_activations`.
    """
    size, width, inner = BYTES[config.precision.compute], teacher.hidden_size, teacher.intermediate_size
    tokens = (rows or config.batch.per_device) * sequence
    attention = tokens * (2 * teacher.num_attention_heads * sequence + 4 * width) * size  # scores, their softmax
    layer = tokens * width * 4 + max(attention, (2 + teacher.gated) * tokens * inner * size)
    scored = predictions if config.distill.has_soft_labels else 0
    return config.batch.per_device * scored * teacher.vocab_size * 4, layer


def _distance_activations(config: PretrainConfig, teacher: ModelConfig, sequence: int, rows: int) -> int:
    """Return the bytes of the float32 arrays of both models that the losses of layers keep."""
    model, distill = config.model, config.distill
    tokens = (rows or config.batch.per_device) * sequence
    count = 0
    if distill.cosine:
        count += 2 * tokens * model.hidden_size  # both states, of length 1
    if distill.hidden:  # the teacher's states, and their differences
        count += 2 * (model.num_hidden_layers + 1) * tokens * teacher.hidden_size
    if distill.attention:  # the differences of scores, and two scores at once
        count += (model.num_hidden_layers + 2) * tokens * model.num_attention_heads * sequence
    if distill.relations:  # both distributions of queries, keys and values, and two arrays of relations at once
        count += 8 * tokens * distill.relation(teacher)[1] * sequence
    return 4 * count


def describe(
    config: PretrainConfig,
    ranks: int,
    *,
    sequence: int,
    predictions: int,
    available: int,
    teacher: ModelConfig | None = None,
) -> dict[str, str]:
    """Return the plan of a run on GPUs as rows of a table.

    sequence: tokens per sequence. predictions: per sequence. available: training sequences in the data. Raises
    UsageError if the batch cannot be divided among the ranks.
    """
    config = dataclasses.replace(config, precision=config.precision.resolved(gpu=True))
    further = config.further
    count, run, batch = parameters(config.model, further), config.run, config.batch
    parts = config.parallel.tensor
    replicas, holder = ranks // parts, "each" if parts == 1 else f"in groups of {parts}; each group"
    accumulation = batch.accumulation(replicas)
    sequences = run.steps * batch.total
    kept = config.optimizer.bytes_kept
    beside = projection_parameters(config, teacher)
    state = state_bytes(config.model, replicas, config.parallel, further, teacher=teacher, kept=kept, beside=beside)
    arithmetic = sequences * update_flops(config, sequence, predictions, teacher)
    working = sum(activations(config, sequence, predictions, teacher=teacher).values())
    update = update_bytes(config.model, replicas, config.parallel, further, teacher, kept, beside)
    memory = max(state + working, update)
    local = local_parameters(config.model, parts, further) + beside
    traffic = f"{local * (2 if config.precision.compress else 4) / 1e6:,.0f} MB of gradients summed"
    if replicas > 1 and config.parallel.shard_optimizer:
        traffic += f", {local * 4 / 1e6:,.0f} MB of new weights gathered"
    limit = "at most " if batch.pack else ""  # the number of packed rows is not known in advance
    return {
        "parameters": f"{count:,}",
        "updates": f"{run.steps:,} of {batch.total:,} sequences of {sequence} tokens",
        "tokens": f"{limit}{sequences * sequence:,}, padding included",
        "data": f"{available:,} sequences, {sequences / available:.2f} epochs",
        "ranks": f"{ranks:,}, {holder} {accumulation:,} micro-batches of {batch.per_device:,} per update",
        "arithmetic": f"{limit}{arithmetic:.3g} FLOP in matrix products",
        "communication": f"per update {traffic}",
        "memory per rank": f"{memory / 2**30:,.1f} GiB: {state / 2**30:,.1f} of weights, gradients and "
        f"moments, about {working / 2**30:,.1f} of activations",
        "checkpoint": f"{checkpoint_bytes(config, teacher) / 2**30:,.1f} GiB, at most {run.keep + 1} at a time",
    }
