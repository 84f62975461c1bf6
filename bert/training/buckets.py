"""Buckets of gradients: one collective sums a bucket over the ranks.

Buckets are in the order in which the backward pass completes them: it begins with the heads and ends with the
embeddings. So the gradients of the last layers can travel while those of the first ones are still computed (Li et al.
2020, "PyTorch Distributed").
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

Buckets = Sequence[Sequence[int]]  # the places, among all gradients or weights, of those in each bucket
Collective = Callable[[int, list[tf.Tensor]], Sequence[tf.Tensor]]


def buckets(sizes: Mapping[str, int], limit: float) -> list[list[int]]:
    """Divide gradients into buckets of at most `limit` bytes; a larger gradient has one of its own.

    sizes: bytes of each gradient, by the variable's name. Return the places in `sizes` of each bucket's gradients.
    """
    names = list(sizes)
    order = sorted(range(len(names)), key=lambda place: -_depth(names[place]))
    filled: list[list[int]] = []
    room = 0.0
    for place in order:
        size = sizes[names[place]]
        if not filled or size > room:
            filled.append([])
            room = limit
        filled[-1].append(place)
        room -= size
    return filled


def bucket_by_bucket(
    divided: Buckets, tensors: Sequence[tf.Tensor], collective: Collective
) -> Iterator[tuple[int, tf.Tensor]]:
    """Run a collective on the tensors of one bucket after the other; yield the place and the result of each tensor.

    collective: called with the bucket's number and its tensors; it returns as many. The next bucket's is called when
    the results of the last one were taken, so that a caller that uses them at once holds those of one bucket only.
    """
    for number, places in enumerate(divided):
        yield from zip(places, collective(number, [tensors[place] for place in places]), strict=True)


def _depth(name: str) -> float:
    """Return how deep in the model a variable is: 0 for the embeddings, the layer's number, infinity for the heads."""
    if name.startswith("embeddings/"):
        return 0
    layer = re.match(r"layer_(\d+)/", name)
    return int(layer[1]) + 1 if layer else float("inf")
