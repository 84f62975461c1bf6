"""Buckets of gradients: one collective sums a bucket over the ranks.

Buckets are in the order in which the backward pass completes them: it begins with the heads and ends with the
embeddings. So the gradients of the last layers can travel while those of the first ones are still computed (Li et al.
2020, "PyTorch Distributed").
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from bert.core.config import ParallelConfig
from bert.model.weights import depth

Buckets = Sequence[Sequence[int]]  # the places, among all gradients or weights, of those in each bucket
Collective = Callable[[int, list[tf.Tensor]], Sequence[tf.Tensor]]


def buckets(sizes: Mapping[str, int], limit: float) -> list[list[int]]:
    """Divide gradients into buckets of at most `limit` bytes; a larger gradient has a separate bucket.

    A layer is divided only if it is larger than a bucket. sizes: bytes of each gradient, by the variable's name.
    Return, for each bucket, the places in `sizes` of its gradients.
    """
    names = list(sizes)
    order = sorted(range(len(names)), key=lambda place: -depth(names[place]))
    filled: list[list[int]] = []
    room = 0.0
    for _, group in itertools.groupby(order, key=lambda place: depth(names[place])):
        layer = list(group)
        together = sum(sizes[names[place]] for place in layer)
        if together > room:
            room = 0.0
        for place in layer:
            size = sizes[names[place]]
            if not filled or size > room:
                filled.append([])
                room = limit
            filled[-1].append(place)
            room -= size
    return filled


def of_weights(weights: Mapping[str, tf.Variable], parallel: ParallelConfig) -> list[list[int]]:
    """Return, for each bucket, the places in `weights` of the weights whose gradients are in it."""
    sizes = {name: 4 * weight.shape.num_elements() for name, weight in weights.items()}
    return buckets(sizes, parallel.bucket_bytes(sum(sizes.values())))


def first_layers(names: Sequence[str], divided: Buckets) -> tuple[int, ...]:
    """Return the layers at which the backward pass completes a bucket, ascending; the first one is always 0."""
    ends = (min(depth(names[place]) for place in bucket) for bucket in divided)
    return tuple(sorted({0} | {int(end) - 1 for end in ends if 0 < end < float("inf")}))


def bucket_by_bucket(
    divided: Buckets, tensors: Sequence[tf.Tensor], collective: Collective
) -> Iterator[tuple[int, tf.Tensor]]:
    """Run a collective on one bucket after the other; yield the place and the result of each tensor.

    collective: called with the bucket's number and its tensors; it returns one result for each tensor. It runs for the
    next bucket only when the caller has taken all results of the last one. So a caller that uses results at once holds
    the results of one bucket only.
    """
    for number, places in enumerate(divided):
        yield from zip(places, collective(number, [tensors[place] for place in places]), strict=True)
