"""Variables whose rows are divided over the ranks: each rank holds some rows, and no rank holds them all.

The optimizer's moments are divided so if `parallel.shard_optimizer` is given. Checkpoints hold whole variables: they
are gathered variable by variable when they are saved, and divided anew when they are read, by any number of ranks.
"""

import numpy as np
import tensorflow as tf

from bert.training.distributed import Communicator


def rows(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first row of `rank` among `count` rows, and the row after its last.

    The first ranks have one row more if `size` does not divide `count`, as Horovod's reduce-scatter gives it to them.
    """
    share, rest = divmod(count, size)
    first = rank * share + min(rank, rest)
    return first, first + share + (rank < rest)


class DividedVariable:
    """The rows of this rank, as a variable, with the means to gather and to assign the whole."""

    def __init__(self, name: str, shape: tf.TensorShape, comm: Communicator) -> None:
        """Make zeros for the rows of this rank. shape: of the whole, of rank 1 or more."""
        self.name, self.shape, self.dtype, self._comm = name, shape, tf.float32, comm
        self.first, self.last = rows(shape[0], comm.rank, comm.size)
        self.local = tf.Variable(tf.zeros([self.last - self.first, *shape[1:]]), name=name, trainable=False)
        self._whole: np.ndarray | None = None

    def gather(self) -> np.ndarray:
        """Return the whole, in the memory of the host. All ranks must call it."""
        [whole] = self._comm.all_gather([self.local])
        return whole.numpy()

    def assign(self, whole: np.ndarray) -> None:
        """Keep the whole on rank 0 until `distribute` is called."""
        self._whole = whole

    def distribute(self) -> None:
        """Give every rank its rows of what rank 0 was assigned. All ranks must call it."""
        whole = self._comm.broadcast(tf.zeros(self.shape) if self._whole is None else tf.constant(self._whole))
        self.local.assign(whole[self.first : self.last])
        self._whole = None


State = dict[str, tf.Variable]  # by name; a value may also be a DividedVariable


def synchronise(state: State, comm: Communicator) -> None:
    """Give every rank the values that rank 0 was assigned."""
    comm.broadcast_variables([variable for variable in state.values() if not isinstance(variable, DividedVariable)])
    for variable in state.values():
        if isinstance(variable, DividedVariable):
            variable.distribute()


def copies(state: State, keep: bool = True) -> dict[str, tf.Tensor | np.ndarray]:
    """Return copies of all variables, whole; an empty dictionary unless `keep`.

    All ranks must call it, because divided variables are gathered, one at a time.
    """
    values = {}
    for name, variable in state.items():
        if isinstance(variable, DividedVariable):
            value = variable.gather()
        elif keep:
            value = tf.identity(variable)
        if keep:
            values[name] = value
    return values
