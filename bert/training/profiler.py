"""A look into a few updates: what TensorFlow computed on rank 0, and what Horovod did on all ranks."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert.config import RunConfig
from bert.training.distributed import Communicator

UPDATES = 5


class Profiler:
    """Profiles `UPDATES` updates from `run.profile` on, fewer where the run ends before.

    TensorFlow's trace goes into the run's `events/`, for TensorBoard, Horovod's into `timeline.json`, for
    chrome://tracing or ui.perfetto.dev.
    """

    def __init__(self, run: RunConfig, comm: Communicator) -> None:
        self.first, self.directory, self.comm = run.profile, run.directory, comm
        self._on = False

    @contextlib.contextmanager
    def update(self, step: int) -> Iterator[None]:
        """The block is update number `step`."""
        if self.first and step == self.first:
            self._start()
        with tf.profiler.experimental.Trace("update", step_num=step) if self._on else contextlib.nullcontext():
            yield
        if step == self.first + UPDATES - 1:
            self.close()

    def _start(self) -> None:
        self._on = True
        self.comm.start_timeline(self.directory / "timeline.json")
        if self.comm.rank == 0:
            tf.profiler.experimental.start(str(self.directory / "events"))

    def close(self) -> None:
        """Writes down what was seen, if profiling goes on."""
        if not self._on:
            return
        self._on = False
        self.comm.stop_timeline()
        if self.comm.rank == 0:
            tf.profiler.experimental.stop()
