"""Variables that are divided over ranks: each rank holds a piece, and no rank holds the whole.

With tensor parallelism the ranks of a group hold the parts of a variable (`bert.model.parts`). With a sharded optimizer
the replicas of a part hold rows of its moments. Each rank writes its pieces into the checkpoint, which then has whole
variables: any number of ranks, in any layout, reads it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.model.parts import axis_of, share
from bert.training.distributed import Communicator


class DividedVariable:
    """This rank's piece of a variable, with the means to assign the whole."""

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
        """Make zeros for this rank's piece, unless `local` is that piece. shape: of the whole.

        axis: along which the ranks of a group have the parts, if they do. rows: whether the replicas of a part divide
        its rows among them.
        """
        self.name, self.shape, self.dtype, self._comm = name, shape, tf.float32, comm
        self._bounds = [(0, size) for size in shape]  # along each axis: the first element of the piece, and the end
        if axis is not None:
            self._cut(axis % shape.rank, comm.group)
        part = self._bounds[0]
        if rows:
            self._cut(0, comm.replicas)
        self.first, self.last = (row - part[0] for row in self._bounds[0])  # rows of the part that this rank has
        sizes = [last - first for first, last in self._bounds]
        self.local = tf.Variable(tf.zeros(sizes), name=name, trainable=False) if local is None else local
        # Of ranks that have the same piece the first one saves it. TensorFlow saves no empty pieces.
        is_first = (rows or comm.replicas.rank == 0) and (axis is not None or comm.group.rank == 0)
        self.is_saved_here = is_first and all(sizes)
        self._read: Callable[[], np.ndarray] | None = None

    def _cut(self, axis: int, comm: Communicator) -> None:
        first, last = self._bounds[axis]
        begin, end = share(last - first, comm.rank, comm.size)
        self._bounds[axis] = first + begin, first + end

    @property
    def place(self) -> str:
        """Return where in the whole this piece is, as TensorFlow's `SaveV2` wants it: "10 4 0,5:0,4"."""
        sizes = " ".join(map(str, self.shape))
        return f"{sizes} {':'.join(f'{first},{last - first}' for first, last in self._bounds)}"

    @property
    def assigned(self) -> bool:
        """Return whether this rank was assigned a value that it has not distributed."""
        return self._read is not None

    def assign_later(self, read: Callable[[], np.ndarray]) -> None:
        """Keep what reads the whole, on rank 0, until `distribute` is called: one variable is read at a time."""
        self._read = read

    def distribute(self) -> None:
        """Give every rank its piece of what rank 0 was assigned. All ranks must call it."""
        whole = self._comm.broadcast(tf.zeros(self.shape) if self._read is None else tf.constant(self._read()))
        self.local.assign(whole[tuple(slice(first, last) for first, last in self._bounds)])
        self._read = None


State = dict[str, tf.Variable]  # by name; a value may also be a DividedVariable


class Piece(NamedTuple):
    """What a rank writes of a variable: values, and where in the whole they are, empty if they are the whole."""

    values: tf.Tensor
    place: str = ""


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


def is_divided(state: State) -> bool:
    """Return whether the state has a variable of which no rank has the whole."""
    return any(isinstance(variable, DividedVariable) for variable in state.values())


def own_pieces(state: State, comm: Communicator) -> dict[str, Piece]:
    """Return copies of what this rank writes: its pieces of divided variables; on rank 0 also all whole variables."""
    pieces = {}
    for name, variable in state.items():
        if isinstance(variable, DividedVariable):
            if variable.is_saved_here:
                pieces[name] = Piece(tf.identity(variable.local), variable.place)
        elif comm.rank == 0:
            pieces[name] = Piece(tf.identity(variable))
    return pieces
