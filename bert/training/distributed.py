"""Communication between ranks: rank, size, all-reduce, broadcast. The only module that imports Horovod.

A single process needs no Horovod and runs the same code. Collectives run between compiled regions, because Horovod's
operations cannot be part of an XLA cluster.
"""

import contextlib
import http.client
import os
import sys
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert.config import RunConfig
from bert.errors import UsageError, UserError
from bert.hardware import devices

GRACE = 5.0  # seconds that waiting ranks have to report that they wait
LAUNCHERS = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


class Communicator:
    """A single process; also the interface of every communicator."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    device = devices.Device()

    def reducer(self) -> str | None:
        """Return what sums over the ranks: NCCL, MPI or Gloo; None in a single process."""
        return None

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective; send the first `num_fp16` of them as float16."""
        return list(tensors)

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective, which starts when the last of them is computed.

        Call it in a graph that XLA does not compile, and run that graph within `collective`. name: unique among the
        collectives that may be under way at one time. scatter: return the rows of this rank only (`division.rows`).
        """
        return list(tensors)

    def reduce_scatter(self, tensors: Sequence[tf.Tensor], *, fp16: bool = False) -> list[tf.Tensor]:
        """Sum each tensor over the ranks; return the rows of this rank (`division.rows`)."""
        return list(tensors)

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the rows of all ranks, one after the other, for each tensor."""
        return [tf.identity(tensor) for tensor in tensors]

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        """Return rank 0's value, which has the same shape on every rank."""
        return value

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Note the time, and raise UserError if a collective in the block fails because another rank has ended."""
        yield

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        """Assign rank 0's values on every rank."""

    def broadcast_object(self, value: Any) -> Any:
        """Return rank 0's value, which must be picklable, on every rank."""
        return value

    def start_timeline(self, path: Path) -> None:
        """Start to record the collectives of all ranks in a file; a single process records nothing."""

    def stop_timeline(self) -> None:
        """Stop the record."""

    def stalled_peers(self, seconds: float) -> str | None:
        """Return a description of the ranks that this one has waited for so long, or None if it has not."""
        return None


class HorovodCommunicator(Communicator):
    """Several ranks, through Horovod."""

    def __init__(self, run: RunConfig) -> None:
        """Initialise Horovod. Raise UsageError if it is missing or cannot see the other ranks."""
        os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", f"{run.stall_seconds:.0f}")
        # Otherwise Horovod may join buckets that are ready at the same time, and the order of additions then varies.
        os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")
        if run.profile:
            os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")  # started later
        self._waiting_since: float | None = None
        try:
            import horovod.tensorflow as hvd
        except ImportError as error:
            raise UsageError(
                f"several ranks need Horovod, which cannot be imported ({error}); run make setup"
            ) from error
        hvd.init()
        if hvd.size() == 1:  # started by another launcher than horovodrun, and built without MPI
            raise UsageError(
                "several ranks were started, but Horovod sees one: it was built without MPI; use scripts/launch.sh"
            )
        self._hvd = hvd
        self._all_reduce = tf.function(lambda tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum))
        self._all_reduce_fp16 = tf.function(
            lambda tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum, compression=hvd.Compression.fp16)
        )
        self._reduce_scatter = tf.function(lambda tensors: hvd.grouped_reducescatter(tensors, op=hvd.Sum))
        self._reduce_scatter_fp16 = tf.function(
            lambda tensors: hvd.grouped_reducescatter(tensors, op=hvd.Sum, compression=hvd.Compression.fp16)
        )
        self._all_gather = tf.function(hvd.grouped_allgather)
        self.rank, self.size = hvd.rank(), hvd.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def reducer(self) -> str | None:
        if self.device.is_gpu and self._hvd.nccl_built():
            return "NCCL"
        return "MPI" if self._hvd.mpi_enabled() else "Gloo"

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        with self.collective():
            in_fp16 = self._all_reduce_fp16(tensors[:num_fp16]) if num_fp16 else []
            return [*in_fp16, *self._all_reduce(tensors[num_fp16:])]

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        compression = self._hvd.Compression.fp16 if fp16 else self._hvd.Compression.none
        reduce = self._hvd.grouped_reducescatter if scatter else self._hvd.grouped_allreduce
        with tf.name_scope(name):
            return list(reduce(list(tensors), op=self._hvd.Sum, compression=compression))

    def reduce_scatter(self, tensors: Sequence[tf.Tensor], *, fp16: bool = False) -> list[tf.Tensor]:
        with self.collective():
            reduce = self._reduce_scatter_fp16 if fp16 else self._reduce_scatter
            return list(reduce([tf.convert_to_tensor(tensor) for tensor in tensors]))

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with self.collective():
            return list(self._all_gather([tf.convert_to_tensor(tensor) for tensor in tensors]))

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        with self.collective():
            return self._hvd.broadcast(value, root_rank=0)

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        with self.collective():
            self._hvd.broadcast_variables(list(variables), root_rank=0)

    def broadcast_object(self, value: Any) -> Any:
        with self.collective():
            return self._hvd.broadcast_object(value, root_rank=0)

    def start_timeline(self, path: Path) -> None:
        self._hvd.start_timeline(str(path))

    def stop_timeline(self) -> None:
        self._hvd.stop_timeline()

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        self._waiting_since = time.monotonic()
        try:
            yield
        except tf.errors.UnknownError as error:  # Horovod was shut down on another rank
            raise UserError(
                f"rank {self.rank}: another rank has ended (see its message); the same command resumes"
            ) from error
        finally:
            self._waiting_since = None

    def stalled_peers(self, seconds: float) -> str | None:
        since = self._waiting_since
        return None if since is None or time.monotonic() - since < seconds else self._stalled()

    def _stalled(self) -> str:
        """Return the ranks that do not report that they wait too; ranks report at the key-value server of horovodrun.

        Ranks from 2 on only report, because too many readers would overload the server: they say "another rank".
        """
        try:
            address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
            server = http.client.HTTPConnection(*address, timeout=GRACE)
            _request(server, "PUT", self.rank)
            time.sleep(GRACE if self.rank < 2 else 2 * GRACE)
            if self.rank > 1:
                return "another rank"
            stalled = [str(rank) for rank in range(self.size) if _request(server, "GET", rank) == HTTPStatus.NOT_FOUND]
        except (KeyError, OSError, http.client.HTTPException):
            stalled = []  # other launchers have no such server
        return f"rank {', '.join(stalled)}" if stalled else "another rank"


def _request(server: http.client.HTTPConnection, method: str, rank: int) -> int:
    server.request(method, f"/waited/{rank}", body=b"yes" if method == "PUT" else None)
    response = server.getresponse()
    response.read()
    return response.status


def connect(run: RunConfig) -> Communicator:
    """Join the ranks that a launcher started, or run as a single process, and choose the device of this rank.

    Call it before any tensor is made.
    """
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
            f"warning: Horovod was built without NCCL, so gradients are summed by {comm.reducer()} on the CPU; "
            "make setup DEVICE=gpu builds it with NCCL",
            file=sys.stderr,
        )
    return comm
