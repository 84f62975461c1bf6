"""How a forward pass goes through the layers: one after the other, or in groups with a boundary between them.

With groups, the backward pass can be interrupted at each boundary (bert/training/overlap.py).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

Embed = Callable[[], tf.Tensor]
Layer = Callable[[tf.Tensor], tf.Tensor]  # from the state before it to the one behind it


class Groups(NamedTuple):
    """Groups of layers, between which the backward pass can be interrupted."""

    first: tuple[int, ...]  # layer of each group, ascending; the first group begins with layer 0
    run: Callable[..., tf.Tensor]  # called with the function of the embeddings, then of each group and its x
    boundary: Callable[[tf.Tensor], tf.Tensor] = lambda x: x  # called with the states before each group and at the end
    last: tf.Tensor | None = None  # the last layer's output, if it is known: then nothing before it is computed
    recomputed: bool = False  # whether the backward pass computes each group again from the state before it


def states(embed: Embed, layers: Sequence[Layer], groups: Groups | None, recompute: bool) -> list[tf.Tensor]:
    """Return the outputs of the embeddings and of each layer; with groups, only the last layer's output.

    recompute: compute the values inside a layer again in the backward pass, instead of storing them.
    """
    if groups:
        return [_last_of_groups(embed, layers, groups, recompute)]
    outputs = [embed()]
    for layer in layers:
        outputs.append((tf.recompute_grad(layer) if recompute else layer)(outputs[-1]))
    return outputs


def _last_of_groups(embed: Embed, layers: Sequence[Layer], groups: Groups, recompute: bool) -> tf.Tensor:
    if groups.last is not None:
        return groups.last
    x = groups.run(embed)
    for first, end in zip(groups.first, (*groups.first[1:], len(layers)), strict=True):
        group = layers[first:end]
        twice = groups.recomputed and len(group) == 1  # the group's recomputation is the layer's

        def run(x: tf.Tensor, group: Sequence[Layer] = group, again: bool = recompute and not twice) -> tf.Tensor:
            return states(lambda: x, group, None, again)[-1]

        x = groups.run(run, groups.boundary(x))
    return groups.boundary(x)
