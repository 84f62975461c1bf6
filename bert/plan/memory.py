"""Does it fit: the memory of one GPU, and the largest micro-batch that it holds."""

import dataclasses
from dataclasses import dataclass

from bert.core.config import ModelConfig, PretrainConfig
from bert.model import cost
from bert.plan import demand
from bert.plan.hardware import Gpu

RESERVED = 1.5 * 2**30  # bytes of the CUDA context, NCCL's buffers and cuDNN; an estimate
FRAGMENTS = 0.05  # share of the rest that TensorFlow's allocator cannot use; an estimate
LARGEST = 1024  # sequences of a micro-batch that are tried
DIVIDED = {"narrow kernels", "attention", "attention weights", "feed-forward", "vocabulary logits",
           "a recomputed layer, or vocabulary logits"}  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU."""

    state: int  # weights, accumulated gradients and moments
    activations: dict[str, int]  # of one micro-batch, by purpose
    update: int  # what the update needs while no activations are there
    available: int

    @property
    def total(self) -> int:
        """Return the most that is in use at once."""
        return max(self.state + sum(self.activations.values()), self.update)

    @property
    def fits(self) -> bool:
        return self.total <= self.available


def available(gpu: Gpu) -> int:
    """Return the bytes of a GPU that a training step can use."""
    return int((gpu.memory - RESERVED) * (1 - FRAGMENTS))


def estimate(
    config: PretrainConfig,
    gpu: Gpu,
    replicas: int,
    sequence: int,
    predictions: int,
    teacher: ModelConfig | None = None,
) -> Memory:
    """Return the memory of a rank. `config.batch.per_device` must be set and the precision resolved.

    With tensor parallelism a rank holds its share of the divided variables and of the activations within layers. The
    hidden states between layers, and their dropout, are whole on each rank.
    """
    parts = config.parallel.tensor
    model, parallel = config.model, config.parallel
    terms = demand.activations(config, sequence, predictions, teacher=teacher)
    kept, beside = config.optimizer.bytes_kept, cost.projection_parameters(config, teacher)
    return Memory(
        state=cost.state_bytes(model, replicas, parallel, config.further, teacher=teacher, kept=kept, beside=beside),
        activations={name: size // parts if name in DIVIDED else size for name, size in terms.items()},
        update=demand.update_bytes(model, replicas, parallel, config.further, teacher, kept, beside),
        available=available(gpu),
    )


def largest_micro_batch(
    config: PretrainConfig,
    gpu: Gpu,
    replicas: int,
    sequence: int,
    predictions: int,
    teacher: ModelConfig | None = None,
) -> int:
    """Return the most sequences in a micro-batch that fit; 0 if not even one fits."""

    def fits(size: int) -> bool:
        tried = dataclasses.replace(config, batch=dataclasses.replace(config.batch, per_device=size))
        return estimate(tried, gpu, replicas, sequence, predictions, teacher).fits

    low, high = 0, LARGEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
