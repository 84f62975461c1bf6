"""Who else trains: rank, size, sums over ranks, broadcasts. The only module that imports Horovod.

A world of one needs no Horovod and runs the same code. Collectives act on tensors between compiled regions: Horovod's
operations cannot stand inside an XLA cluster.
"""

import contextlib
import http.client
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert.config import RunConfig
from bert.errors import UsageError, UserError
from bert.hardware import devices

GRACE = 5.0  # seconds in which ranks that waited for another have said so
LAUNCHERS = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


class Communicator:
    """A comm of one; the interface of every comm."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    device = devices.Device()

    def reducer(self) -> str | None:
        """What sums over the ranks: NCCL, MPI or Gloo; None in a world of one."""
        return None

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective; send the first `num_fp16` of them as float16."""
        return list(tensors)

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        """Gives every rank the values that rank 0 has."""

    def broadcast_object(self, value: Any) -> Any:
        """Rank 0's (picklable) value, on every rank."""
        return value

    def start_timeline(self, path: Path) -> None:
        """Begins to write what the collectives do, all ranks together; a world of one has none."""

    def stop_timeline(self) -> None:
        """Ends it."""

    def stalled_peers(self, seconds: float) -> str | None:
        """The ranks that this one has been waiting for so long, in words; None if it has not."""
        return None


class HorovodCommunicator(Communicator):
    """Many ranks, through Horovod."""

    def __init__(self, run: RunConfig) -> None:
        """After `run.stall_seconds` Horovod is to name the ranks that others wait for."""
        os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", f"{run.stall_seconds:.0f}")
        if run.profile:
            os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")  # one that can be started later
        self._waiting: float | None = None  # since when
        try:
            import horovod.tensorflow as hvd
        except ImportError as error:
            raise UsageError(f"several ranks need Horovod, which does not import ({error}); run make setup") from error
        hvd.init()
        if hvd.size() == 1:  # it knows its own launcher and, built with it, MPI; else every task would train alone
            raise UsageError(
                "several ranks were started, but Horovod sees one: it lacks MPI; start them with scripts/launch.sh"
            )
        self._hvd = hvd
        self._all_reduce = tf.function(lambda tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum))
        self._all_reduce_fp16 = tf.function(
            lambda tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum, compression=hvd.Compression.fp16)
        )
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def reducer(self) -> str | None:
        if self.device.is_gpu and self._hvd.nccl_built():
            return "NCCL"
        return "MPI" if self._hvd.mpi_enabled() else "Gloo"

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        given = [tf.convert_to_tensor(tensor) for tensor in tensors]
        with self._together():
            return [*(self._all_reduce_fp16(given[:num_fp16]) if num_fp16 else []), *self._all_reduce(given[num_fp16:])]

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        with self._together():
            self._hvd.broadcast_variables(list(variables), root_rank=0)

    def broadcast_object(self, value: Any) -> Any:
        with self._together():
            return self._hvd.broadcast_object(value, root_rank=0)

    def start_timeline(self, path: Path) -> None:
        self._hvd.start_timeline(str(path))

    def stop_timeline(self) -> None:
        self._hvd.stop_timeline()

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Raises UserError if a collective within the block fails."""
        self._waiting = time.monotonic()
        try:
            yield
        except tf.errors.UnknownError as error:  # Horovod's way to say that it has been shut down
            raise UserError(
                f"rank {self.rank}: another rank has ended, its own message says why; the same command resumes"
            ) from error
        finally:
            self._waiting = None

    def stalled_peers(self, seconds: float) -> str | None:
        since = self._waiting
        return None if since is None or time.monotonic() - since < seconds else self._absent()

    def _absent(self) -> str:
        """The ranks that do not say that they have waited, as this one does, on the board of horovodrun's server."""
        try:
            place = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
            board = http.client.HTTPConnection(*place, timeout=GRACE)
            _ask(board, "PUT", self.rank)
            time.sleep(GRACE if self.rank < 2 else 2 * GRACE)
            if self.rank > 1:  # two who look for the others, and end first, are not too many for the server
                return "another rank"
            absent = [str(rank) for rank in range(self.size) if _ask(board, "GET", rank) == http.client.NOT_FOUND]
        except (KeyError, OSError, http.client.HTTPException):
            absent = []  # there is none, with other launchers
        return f"rank {', '.join(absent)}" if absent else "another rank"


def _ask(board: http.client.HTTPConnection, method: str, rank: int) -> int:
    board.request(method, f"/waited/{rank}", body=b"yes" if method == "PUT" else None)
    answer = board.getresponse()
    answer.read()
    return answer.status


def connect(run: RunConfig) -> Communicator:
    """Join the ranks that a launcher started, or be one alone; choose this rank's device. Call it before any tensor."""
    launched = any(int(os.environ.get(name, "1")) > 1 for name in LAUNCHERS)
    comm = HorovodCommunicator(run) if launched else Communicator()
    comm.device = devices.choose(
        run.device,
        flag="--run.device",
        local_rank=comm.local_rank,
        local_size=comm.local_size,
        deterministic=run.deterministic,
    )
    if comm.device.is_gpu and comm.size > 1 and comm.rank == 0 and comm.reducer() != "NCCL":
        print(
            f"warning: Horovod was built without NCCL, so gradients travel by {comm.reducer()} through the CPU; "
            "make setup DEVICE=gpu builds it with NCCL",
            file=sys.stderr,
        )
    return comm
