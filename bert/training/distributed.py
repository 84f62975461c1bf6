"""Ranks connected, by Horovod or by TensorFlow's own collectives. The only module that imports Horovod.

A single process needs no Horovod and runs the same code. Collectives run between compiled regions, because Horovod's
operations cannot be part of an XLA cluster.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from bert.core.config import ParallelConfig, RunConfig
from bert.core.errors import UsageError, UserError
from bert.core.rows import Rows
from bert.hardware import devices, graphs, nvidia
from bert.model.model_shard import Parts
from bert.training.communicator import Communicator, SeveralRanks, grid

T = TypeVar("T")
OVERLAP_THREADS = 4  # at least, in TensorFlow's pool for operations
UNDIVIDED = ParallelConfig()
# What Horovod, Gloo and NCCL say of a rank that has gone; another message is of this rank's own system.
PEER_IS_LOST = re.compile(
    "Horovod has been shut down|(closed|reset) by peer|Broken pipe|Timed out waiting|remote process exited"
)
OTHERS: Rows[Callable[[int, int], SeveralRanks]] = Rows({"tensorflow": "extensions.collectives.collectives:join"})
"""what joins the ranks without Horovod, made of their number and of those that hold one model"""
LAUNCHERS = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


class HorovodCommunicator(SeveralRanks):
    """Several ranks that communicate through Horovod: all ranks, or a process set."""

    library = "Horovod"

    def __init__(self, hvd: ModuleType, ranks: Any = None, world: "HorovodCommunicator | None" = None) -> None:
        """ranks: a process set with this rank; None: all ranks. world: communicator of all ranks; None: this one."""
        ranks = hvd.global_process_set if ranks is None else ranks
        super().__init__(world)
        self._hvd, self._ranks = hvd, ranks
        self._programs: dict[Any, Any] = {}
        self._reductions = 0  # programs that add up, which all ranks make in one order
        self.rank, self.size = ranks.rank(), ranks.size()
        self.local_rank, self.local_size = hvd.local_rank(), hvd.local_size()

    def divide(self, replicas: Any, group: Any) -> None:
        """Set `replicas` and `group` from the process sets that have this rank; None: this rank alone."""
        self._replicas = self._of(replicas)
        self._group = self._of(group)
        self.parts = Parts(self._group.rank, self._group.size, self._group_sum)

    def _of(self, ranks: Any) -> Communicator:
        if ranks is None:
            return Communicator()
        return self if ranks is self._ranks else HorovodCommunicator(self._hvd, ranks, self)

    def _group_sum(self, x: tf.Tensor, name: str) -> tf.Tensor:
        assert isinstance(self._group, HorovodCommunicator)
        return self._hvd.allreduce(x, op=self._hvd.Sum, name=name, process_set=self._group._ranks)

    def _reduce(self, collective: Any, tensors: Sequence[tf.Tensor], fp16: bool = False) -> list[tf.Tensor]:
        compression = self._hvd.Compression.fp16 if fp16 else self._hvd.Compression.none
        reduced = collective(list(tensors), op=self._hvd.Sum, compression=compression, process_set=self._ranks)
        return list(reduced)

    def _gather(self, collective: Any, tensors: Sequence[tf.Tensor], _: bool) -> list[tf.Tensor]:
        return list(collective(list(tensors), process_set=self._ranks))

    def _run(self, collective: Any, tensors: Sequence[tf.Tensor], fp16: bool = False) -> list[tf.Tensor]:
        """Run a grouped collective. Each list of shapes has a separate program.

        A separate program avoids TensorFlow's warning about functions that are traced often. Horovod remembers by name
        what the ranks have agreed on, so each reduction has a name. Gatherings share one name: their shapes differ
        between ranks, and so does the number of programs.
        """
        if not tensors:
            return []
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        key = collective.__name__, fp16, tuple((*tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self._programs:
            run: Callable[..., list[tf.Tensor]] = self._gather
            scope = "gathered"
            if collective is not self._hvd.grouped_allgather:
                run, scope = self._reduce, f"reduced_{self._reductions}"
                self._reductions += 1

            def program(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
                with tf.name_scope(scope):
                    return run(collective, tensors, fp16)

            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
            self._programs[key] = graphs.function(program).get_concrete_function(specs)
        return list(self._programs[key](tensors))

    def failed(self, error: tf.errors.OpError) -> bool:
        return isinstance(error, tf.errors.UnknownError)

    def lost_peer(self, error: tf.errors.OpError) -> bool:
        return bool(PEER_IS_LOST.search(error.message))

    def reducer(self) -> str | None:
        if self.device.is_gpu and self._hvd.nccl_built():
            return "NCCL"
        return "MPI" if self._hvd.mpi_enabled() else "Gloo"

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        reduce = self._hvd.grouped_allreduce
        with self.collective():
            sums = self._run(reduce, tensors[:num_fp16], fp16=True) + self._run(reduce, tensors[num_fp16:])
        self._world._has_added = True
        return sums

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        with tf.name_scope(name):
            collective = self._hvd.grouped_reducescatter if scatter else self._hvd.grouped_allreduce
            return self._reduce(collective, tensors, fp16)

    def reduce_scatter(self, tensors: Sequence[tf.Tensor], *, fp16: bool = False) -> list[tf.Tensor]:
        with self.collective():
            return self._run(self._hvd.grouped_reducescatter, tensors, fp16)

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        with self.collective():
            return self._run(self._hvd.grouped_allgather, tensors)

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        with self.collective():
            return self._hvd.broadcast(value, root_rank=self._ranks.ranks[0], process_set=self._ranks)

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        with self.collective():
            self._hvd.broadcast_variables(list(variables), root_rank=self._ranks.ranks[0], process_set=self._ranks)

    def broadcast_object(self, value: Any) -> Any:
        with self.collective():
            return self._hvd.broadcast_object(value, root_rank=self._ranks.ranks[0], process_set=self._ranks)

    def start_timeline(self, path: Path) -> None:
        self._hvd.start_timeline(str(path))

    def stop_timeline(self) -> None:
        self._hvd.stop_timeline()


def _start_horovod(run: RunConfig, size: int, tensor: int) -> HorovodCommunicator:
    """Initialise Horovod for `size` ranks. Each `tensor` consecutive ranks are a group that holds one model.

    Raise UsageError if Horovod is missing or cannot see the other ranks.
    """
    os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", f"{run.stall_seconds:.0f}")
    # Otherwise Horovod may join buckets that are ready at the same time, and the order of additions then varies.
    os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")
    if tensor > 1:  # sums over parts wait for each other: Horovod is not to pause before it looks for the next one
        os.environ.setdefault("HOROVOD_CYCLE_TIME", "0")
    os.environ.setdefault("NCCL_DEBUG", "WARN")  # says why it fails
    if run.profile:
        os.environ.setdefault("HOROVOD_TIMELINE", "DYNAMIC")  # started later
    try:
        import horovod.tensorflow as hvd
    except ImportError as error:
        raise UsageError(
            f"several ranks need Horovod, which cannot be imported ({error}); run make setup, or give "
            "--run.communicator tensorflow"
        ) from error
    # Horovod accepts process sets later too, but then asks all ranks for new ones in every cycle.
    replicas, groups = grid(size, tensor)
    sets = {tuple(ranks): hvd.ProcessSet(ranks) for ranks in (*replicas, *groups) if 1 < len(ranks) < size}
    hvd.init(process_sets=list(sets.values()))
    if hvd.size() == 1:  # started by another launcher than horovodrun, and built without MPI
        raise UsageError(
            "several ranks were started, but Horovod sees one: it was built without MPI; use scripts/launch.sh"
        )
    comm = HorovodCommunicator(hvd)
    if tensor > 1:
        sets[tuple(range(comm.size))] = hvd.global_process_set
        of_this_rank = [next(ranks for ranks in sort if comm.rank in ranks) for sort in (replicas, groups)]
        comm.divide(*(sets.get(tuple(ranks)) for ranks in of_this_rank))
    return comm


def connect(run: RunConfig, parallel: ParallelConfig = UNDIVIDED) -> Communicator:
    """Join the ranks that a launcher started, or run as a single process; choose this rank's device.

    Call this before any tensor is made. Raise UsageError if the ranks cannot be divided into groups of
    `parallel.tensor` ranks.
    """
    size = max(int(os.environ.get(name, "1")) for name in LAUNCHERS)
    if size % parallel.tensor:
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        raise UsageError(
            f"--parallel.tensor {parallel.tensor} does not divide {ranks}; start a multiple of it, with "
            "scripts/launch.sh -np"
        )
    if parallel.overlap and size > 1:
        # A collective waits for a free thread of this pool before it starts. A rank with one core has one thread, which
        # computes until the backward pass ends.
        tf.config.threading.set_inter_op_parallelism_threads(max(OVERLAP_THREADS, len(os.sched_getaffinity(0))))
    comm = Communicator()
    if size > 1:
        if run.communicator == "horovod":
            comm = _start_horovod(run, size, parallel.tensor)
        else:
            comm = OTHERS[run.communicator](size, parallel.tensor)
    comm.device = devices.choose(
        run.device,
        flag="--run.device",
        local_rank=comm.local_rank,
        local_size=comm.local_size,
        deterministic=run.deterministic,
    )
    comm.start()
    gpus_of_their_own(comm)
    # Horovod takes its fusion buffer, 128 MiB of the device, at the first sum of several tensors, and keeps it. If that
    # came after the first forward pass, it would come out of the memory that the next one needs.
    comm.all_reduce([tf.zeros([]), tf.zeros([])])
    if comm.device.is_gpu and comm.size > 1 and comm.rank == 0 and comm.reducer() != "NCCL":
        print(
            f"warning: Horovod was built without NCCL, so gradients are summed by {comm.reducer()} on the CPU; "
            "make setup DEVICE=gpu builds it with NCCL",
            file=sys.stderr,
        )
    return comm


def gpus_of_their_own(comm: Communicator) -> None:
    """Raise UsageError if another rank computes on this rank's GPU."""
    gpu = nvidia.gpu_uuid(comm.device.number) if comm.device.is_gpu else None
    mine = np.frombuffer(gpu.bytes if gpu else comm.rank.to_bytes(16, "big"), np.uint8)
    (identities,) = comm.all_gather([tf.constant(mine[np.newaxis])])
    (ranks,) = np.nonzero(np.all(identities == mine, axis=1))
    if len(ranks) > 1:
        raise UsageError(
            f"ranks {', '.join(map(str, ranks))} have one GPU ({gpu}); start one rank per GPU, and see "
            "CUDA_VISIBLE_DEVICES and what the scheduler gives to a rank"
        )


def on_rank_zero(make: Callable[[], T], comm: Communicator) -> T:
    """Call `make` on rank 0; return its result on every rank. If it raises UserError or OSError, every rank does."""
    result: T | Exception | None = None
    if comm.rank == 0:
        try:
            result = make()
        except (UserError, OSError) as error:
            result = error
    result = comm.broadcast_object(result)
    if isinstance(result, Exception):
        raise result
    assert result is not None
    return result
