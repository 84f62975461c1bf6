"""Whether a kernel runs here, and computes what the operations compute that it replaces."""

from collections.abc import Callable

import tensorflow as tf

from bert.core.config import PrecisionConfig
from bert.core.errors import UsageError

TOLERANCE = 0.05  # difference between two computations in 16 bits, relative to the largest number
NARROW = ("bfloat16", "float16")  # compute types that kernels for GPUs take


def compiled_in_16_bits(name: str, precision: PrecisionConfig) -> None:
    """Raise UsageError unless XLA compiles a run's steps, and its products have 16 bits; name: of the setting."""
    if not precision.xla or precision.compute not in NARROW:
        raise UsageError(f"model.{name} needs --precision.xla true and --precision.compute bfloat16 or float16")


def compared(compute: Callable[..., list[tf.Tensor]], kind: str, flag: str) -> None:
    """Raise UsageError, with the flag to leave out, if compute(fused=True) fails or differs from the plain one."""
    try:
        fused, plain = compute(fused=True), compute(fused=False)
    except tf.errors.OpError as error:
        reason = error.message.splitlines()[0].split(" [Op:")[0]
        raise UsageError(f"{kind} does not run here ({reason}); leave out {flag}") from error
    differences = [tf.reduce_max(tf.abs(x - y)) / tf.reduce_max(tf.abs(y)) for x, y in zip(fused, plain, strict=True)]
    largest = max(map(float, differences))
    if not largest <= TOLERANCE:  # also if it is not a number
        raise UsageError(
            f"{kind} gives other results than the plain one here (relative difference {largest:.2g}); leave out {flag}"
        )
