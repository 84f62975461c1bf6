"""Tensors of transformers that hold several of ours side by side: one table, and both directions.

GPT-2 has queries, keys and values in the columns of one kernel, ModernBERT in the rows, since its kernels are stored as
[outputs, inputs]; so has the latter the two halves of a gated feed-forward layer. Here each of them is a tensor of its
own: `attn.c_attn.query` and so on.

Source: transformers (modeling_gpt2.py, modeling_modernbert.py).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Joint(NamedTuple):
    """A tensor that holds others."""

    infix: str
    """part of its name"""
    parts: tuple[str, ...]
    """added to the infix: the names of those that it holds, in their order"""
    axis: int
    """along which they are joined"""


ATTENTION = ("query", "key", "value")
JOINTS = (
    Joint(".attn.c_attn.", ATTENTION, -1),
    Joint(".attn.Wqkv.", ATTENTION, 0),
    Joint(".mlp.Wi.", ("inner", "gate"), 0),
)
Place = tuple[slice, ...]  # where a tensor stands in the stored one


def part_of(name: str, shape: tuple[int, ...]) -> dict[str, tuple[tuple[int, ...], Place]]:
    """Return the tensors that a stored one holds, by name: shape and place.

    A tensor of another kind, or that cannot be divided, holds itself only.
    """
    joint = next((joint for joint in JOINTS if joint.infix in name), None)
    if joint is None or not shape or shape[joint.axis] % len(joint.parts):
        return {name: (shape, ())}
    axis = joint.axis % len(shape)
    size = shape[axis] // len(joint.parts)
    part = (*shape[:axis], size, *shape[axis + 1 :])
    before = (slice(None),) * axis
    return {
        name.replace(joint.infix, f"{joint.infix}{inner}."): (
            part,
            (*before, slice(number * size, (number + 1) * size)),
        )
        for number, inner in enumerate(joint.parts)
    }


def joined(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors as they are stored."""
    result: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        joint = next((joint for joint in JOINTS if joint.infix in name), None)
        if joint is None:
            result[name] = value
        elif (first := f"{joint.infix}{joint.parts[0]}.") in name:
            parts = [tensors[name.replace(first, f"{joint.infix}{part}.")] for part in joint.parts]
            result[name.replace(first, joint.infix)] = np.concatenate(parts, axis=joint.axis)
    return result
