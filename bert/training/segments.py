"""A backward pass in segments: the gradients of one can travel while those of the next are computed (overlap.py).

TensorFlow runs what is ready in an order of its own. It often follows the gradients of the states down to the first
layer before it computes or stores those of weights, and then nothing can travel before the pass ends. So the pass is
divided at states between layers, and a segment waits until the gradients of the one before it are stored.

With XLA each segment is a program of its own in the forward pass, and another one in the backward pass. The second one
computes the segment again from the state before it: TensorFlow would otherwise write to memory all that lies between
the operations of the first one, copies of the weights among them, which XLA never does within a program.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert.hardware import graphs
from bert.model.weights import depth

Gradients = dict[str, tf.Tensor | tf.IndexedSlices | None]  # by name; None: the loss does not depend on the weight
Store = Callable[[Gradients], list[tf.Tensor]]  # called with gradients; returns what the next segment waits for
Pass = Callable[[tf.Tensor | None], tuple[Gradients, tf.Tensor | None]]  # upstream gradient -> gradients, and the next


class Segment(NamedTuple):
    """A part of the forward pass: it computes `target` from `source` and the weights of these names."""

    target: tf.Tensor
    source: tf.Tensor | None  # None: the first segment, which reads the batch
    names: list[str]


class Boundaries:
    """The states that divide a forward pass, which a persistent tape records, into segments."""

    def __init__(self, tape: tf.GradientTape) -> None:
        self._tape, self._states = tape, list[tuple[tf.Tensor, tf.Tensor]]()

    def add(self, x: tf.Tensor) -> tf.Tensor:
        """End a segment at the state x; return x as the source of the next segment."""
        source = tf.stop_gradient(x)
        self._tape.watch(source)
        self._states.append((x, source))
        return source

    def segments(self, loss: tf.Tensor, names: Sequence[str], first_layers: Sequence[int]) -> list[Segment]:
        """Return the segments of the backward pass, as in `names_of_segments`."""
        targets = [loss, *(target for target, _ in reversed(self._states))]
        sources = [*(source for _, source in reversed(self._states)), None]
        of_segments = names_of_segments(names, first_layers)
        return [Segment(*segment) for segment in zip(targets, sources, of_segments, strict=True)]

    def backward(self, segments: Sequence[Segment], weights: dict[str, tf.Variable], store: Store) -> None:
        """Run the backward pass of the segments, as `in_order` does."""

        def run(segment: Segment, upstream: tf.Tensor | None) -> tuple[Gradients, tf.Tensor | None]:
            sources = [weights[name] for name in segment.names]
            if segment.source is not None:
                sources.append(segment.source)
            gradients = self._tape.gradient(segment.target, sources, output_gradients=upstream)
            upstream = gradients.pop() if segment.source is not None else None
            return dict(zip(segment.names, gradients, strict=True)), upstream

        in_order([functools.partial(run, segment) for segment in segments], store)


class Programs:
    """Segments that XLA compiles: the forward and the backward pass of each segment are separate programs."""

    def __init__(self, weights: dict[str, tf.Variable], first_layers: Sequence[int]) -> None:
        self._weights, self._passes = weights, list[Pass]()
        self._names = names_of_segments(list(weights), first_layers)  # of the segments that have not run

    def run(self, function: Callable[..., tf.Tensor], *x: tf.Tensor) -> tf.Tensor:
        """Return function(*x), for the next segment.

        Call this for the embeddings, without x, then for each group of layers, with the state before it. The function
        is traced twice, and must compute the same both times.
        """
        names = self._names.pop()

        @graphs.function(jit_compile=True)
        def gradients(x: Sequence[tf.Tensor], upstream: tf.Tensor) -> tuple[Gradients, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(*x)
            return self._gradients(tape, y, names, x, upstream)

        def run(upstream: tf.Tensor | None) -> tuple[Gradients, tf.Tensor | None]:
            by_weights, by_x = gradients(x, upstream) if x or names else ({}, [])
            return by_weights, by_x[0] if x else None

        self._passes.append(run)
        return graphs.function(function, jit_compile=True)(*x)

    def run_heads(
        self, function: Callable[[tf.Tensor], tuple[dict[str, tf.Tensor], tf.Tensor]], x: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the measures of function(x) = (measures, loss). The same program computes the loss's gradients."""
        names = self._names.pop()

        @graphs.function(jit_compile=True)
        def heads(x: tf.Tensor) -> tuple[dict[str, tf.Tensor], Gradients, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                measures, loss = function(x)
            return measures, *self._gradients(tape, loss, names, [x], None)

        measures, by_weights, [by_x] = heads(x)
        self._passes.append(lambda _: (by_weights, by_x))
        return measures

    def backward(self, store: Store) -> None:
        """Run the backward pass of the segments that have run, as `in_order` does."""
        in_order(reversed(self._passes), store)

    def _gradients(
        self,
        tape: tf.GradientTape,
        target: tf.Tensor,
        names: list[str],
        x: Sequence[tf.Tensor],
        upstream: tf.Tensor | None,
    ) -> tuple[Gradients, list[tf.Tensor]]:
        """Return the dense gradients of `target` by the weights of these names, and by x."""
        gradients = tape.gradient(target, [*(self._weights[name] for name in names), *x], output_gradients=upstream)
        dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        return dict(zip(names, dense, strict=False)), dense[len(names) :]


def names_of_segments(names: Sequence[str], first_layers: Sequence[int]) -> list[list[str]]:
    """Divide the names of weights into segments: heads, groups of layers from the last one on, embeddings.

    first_layers: first layer of each group, ascending. The segment of the heads also has the embeddings, because heads
    may be tied to them.
    """
    ends = [0, *(first + 1 for first in first_layers), float("inf")]  # depths at which the segments begin
    between = [[name for name in names if low <= depth(name) < high] for low, high in itertools.pairwise(ends)]
    heads = [name for name in names if depth(name) == float("inf")]
    return [[*between[0], *heads], *reversed(between)]


def in_order(passes: Iterable[Pass], store: Store) -> None:
    """Call `store` with the gradients of each segment. The next segment waits for what `store` returns.

    passes: the backward passes of the segments, beginning with the heads.
    """
    upstream: tf.Tensor | None = None
    tied: Gradients | None = None
    for run in passes:
        gradients, upstream = run(upstream)
        if tied is None:
            tied = {name: gradients.pop(name) for name in list(gradients) if depth(name) == 0}
        stored = store({name: _sum(tied.get(name), gradient) for name, gradient in gradients.items()})
        if upstream is not None:
            with tf.control_dependencies(stored):
                upstream = tf.identity(upstream)


def _sum(first: tf.Tensor | None, second: tf.Tensor | None) -> tf.Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)
