"""Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM"): each device of a group computes a part of every layer.

The attention heads, the feed-forward width and the vocabulary are divided; everything else is the same on all devices
of the group. A layer has two sums over the group in its forward pass and two in its backward pass:

    y = summed(f(copied(x)))        f: this device's heads, or its columns and rows of the feed-forward kernels

`identity_with_summed_gradient` and `all_reduce_forward`, a sum whose gradient is the identity, work on the group. The
paper calls them f and g. Both are exact, so that the gradients of what is not divided are equal on all devices, but for
those matrices of low-rank updates that are not (added.py).

Sums travel in float32: Horovod knows no bfloat16, and float16 may not hold them.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.model.weights import axis_of

AllReduce = Callable[[tf.Tensor, str], tf.Tensor]


class Parts:
    """This device's part of the model, and the sums over the devices that hold the other parts.

    `whole_shapes` holds the whole shape of each divided variable, by name.
    """

    def __init__(self, number: int = 0, count: int = 1, all_reduce: AllReduce | None = None) -> None:
        """number: of this part, from 0. all_reduce: sums a float32 tensor over the group, in a graph, under a name."""
        assert count == 1 or all_reduce, "several parts need a sum"
        self.number, self.count, self._all_reduce = number, count, all_reduce
        self.whole_shapes: dict[str, tf.TensorShape] = {}

    def share(self, size: int) -> tuple[int, int]:
        """Return the first of this part's elements among `size`, and the one after its last."""
        return share(size, self.number, self.count)

    def heads(self, count: int) -> tuple[int, tuple[int, int] | None]:
        """Return how many of `count` attention heads this part has, and the argument `heads` for `DropoutRng.bits`."""
        first, last = self.share(count)
        return last - first, None if self.count == 1 else (first, count)

    def places(self, numbers: tf.Tensor, size: int) -> tf.Tensor:
        """Return the place in this part of each element, or -1 if another part has it.

        numbers: of the elements, among `size`.
        """
        first, last = self.share(size)
        return tf.where((numbers >= first) & (numbers < last), numbers - first, -1)

    def take(self, name: str, whole: tf.Tensor) -> tf.Tensor:
        """Return this part of a variable's initial value."""
        axis = axis_of(name)
        if self.count == 1 or axis is None:
            return whole
        self.whole_shapes[name] = whole.shape
        first, last = self.share(whole.shape[axis])
        # A slice of rows would be no copy: a variable made of it would keep the whole value in memory.
        return tf.gather(whole, tf.range(first, last), axis=axis)

    def identity_with_summed_gradient(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Return x; its gradient is summed over the parts. name: unique in the model, equal on all parts."""
        if self.count == 1:
            return x

        @tf.custom_gradient
        def differentiable(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return tf.identity(x), lambda upstream: self.sum(upstream, f"{name}/gradient")

        return differentiable(x)

    def all_reduce_forward(self, y: tf.Tensor, name: str) -> tf.Tensor:
        """Return the sum of y over the parts, in y's type. name: unique in the model, equal on all parts."""
        if self.count == 1:
            return y

        @tf.custom_gradient
        def differentiable(y: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            return self.sum(y, name), lambda upstream: upstream

        return differentiable(y)

    def sum(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Return the sum of x over the parts, in x's type, without gradient."""
        assert self._all_reduce
        return tf.cast(self._all_reduce(tf.cast(x, tf.float32), name), x.dtype)

    def gather(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Return x of every part [parts, ...] float32, without gradient. x: [...], of the same shape on all parts."""
        own = tf.one_hot(self.number, self.count)
        return self.sum(tf.tensordot(own, tf.cast(x, tf.float32), axes=0), name)


UNSHARDED = Parts()  # the whole model on one device


def share(size: int, number: int, count: int) -> tuple[int, int]:
    """Return the first element of share `number` among `size`, and the one after its last.

    The first shares have one element more if `count` does not divide `size`, as Horovod's reduce-scatter gives them.
    """
    each, rest = divmod(size, count)
    first = number * each + min(number, rest)
    return first, first + each + (number < rest)
