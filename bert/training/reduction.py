"""The sums of gradients and measures over the ranks: together, bucket by bucket, or of each rank's rows."""

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from bert.training.buckets import Buckets, bucket_by_bucket
from bert.training.communicator import Communicator

Tensors = Sequence[tf.Tensor]


class Reducer(Protocol):
    """Sums gradients and scalars over the ranks."""

    def reduce(self, gradients: Tensors, scalars: Tensors) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return the sums of the gradients over the replicas, and of the scalars over all ranks."""


class Together:
    """Sum gradients and scalars in one collective."""

    def __init__(self, comm: Communicator, fp16: bool) -> None:
        """fp16: whether gradients are sent as float16."""
        self.comm, self.fp16 = comm, fp16

    def reduce(self, gradients: Tensors, scalars: Tensors) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """See `Reducer`."""
        sums = self.comm.all_reduce([*gradients, *scalars], len(gradients) if self.fp16 else 0)
        return sums[: len(gradients)], sums[len(gradients) :]


class ByBuckets:
    """Sum the gradients bucket after bucket, then the scalars."""

    def __init__(self, comm: Communicator, fp16: bool, buckets: Buckets) -> None:
        self.comm, self.fp16, self.buckets = comm, fp16, buckets

    def reduce(self, gradients: Tensors, scalars: Tensors) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """See `Reducer`."""
        sums = dict(bucket_by_bucket(self.buckets, gradients, lambda _, tensors: self.sum(tensors)))
        return [sums[place] for place in range(len(gradients))], self.comm.all_reduce(scalars)

    def sum(self, bucket: Tensors) -> list[tf.Tensor]:
        """Return the sums over the replicas of a bucket's gradients."""
        return self.comm.replicas.all_reduce(bucket, len(bucket) if self.fp16 else 0)

    def sum_in_graph(self, bucket: Tensors, number: int, scatter: bool = False) -> list[tf.Tensor]:
        """Do the same as `sum`, in a graph. The collective starts when all gradients of the bucket are computed."""
        return self.comm.replicas.reduce_in_graph(bucket, f"bucket_{number}", fp16=self.fp16, scatter=scatter)


class Sharded(ByBuckets):
    """Sum the gradients bucket by bucket; each rank gets its rows of the sums."""

    def sum(self, bucket: Tensors) -> list[tf.Tensor]:
        """Return this rank's rows of the sums of a bucket's gradients."""
        return self.comm.replicas.reduce_scatter(bucket, fp16=self.fp16)

    def sum_in_graph(self, bucket: Tensors, number: int, scatter: bool = True) -> list[tf.Tensor]:
        """Do the same as `sum`, in a graph."""
        return super().sum_in_graph(bucket, number, scatter)
