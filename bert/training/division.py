"""Variables that are divided over ranks: each rank holds a piece, and no rank holds the whole.

With tensor parallelism the ranks of a group hold the parts of a variable (`bert.model.model_shard`). With a sharded
optimizer the replicas of a part hold rows of its moments. Each rank writes its pieces into the checkpoint, which then
has whole variables: any number of ranks, in any layout, reads it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.core import files
from bert.core.errors import IntegrityError, UserError
from bert.model.model_shard import share
from bert.model.weights import axis_of
from bert.training.communicator import Communicator


class Bundle(NamedTuple):
    """The files of a checkpoint's variables, as a rank sees them."""

    prefix: str
    sizes: dict[str, int]
    """bytes of the files, by name"""
    digest: str
    """SHA-256 of the index, which has a checksum of each variable"""


def bundle(prefix: Path) -> Bundle | None:
    """Return the files of the checkpoint under this prefix; None if there are none."""
    try:
        sizes = {path.name: path.stat().st_size for path in prefix.parent.glob(f"{prefix.name}.*")}
        return Bundle(str(prefix), sizes, files.sha256(prefix.with_name(f"{prefix.name}.index")))
    except OSError:
        return None


class DividedVariable:
    """This rank's piece of a variable. It can be assigned from the whole variable."""

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
        """Make zeros for this rank's piece, unless `local` is that piece. shape: of the whole variable.

        axis: along which the ranks of a group divide the variable; None: they do not. rows: whether the replicas divide
        the rows of their part.
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
        self.stored: Bundle | None = None
        """where the value that this rank was assigned is, if it is known"""

    def _cut(self, axis: int, comm: Communicator) -> None:
        first, last = self._bounds[axis]
        begin, end = share(last - first, comm.rank, comm.size)
        self._bounds[axis] = first + begin, first + end

    @property
    def place(self) -> str:
        """Return where this piece is in the whole variable, in the format of TensorFlow's `SaveV2`: "10 4 0,5:0,4"."""
        sizes = " ".join(map(str, self.shape))
        return f"{sizes} {':'.join(f'{first},{last - first}' for first, last in self._bounds)}"

    @property
    def assigned(self) -> bool:
        """Return whether this rank was assigned a value that `synchronise` has not distributed yet."""
        return self._read is not None

    def assign_later(self, read: Callable[[], np.ndarray], stored: Bundle | None = None) -> None:
        """Keep the function that reads the whole variable, on rank 0, until `synchronise` reads one variable at a time.

        stored: the checkpoint that has the value; ranks that see it read their pieces themselves.
        """
        self._read, self.stored = read, stored

    def read_piece(self, stored: Bundle) -> None:
        """Read this rank's piece only, from a checkpoint."""
        if all(self.local.shape):
            with tf.device("CPU:0"):
                [piece] = tf.raw_ops.RestoreV2(
                    prefix=stored.prefix,
                    tensor_names=[self.name],
                    shape_and_slices=[self.place],
                    dtypes=[self.dtype],
                )
            self.local.assign(piece)
        self._read = None

    def distribute(self) -> None:
        """Assign each rank its piece of the value that rank 0 was assigned. All ranks must call this."""
        whole = self._comm.broadcast(tf.zeros(self.shape) if self._read is None else tf.constant(self._read()))
        self.local.assign(whole[tuple(slice(first, last) for first, last in self._bounds)])
        self._read = None


State = dict[str, tf.Variable]  # by name; a value may also be a DividedVariable


class Piece(NamedTuple):
    """What a rank saves of a variable: the values, and their place in the whole; "" if they are the whole."""

    values: tf.Tensor
    place: str = ""


def divided_weights(weights: Mapping[str, tf.Variable], comm: Communicator) -> State:
    """Return the weights, by name, as they are saved: if this rank has only a part, as divided variable."""
    shapes = comm.parts.whole_shapes
    return {
        name: DividedVariable(name, shapes[name], comm, axis=axis_of(name), local=weight) if name in shapes else weight
        for name, weight in weights.items()
    }


def synchronise(state: State, comm: Communicator) -> None:
    """Give every rank the values that rank 0 has or was assigned.

    A divided variable without an assigned value keeps its values, which are equal on all ranks that have the same
    piece. If all ranks see the checkpoint of the assigned values, each reads its pieces. Otherwise rank 0 reads and
    sends whole variables. Raise IntegrityError if a piece cannot be read, UserError if another rank cannot read its
    pieces.
    """
    divided = {name: variable for name, variable in state.items() if isinstance(variable, DividedVariable)}
    comm.broadcast_variables([variable for name, variable in state.items() if name not in divided])
    assigned = {name: variable.stored for name, variable in divided.items() if variable.assigned}
    of_one = len({id(stored) for stored in assigned.values()}) == 1
    names, stored = comm.broadcast_object((list(assigned), next(iter(assigned.values())) if of_one else None))
    if names and _all(stored is not None and bundle(Path(stored.prefix)) == stored, comm):
        _read_pieces([divided[name] for name in names], stored, comm)
    else:
        for name in names:
            divided[name].distribute()


def _all(mine: bool, comm: Communicator) -> bool:
    """Return whether `mine` is true on all ranks."""
    return bool(comm.all_reduce([tf.constant(float(mine))])[0] == comm.size)


def _read_pieces(variables: Sequence[DividedVariable], stored: Bundle, comm: Communicator) -> None:
    error: IntegrityError | None = None
    try:
        for variable in variables:
            variable.read_piece(stored)
    except tf.errors.OpError as cause:
        error = IntegrityError(f"{stored.prefix}: {variable.name} cannot be read ({cause.message}); check the disk")
    if not _all(error is None, comm):
        raise error or UserError(f"rank {comm.rank}: another rank could not read its pieces; see its message")


def is_divided(state: State) -> bool:
    """Return whether the state has a divided variable."""
    return any(isinstance(variable, DividedVariable) for variable in state.values())


def own_pieces(state: State, comm: Communicator) -> dict[str, Piece]:
    """Return what this rank saves: its pieces of divided variables; on rank 0 also all whole variables.

    The values are in host memory. On a CPU they share the memory of the variables. If a variable changes while its
    values are held, they stay as they are, and the variable gets new memory.
    """
    pieces = {}
    with tf.device("CPU:0"):
        for name, variable in state.items():
            if isinstance(variable, DividedVariable):
                if variable.is_saved_here:
                    pieces[name] = Piece(tf.identity(variable.local), variable.place)
            elif comm.rank == 0:
                pieces[name] = Piece(tf.identity(variable))
    return pieces
