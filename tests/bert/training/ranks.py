"""Several ranks in one process: each is a thread, and what they reduce or broadcast is exact."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert.core.errors import ResourceError, UserError
from bert.model.model_shard import Parts
from bert.training.communicator import Communicator


class Ranks(Communicator):
    """Some ranks of a process, which are threads: all of them, or a part of them."""

    def __init__(self, rank: int, size: int, meet: Callable[[Any], list[Any]] | None = None, tensor: int = 1) -> None:
        """meet: return what all ranks gave."""
        self.rank, self.size, self._tensor = rank, size, tensor
        self.meet = meet or (lambda value: [value])
        if tensor > 1:  # only the shapes of what is divided are used: no thread computes a model
            self.parts = Parts(rank % tensor, tensor, lambda tensor, name: tensor)

    @property
    def replicas(self) -> Communicator:
        def meet(value: Any) -> list[Any]:
            return self.meet(value)[self.rank % self._tensor :: self._tensor]

        return Ranks(self.rank // self._tensor, self.size // self._tensor, meet)

    @property
    def group(self) -> Communicator:
        return Ranks(self.rank % self._tensor, self._tensor)

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        return [tf.add_n(list(values)) for values in zip(*self.meet(list(tensors)), strict=True)]

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.concat(values, 0) for values in zip(*self.meet(list(tensors)), strict=True)]

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        return self.meet(value)[0]

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        for theirs, variable in zip(
            self.meet([tf.identity(variable) for variable in variables])[0], variables, strict=True
        ):
            variable.assign(theirs)

    def broadcast_object(self, value: Any) -> Any:
        return self.meet(value)[0]


def as_ranks(size: int, tensor: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Do the work on each rank; return what they returned, or the errors that they raised."""
    given: list[Any] = [None] * size
    results: list[Any] = [None] * size
    barrier = threading.Barrier(size, timeout=120)

    def run(rank: int) -> None:
        def meet(value: Any) -> list[Any]:
            given[rank] = value
            barrier.wait()
            values = list(given)
            barrier.wait()
            return values

        try:
            results[rank] = work(Ranks(rank, size, meet, tensor))
        except (ResourceError, UserError) as error:
            results[rank] = error
        except BaseException:
            barrier.abort()  # the others do not wait for this one
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
