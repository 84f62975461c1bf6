"""Kernels for GPUs that a model may ask for, each of which computes what several operations of a layer do otherwise.

A row is imported where a layer is made that has it, and for its check before the first update.
"""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from bert.core import model_config
from bert.core.config import ModelConfig, PrecisionConfig
from bert.core.rows import Rows
from bert.model.dropout import DropoutRng


@dataclass(frozen=True)
class Kernel:
    """A kernel that replaces operations of the encoder, for sizes that it supports."""

    supports: Callable[..., bool]
    """whether it takes these sizes; None is one that is not known while a graph is traced"""
    compute: Callable[..., tf.Tensor]
    """has the arguments and the result of what it replaces, but the bits below"""
    called: Callable[[ModelConfig], str]
    """returns how a model's run names it in its first line"""
    check: Callable[[ModelConfig, PrecisionConfig, int], None]
    """raises UsageError if it does not run here, or gives other results; for a run's sequences of so many tokens"""
    bits: Callable[..., tuple[tf.Tensor, ...]] = DropoutRng.bits
    """draws the bits for dropout that `compute` takes, of as many places of the same arguments as `DropoutRng.bits`"""


KERNELS: Rows[Kernel] = Rows({name: row for of_part in model_config.KERNELS.values() for name, row in of_part.items()})
"""by the setting of `model` that asks for one

For attention: `attention.attend`; sizes: tokens, the width of a head, and the rate of dropout.
For norm: `fused_ops.add_dropout_norm`; sizes: rows and columns.
For feed_forward: a whole feed-forward layer (x [R, D], W1, b1, W2, dtype); sizes: R, D and F.
"""


def asked(model: ModelConfig, part: str) -> Kernel | None:
    """Return the kernel for a part of a layer that the model's configuration asks for; None if it asks for none."""
    name = model.kernel_of(part)
    return None if name is None else KERNELS[name]


def asked_by(model: ModelConfig) -> list[Kernel]:
    """Return the rows that the model's configuration asks for, in the order of the table."""
    return [KERNELS[name] for name in KERNELS if getattr(model, name)]
