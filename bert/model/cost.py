"""Parameters of a model, the FLOP of a sequence, and the bytes of its state on each rank, from a configuration.

further, in several functions: the architecture of an encoder that the objective trains beside the model; None if
there is none. teacher: likewise, of the model whose outputs are learned (`extensions.distillation`).
"""

import functools

from bert.core.config import ModelConfig, ParallelConfig, TrainConfig
from bert.heads import MASKED_LM
from bert.model import weights

CHUNK_BYTES = 1 << 27  # of the float32 scores of the vocabulary that a causal model computes at once
MOMENTS = 8  # bytes of the two moments of a parameter


@functools.cache  # a search for plans asks for the same models thousands of times
def parameters(model: ModelConfig, further: ModelConfig | None = None) -> int:
    """Return the number of parameters in pretraining, including the heads; a causal model has no heads."""
    return weights.count(weights.pretrained(model, further))


@functools.cache
def encoder_parameters(model: ModelConfig) -> int:
    """Return the number of parameters without the heads."""
    return weights.count(weights.encoder(model))


def local_parameters(model: ModelConfig, parts: int, further: ModelConfig | None = None) -> int:
    """Return the number of parameters on one rank if tensor parallelism divides the model into `parts` parts."""
    divided = _divided_parameters(model, further)
    return parameters(model, further) - divided + -(-divided // parts)


@functools.cache
def _divided_parameters(model: ModelConfig, further: ModelConfig | None) -> int:
    return weights.count(weight for weight in weights.pretrained(model, further) if weight.axis is not None)


@functools.cache
def teacher_parameters(teacher: ModelConfig) -> int:
    """Return the number of parameters of a teacher: its encoder and its head for masked words."""
    return encoder_parameters(teacher) + weights.count(weights.head(MASKED_LM, teacher))


def projection_parameters(config: TrainConfig, teacher: ModelConfig | None) -> int:
    """Return the number of parameters of the projection of hidden states to a teacher's width; 0 if there is none.

    The projection learns beside the model.
    """
    projected = teacher is not None and config.distill.projects(config.model, teacher)
    return (config.model.hidden_size + 1) * teacher.hidden_size if teacher and projected else 0


def state_bytes(
    model: ModelConfig,
    replicas: int,
    parallel: ParallelConfig,
    further: ModelConfig | None = None,
    in_encoder: int | None = None,
    teacher: ModelConfig | None = None,
    kept: int = MOMENTS,
    beside: int = 0,
) -> int:
    """Return the bytes of weights, accumulated gradients and moments on each rank, and of a teacher's weights.

    Tensor parallelism may divide the model, and the replicas may divide the moments. in_encoder: if the encoder's own
    parameters are frozen, the number of parameters that learn in their place (low-rank updates); None: the encoder's
    own learn. kept: `OptimizerConfig.bytes_kept`. beside: number of parameters that learn beside the model
    (`projection_parameters`).
    """
    count = local_parameters(model, parallel.tensor, further) + beside
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
    further: ModelConfig | None = None,
) -> float:
    """Return the floating-point operations of training on one sequence; only matrix products count.

    A multiplication and an addition count as two. The backward pass has twice the products of the forward pass.
    Recomputed activations are not counted. A causal model computes all attention scores, although half of them are
    masked. predictions: masked tokens, or all tokens of a causal model. states: number of tokens for which the last
    layer computes what follows its attention; None: all.
    """
    width, layers = model.hidden_size, model.num_hidden_layers
    if further:
        detection = 3.0 * 2 * sequence * width * (width + 1)
        return flops(model, sequence, 0) + detection + flops(further, sequence, predictions, states)
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
