"""Parameters of a model, the FLOP of a sequence, and the bytes of its state on each rank, from a configuration.

generator, in several functions: the architecture of the generator that replaced-token detection trains beside the
model; None if there is none. teacher: likewise, of the model whose outputs are learned (`extensions.distillation`).
"""

from bert.core.config import DistillConfig, LoraConfig, ModelConfig, ParallelConfig, TrainConfig

CHUNK_BYTES = 1 << 27  # of the float32 scores of the vocabulary that a causal model computes at once
MOMENTS = 8  # bytes of the two moments of a parameter


def parameters(model: ModelConfig, generator: ModelConfig | None = None) -> int:
    """Return the number of parameters in pretraining, including the heads; a causal model has none."""
    width = model.hidden_size
    pooler, next_sentence = width * (width + 1), 2 * width + 2
    if generator:
        detection = width * (width + 1) + width + 1
        shared = _tables(model) + (1 + model.biases) * model.embedding_width
        own = encoder_parameters(generator) - shared + _masked_lm(generator)
        return encoder_parameters(model) + detection + own
    if model.head_transform:
        pooler = width * (width + model.biases) + (1 + model.biases) * width
    return encoder_parameters(model) + (0 if model.causal else _masked_lm(model) + pooler + next_sentence)


def _masked_lm(model: ModelConfig) -> int:
    biases, narrow = int(model.biases), model.embedding_width
    if model.masked_lm_head == "linear":
        return model.vocab_size * (model.hidden_size + 1)
    return (model.hidden_size + biases) * narrow + (1 + biases) * narrow + model.vocab_size


def _tables(model: ModelConfig) -> int:
    return (model.vocab_size + positions(model) + model.type_vocab_size) * model.embedding_width


def encoder_parameters(model: ModelConfig) -> int:
    """Return the number of parameters without the heads."""
    width, inner = model.hidden_size, model.intermediate_size
    biases, narrow = int(model.biases), model.embedding_width
    norm, first = (1 + biases) * width, (width + biases) * inner * (1 + model.gated)
    attention, mlp = 4 * width * (width + biases), first + (inner + biases) * width
    embeddings = _tables(model)
    if narrow != width:
        embeddings += (1 + biases) * narrow - norm + (narrow + 1) * width  # their norm, and the projection
    # One more norm: of the embeddings, or, with norms before the sub-layers, of the last layer's output.
    layers = model.num_hidden_layers * (attention + mlp + 2 * norm)
    return embeddings + norm + layers


def positions(model: ModelConfig) -> int:
    """Return the number of positions that have learned embeddings."""
    return model.max_position_embeddings if model.positions == "learned" else 0


def local_parameters(model: ModelConfig, parts: int, generator: ModelConfig | None = None) -> int:
    """Return the number of parameters that one of the ranks holds which divide a model by tensor parallelism.

    Divided are attention heads, the feed-forward layer and the words of the vocabulary. Norms, positions, segments, the
    biases of outputs and the other parts of the heads are whole on each rank.
    """
    scorer = generator or model  # of the words
    words = model.vocab_size * (model.embedding_width + (not model.causal))  # and the bias of each word's score
    words += model.vocab_size * scorer.hidden_size * (model.masked_lm_head == "linear")
    divided = words + _divided_of_layers(model) + (_divided_of_layers(generator) if generator else 0)
    return parameters(model, generator) - divided + -(-divided // parts)


def _divided_of_layers(model: ModelConfig) -> int:
    width, inner, biases = model.hidden_size, model.intermediate_size, int(model.biases)
    attention, mlp = 4 * width * width + 3 * biases * width, (2 * width + biases) * inner
    mlp += (width + biases) * inner if model.gated else 0
    return model.num_hidden_layers * (attention + mlp)


def low_rank_parameters(model: ModelConfig, lora: LoraConfig, first_layer: int = 0) -> int:
    """Return the number of parameters of LoRA's matrices in the layers from `first_layer` on."""
    width, inner = model.hidden_size, model.intermediate_size
    targets = {name for name in lora.targets if name != "gate" or model.gated}
    sizes = sum(width + (width if name in ("query", "key", "value", "output") else inner) for name in targets)
    return lora.rank * sizes * (model.num_hidden_layers - first_layer)


def teacher_parameters(teacher: ModelConfig) -> int:
    """Return the number of parameters of a teacher: its encoder, and its head for masked words."""
    return encoder_parameters(teacher) + _masked_lm(teacher)


def projection_parameters(model: ModelConfig, distill: DistillConfig, teacher: ModelConfig | None) -> int:
    """Return the number of parameters by which hidden states are projected to those of a teacher."""
    projected = teacher is not None and distill.projects(model, teacher)
    return (model.hidden_size + 1) * teacher.hidden_size if teacher and projected else 0


def parameters_beside(config: TrainConfig, teacher: ModelConfig | None) -> int:
    """Return the number of parameters that learn beside the model: they project hidden states to a teacher's."""
    return projection_parameters(config.model, config.distill, teacher)


def state_bytes(
    model: ModelConfig,
    replicas: int,
    parallel: ParallelConfig,
    generator: ModelConfig | None = None,
    in_encoder: int | None = None,
    teacher: ModelConfig | None = None,
    kept: int = MOMENTS,
    beside: int = 0,
) -> int:
    """Return the bytes of weights, accumulated gradients and moments on each rank; of a teacher, of its weights.

    The model may be in parts, and its replicas may divide the moments. in_encoder: number of parameters that learn in
    the encoder, or for it, if it is frozen itself; None: all its own. kept: `OptimizerConfig.bytes_kept`. beside: how
    many parameters learn beside the model (`parameters_beside`).
    """
    count = local_parameters(model, parallel.tensor, generator) + beside
    learning = count
    if in_encoder is not None:
        learning = parameters(model) - encoder_parameters(model) + in_encoder + beside
        count += in_encoder
    fixed = teacher_parameters(teacher) if teacher else 0
    return 4 * (count + fixed) + 4 * learning + kept * learning // (replicas if parallel.shard_optimizer else 1)


def flops(
    model: ModelConfig,
    sequence: int,
    predictions: float,
    states: float | None = None,
    *,
    generator: ModelConfig | None = None,
) -> float:
    """Return the floating-point operations of training on one sequence, in matrix products only.

    A multiplication and an addition count as two. The backward pass has twice the products of the forward pass.
    Recomputed activations are not counted. A causal model computes all scores of its attention, although half of them
    are masked. predictions: masked tokens, or all tokens of a causal model. states: tokens for which the last layer is
    computed after its attention, all by default.
    """
    width, layers = model.hidden_size, model.num_hidden_layers
    if generator:
        detection = 3.0 * 2 * sequence * width * (width + 1)
        return flops(model, sequence, 0) + detection + flops(generator, sequence, predictions, states)
    attention = 2 * sequence * 3 * width * width + 4 * sequence * sequence * width
    tokens = (layers - 1) * sequence + (sequence if states is None else states)
    if model.masked_lm_head == "linear":
        head = 2 * predictions * width * model.vocab_size
    else:
        head = 2 * predictions * model.embedding_width * (model.vocab_size + (0 if model.causal else width))
    inner = (2 + model.gated) * model.intermediate_size
    narrow = model.embedding_width
    projection = 2 * sequence * narrow * width if narrow != width else 0
    return 3.0 * (layers * attention + 2 * tokens * width * (width + inner) + head + projection)


def states_read(predictions: int) -> int:
    """Return how many tokens of a pretraining sequence need a last hidden state: the masked ones and [CLS]."""
    return predictions + 1
