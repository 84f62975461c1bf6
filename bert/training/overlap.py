"""A backward pass in segments: the gradients of one can travel while those of the next are computed.

TensorFlow runs what is ready in an order of its own. It often follows the gradients of the states down to the first
layer before it computes or stores those of weights, and then nothing can travel before the pass ends. So the pass is
divided at states between layers, and a segment waits until the gradients of the one before it are stored.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.training.buckets import depth

Gradients = dict[str, tf.Tensor | tf.IndexedSlices | None]  # by name; None: the loss does not depend on the weight


class Segment(NamedTuple):
    """A part of the forward pass: `target` is computed from `source` and the weights of these names."""

    target: tf.Tensor
    source: tf.Tensor | None  # None: the first segment, which reads the batch
    names: list[str]


class Boundaries:
    """The states at which a forward pass, recorded by a persistent tape, is divided."""

    def __init__(self, tape: tf.GradientTape) -> None:
        self._tape, self._states = tape, list[tuple[tf.Tensor, tf.Tensor]]()

    def add(self, x: tf.Tensor) -> tf.Tensor:
        """Return x as the source of what follows."""
        source = tf.stop_gradient(x)
        self._tape.watch(source)
        self._states.append((x, source))
        return source

    def segments(self, loss: tf.Tensor, names: Sequence[str], first_layers: Sequence[int]) -> list[Segment]:
        """Return the segments of the backward pass: heads, groups of layers from the last one on, embeddings.

        first_layers: of each group, ascending. The heads' segment has the embeddings too, because heads may be tied to
        them.
        """
        ends = [0, *(first + 1 for first in first_layers), float("inf")]  # depths at which the segments begin
        between = [[name for name in names if low <= depth(name) < high] for low, high in itertools.pairwise(ends)]
        heads = [name for name in names if depth(name) == float("inf")]
        targets = [loss, *(target for target, _ in reversed(self._states))]
        sources = [*(source for _, source in reversed(self._states)), None]
        found = [[*between[0], *heads], *reversed(between)]
        return [Segment(*segment) for segment in zip(targets, sources, found, strict=True)]

    def backward(
        self,
        segments: Sequence[Segment],
        weights: dict[str, tf.Variable],
        store: Callable[[Gradients], list[tf.Tensor]],
    ) -> None:
        """Call `store` with the gradients that each segment completes; the next one waits for what it returns."""
        upstream: tf.Tensor | None = None
        tied: Gradients = {}
        for segment in segments:
            sources = [weights[name] for name in segment.names]
            if segment.source is not None:
                sources.append(segment.source)
            found = self._tape.gradient(segment.target, sources, output_gradients=upstream)
            upstream = found.pop() if segment.source is not None else None
            gradients = dict(zip(segment.names, found, strict=True))
            if segment is segments[0]:
                tied = {name: gradients.pop(name) for name in segment.names if depth(name) == 0}
            stored = store({name: _sum(tied.get(name), gradient) for name, gradient in gradients.items()})
            if upstream is not None:
                with tf.control_dependencies(stored):
                    upstream = tf.identity(upstream)


def _sum(first: tf.Tensor | None, second: tf.Tensor | None) -> tf.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)
