"""Tensors of transformers that hold several of ours side by side: one table, and both directions.

GPT-2 has queries, keys and values in the columns of one kernel, ModernBERT in the rows, since its kernels are stored as
[outputs, inputs]; so has the latter the two halves of a gated feed-forward layer. Here each of them is a tensor of its
own: `attn.c_attn.query` and so on.

NeoBERT's rows are those of each head in turn: its queries, its keys, its values. Its rotary positions turn the
components 2h and 2h + 1 of a head together, ours h and h + H/2 (H width of a head), so that rows of queries and keys
change their places. That is exact: scores are sums over components, in any order.

Source: transformers (modeling_gpt2.py, modeling_modernbert.py); model.py and rotary.py of NeoBERT.
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
    by_head: bool = False
    """whether they are joined in each attention head, with queries and keys in the order of pairs"""


ATTENTION = ("query", "key", "value")
JOINTS = (
    Joint(".attn.c_attn.", ATTENTION, -1),
    Joint(".attn.Wqkv.", ATTENTION, 0),
    Joint(".mlp.Wi.", ("inner", "gate"), 0),
    Joint(".qkv.", ATTENTION, 0, by_head=True),
    Joint(".ffn.w12.", ("inner", "gate"), 0),
)
Place = tuple[slice | np.ndarray, ...]  # where a tensor stands in the stored one


def part_of(name: str, shape: tuple[int, ...], heads: int) -> dict[str, tuple[tuple[int, ...], Place]]:
    """Return the tensors that a stored one holds, by name: shape and place. heads: of the attention.

    A tensor of another kind, or that cannot be divided, holds itself only.
    """
    joint = next((joint for joint in JOINTS if joint.infix in name), None)
    unit = 0 if joint is None else len(joint.parts) * (2 * heads if joint.by_head else 1)
    if joint is None or not shape or shape[joint.axis] % unit:
        return {name: (shape, ())}
    if joint.by_head:
        rows = _rows_by_head(shape[0], heads)
        return {
            name.replace(joint.infix, f"{joint.infix}{part}."): ((len(rows[part]), *shape[1:]), (rows[part],))
            for part in joint.parts
        }
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


def _rows_by_head(count: int, heads: int) -> dict[str, np.ndarray]:
    """Return the rows of queries, keys and values among `count` that are joined in each head, in our order."""
    rows = dict(zip(ATTENTION, np.arange(count).reshape(heads, 3, -1).swapaxes(0, 1), strict=True))  # [heads, H]
    for part in ("query", "key"):
        rows[part] = rows[part].reshape(heads, -1, 2).swapaxes(1, 2)  # all first components of pairs, then the second
    return {part: of_part.reshape(-1) for part, of_part in rows.items()}


def joined(tensors: Mapping[str, np.ndarray], heads: int) -> dict[str, np.ndarray]:
    """Return the tensors with their parts joined, as files store them. heads: of the attention."""
    result: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        joint = next((joint for joint in JOINTS if joint.infix in name), None)
        if joint is None:
            result[name] = value
        elif (first := f"{joint.infix}{joint.parts[0]}.") in name:
            parts = [tensors[name.replace(first, f"{joint.infix}{part}.")] for part in joint.parts]
            value = np.concatenate(parts, axis=joint.axis)
            if joint.by_head:
                value = value[np.argsort(np.concatenate([*_rows_by_head(len(value), heads).values()]))]
            result[name.replace(first, joint.infix)] = value
    return result
