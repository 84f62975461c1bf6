"""Profile a few updates: TensorFlow's operations on rank 0, and Horovod's on all ranks."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from bert.core.config import RunConfig
from bert.training.communicator import Communicator

UPDATES = 5


def never(run: RunConfig) -> str:
    """Return one line if `run.profile` is after the last update, else ""."""
    if run.profile <= run.steps:
        return ""
    return f"run.profile {run.profile} profiles nothing, as the run ends after update {run.steps}"


class Profiler:
    """Profile `UPDATES` updates from `run.profile` on, or fewer if the run ends earlier.

    TensorFlow's trace is written to the run's `events/`, for TensorBoard. Horovod's trace is written to
    `timeline.json`, for chrome://tracing or ui.perfetto.dev.
    """

    def __init__(self, run: RunConfig, comm: Communicator) -> None:
        self.first, self.directory, self.comm = run.profile, run.path, comm
        self._on = False

    @contextlib.contextmanager
    def update(self, step: int) -> Iterator[None]:
        """Profile the block if update number `step`, which it makes, is to be profiled."""
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
        """Write the profile if profiling is on."""
        if not self._on:
            return
        self._on = False
        self.comm.stop_timeline()
        if self.comm.rank == 0:
            tf.profiler.experimental.stop()
