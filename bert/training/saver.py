"""The checkpoints of a run, written in the background while it trains.

The values are those at the time of the save. On a GPU they are copied to host memory. On a CPU nothing is copied: the
next update waits with its changes until a large checkpoint is written.

If ranks have pieces of the variables, each rank writes its own. When all have, which they learn with the sums of an
update, rank 0 joins the pieces to one checkpoint.
"""

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert.core.errors import UserError
from bert.training import checkpoint, description
from bert.training.communicator import Communicator
from bert.training.division import State, is_divided, own_pieces

SMALL = 256 << 20  # bytes that may be in memory twice, so that no update waits for a small checkpoint


class Saver:
    """Write a run's checkpoints in a background thread, one at a time, with the values at the time of the save."""

    def __init__(self, run: Path, keep: int, keep_every: int, comm: Communicator) -> None:
        """Keep the newest `keep` checkpoints and, if `keep_every` is not 0, those whose step is a multiple of it."""
        self.run, self.keep, self.keep_every, self.comm = run, keep, keep_every, comm
        self.description: description.Hashes | None = None
        """hashes of the files that describe the run; None: of what they are at each save"""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Any] | None = None
        self._join: Callable[[], Path] | None = None  # while ranks write their pieces: what rank 0 does after that
        self._released: threading.Event | None = None  # is set when the values of the last save are not held any more

    def save(self, step: int, state: State) -> None:
        """Start to write the checkpoint of `step`. All ranks must call this. Raise what `wait` raises."""
        self.wait()
        pieces, run = own_pieces(state, self.comm), self.run
        places = {name: piece.place for name, piece in pieces.items()}
        values = {name: piece.values for name, piece in pieces.items()}
        del pieces
        if is_divided(state):
            writers = int(self.comm.all_reduce([tf.constant(float(bool(values)))])[0])
            self._join = functools.partial(checkpoint.join, run, step, writers, len(state), **self._settings())
            write = functools.partial(checkpoint.write_part, run, step, self.comm.rank, places=places)
            self._writing = self._start(write, values) if values else self._thread.submit(lambda: None)
        elif self.comm.rank == 0:
            self._writing = self._start(functools.partial(checkpoint.save, run, step, **self._settings()), values)

    def _start(self, write: Callable[..., Any], values: dict[str, tf.Tensor]) -> Future[Any]:
        """Start to write the values. Empty `values` when they are written."""
        self._released = released = threading.Event()
        size = sum(value.dtype.size * value.shape.num_elements() for value in values.values())
        if self.comm.device.is_gpu or size <= SMALL:
            released.set()  # they are copies in host memory, or few

        def release() -> None:
            values.clear()
            released.set()

        writing = self._thread.submit(write, values, release=release)
        writing.add_done_callback(lambda _: release())  # it may have failed
        return writing

    def _settings(self) -> dict[str, Any]:
        return {"keep": self.keep, "keep_every": self.keep_every, "described": self.description}

    def release(self) -> None:
        """Wait until variables can change without a second copy of the values that are being written.

        Values that are held are never overwritten: a change gives the variable new memory. Without this wait, a large
        state would be in memory twice.
        """
        if self._released is not None:
            self._released.wait()

    def has_written_pieces(self) -> bool:
        """Return whether this rank's pieces of a checkpoint are on the disk and not joined yet.

        Raise ResourceError if there was no space for them.
        """
        if self._join is None or self._writing is None or not self._writing.done():
            return False
        self._writing.result()
        return True

    def join(self, ranks: float) -> None:
        """Start to join the pieces on rank 0 if `ranks`, the number of ranks that have written theirs, is all ranks.

        All ranks must call this.
        """
        if self._join is not None and ranks == self.comm.size:
            join, self._join = self._join, None
            self._writing = self._thread.submit(join) if self.comm.rank == 0 else None

    def wait(self) -> None:
        """Wait until the checkpoint is on the disk; on ranks other than 0, until their pieces are.

        All ranks must call this. Raise ResourceError if there was no space, UserError if another rank could not write
        its pieces.
        """
        if self._join is not None and self._writing is not None:
            error = self._writing.exception()
            written = self.comm.all_reduce([tf.constant(float(error is None))])[0]
            if error is None and written < self.comm.size:
                raise UserError(f"rank {self.comm.rank}: another rank could not write its pieces; see its message")
            if error is None:
                self.join(float(written))
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
