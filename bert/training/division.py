"""Variables that are divided over ranks: each rank holds a piece, and no rank holds the whole.

With tensor parallelism the ranks of a group hold the parts of a variable (`bert.model.parts`). With a sharded optimizer
the replicas of a part hold rows of its moments. Checkpoints hold whole variables: they are gathered variable by
variable when they are saved, and divided anew when they are read, by any number of ranks in any layout.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.model.parts import axis_of, share
from bert.training.distributed import Communicator


class Cut(NamedTuple):
    """A division along an axis over the ranks of a communicator."""

    axis: int
    comm: Communicator

    def take(self, value: tf.Tensor) -> tf.Tensor:
        """Return this rank's piece of a value."""
        first, last = share(value.shape[self.axis], self.comm.rank, self.comm.size)
        return value[first:last] if self.axis == 0 else value[:, first:last]

    def join(self, piece: tf.Tensor) -> tf.Tensor:
        """Return the value from the pieces of all ranks. All of them must call it."""
        if self.axis == 0:
            return self.comm.all_gather([piece])[0]
        return tf.transpose(self.comm.all_gather([tf.transpose(piece)])[0])


class DividedVariable:
    """This rank's piece of a variable, with the means to gather and to assign the whole."""

    def __init__(
        self,
        name: str,
        shape: tf.TensorShape,
        comm: Communicator,
        *,
        axis: int | None = None,
        rows: bool = False,
        local: tf.Variable | None = None,
    ) -> None:
        """Make zeros for this rank's piece, unless `local` is that piece. shape: of the whole, of rank 1 or 2.

        axis: along which the ranks of a group have the parts, if they do. rows: whether the replicas of a part divide
        its rows among them.
        """
        self.name, self.shape, self.dtype, self._comm = name, shape, tf.float32, comm
        self._cuts = [] if axis is None else [Cut(axis % shape.rank, comm.group)]
        part = list(shape)
        for cut in self._cuts:
            first, last = share(part[cut.axis], cut.comm.rank, cut.comm.size)
            part[cut.axis] = last - first
        number, count = (comm.replicas.rank, comm.replicas.size) if rows else (0, 1)
        self.first, self.last = share(part[0], number, count)
        if rows:
            self._cuts.append(Cut(0, comm.replicas))
        zeros = tf.zeros([self.last - self.first, *part[1:]])
        self.local = tf.Variable(zeros, name=name, trainable=False) if local is None else local
        self._whole: np.ndarray | None = None

    @property
    def assigned(self) -> bool:
        """Return whether this rank was assigned a value that it has not distributed."""
        return self._whole is not None

    def gather(self) -> np.ndarray:
        """Return the whole, in the memory of the host. All ranks must call it."""
        value = tf.convert_to_tensor(self.local)
        for cut in reversed(self._cuts):
            value = cut.join(value)
        return value.numpy()

    def assign(self, whole: np.ndarray) -> None:
        """Keep the whole on rank 0 until `distribute` is called."""
        self._whole = whole

    def distribute(self) -> None:
        """Give every rank its piece of what rank 0 was assigned. All ranks must call it."""
        value = self._comm.broadcast(tf.zeros(self.shape) if self._whole is None else tf.constant(self._whole))
        for cut in self._cuts:
            value = cut.take(value)
        self.local.assign(value)
        self._whole = None


State = dict[str, tf.Variable]  # by name; a value may also be a DividedVariable


def divided_weights(weights: Mapping[str, tf.Variable], comm: Communicator) -> State:
    """Return the weights, by name, as they are saved: those of which this rank has a part as divided variables."""
    shapes = comm.parts.whole_shapes
    return {
        name: DividedVariable(name, shapes[name], comm, axis=axis_of(name), local=weight) if name in shapes else weight
        for name, weight in weights.items()
    }


def synchronise(state: State, comm: Communicator) -> None:
    """Give every rank the values that rank 0 has or was assigned.

    Divided variables that it was not assigned keep their values, which are equal on all ranks that have the same piece.
    """
    divided = {name: variable for name, variable in state.items() if isinstance(variable, DividedVariable)}
    comm.broadcast_variables([variable for name, variable in state.items() if name not in divided])
    for name in comm.broadcast_object([name for name, variable in divided.items() if variable.assigned]):
        divided[name].distribute()


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
