"""Ranks: a single process needs no Horovod, several do. Real ranks are in the tests marked `multiprocess`."""

import sys
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from bert.core.config import ParallelConfig, RunConfig
from bert.core.errors import UsageError, UserError
from bert.training import distributed
from bert.training.communicator import Communicator
from bert.training.distributed import HorovodCommunicator, connect
from extensions.collectives.collectives import TensorFlowCommunicator


@pytest.fixture
def without_horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `import horovod.tensorflow` fail, start with no launcher's variables, and leave the devices as they are."""
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    for name in distributed.LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "60")  # which connecting would set for later tests
    monkeypatch.setattr(distributed.devices, "choose", lambda kind, **settings: distributed.devices.Device())


@pytest.mark.usefixtures("without_horovod")
def test_a_single_process_needs_no_horovod_and_computes_the_same() -> None:
    comm = connect(RunConfig())
    assert type(comm) is Communicator and (comm.rank, comm.size) == (0, 1) and comm.reducer() is None
    tensors = [tf.constant([3.0, 70_000.0]), tf.constant(5.0)]  # 70,000 is infinite in float16
    for num_fp16 in (0, 2):
        for given, summed in zip(tensors, comm.all_reduce(tensors, num_fp16), strict=True):
            assert summed.numpy().tolist() == given.numpy().tolist()
    assert comm.broadcast_object({"step": 7}) == {"step": 7} and comm.stalled_peers(0.0) is None


@pytest.mark.usefixtures("without_horovod")
@pytest.mark.parametrize("name", distributed.LAUNCHERS)
def test_several_ranks_without_horovod_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert connect(RunConfig()).size == 1
    monkeypatch.setenv(name, "2")
    with pytest.raises(UsageError, match=r"several ranks need Horovod.*make setup"):
        connect(RunConfig())


@pytest.mark.usefixtures("without_horovod")
def test_overlap_has_threads_for_its_collectives_however_few_cores_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(tf.config.threading, "set_inter_op_parallelism_threads", asked.append)
    monkeypatch.setattr(distributed, "_start_horovod", lambda *_: Communicator())
    connect(RunConfig(), ParallelConfig(overlap=True))
    monkeypatch.setenv(distributed.LAUNCHERS[0], "2")
    connect(RunConfig())
    assert not asked
    connect(RunConfig(), ParallelConfig(overlap=True))
    assert len(asked) == 1 and asked[0] >= distributed.OVERLAP_THREADS


@pytest.mark.parametrize(
    ("kind", "inherited"),
    [(HorovodCommunicator, {"start"}), (TensorFlowCommunicator, {"start_timeline", "stop_timeline"})],
)
def test_all_kinds_have_the_same_interface(kind: type[Communicator], inherited: set[str]) -> None:
    public = {name for name in vars(Communicator) if not name.startswith("_") and callable(getattr(Communicator, name))}
    left = {name for name in public if getattr(kind, name) is getattr(Communicator, name)}
    assert left - {"sums_over_parts"} == inherited  # this one is made of another


OPERATION = "{{function_node __wrapped__HorovodBroadcast_device_/job:localhost}} "
MADE_AT = 'Graph execution error:\n\nDetected at node reduced_0 defined at:\n  File "step.py", line 9, in run\n\n'
BEHIND = "\n\t [[{{node reduced_0}}]] [Op:__inference_program_8]"
SHUT_DOWN = "Horovod has been shut down. This was caused by an exception on one of the ranks."
NO_MEMORY = "ncclCommInitRank failed: unhandled system error"


@pytest.mark.parametrize("message", [f"{OPERATION}{SHUT_DOWN}", f"{MADE_AT}{SHUT_DOWN}{BEHIND}", "closed by peer [::]"])
@pytest.mark.parametrize("worked", [False, True])
def test_a_rank_that_has_gone_is_named_as_the_cause(message: str, worked: bool) -> None:
    with pytest.raises(UserError, match="rank 3: another rank has ended") as ended:
        fail(message, worked)
    assert ended.value.exit_code == 1


@pytest.mark.parametrize("message", [f"{OPERATION}{NO_MEMORY} [Op:HorovodBroadcast]", f"{MADE_AT}{NO_MEMORY}{BEHIND}"])
def test_a_sum_that_fails_by_itself_says_why(message: str) -> None:
    with pytest.raises(UserError, match=f"rank 3: a sum over the ranks failed: {NO_MEMORY}; the same command") as late:
        fail(message, worked=True)
    with pytest.raises(UsageError, match=f"failed: {NO_MEMORY}; see the messages of NCCL; NCCL_DEBUG=INFO"):
        fail(message, worked=False)
    assert late.value.exit_code == 1  # scripts/again.sh repeats it


class Gathering(Communicator):
    """Rank 1 of three, of which each has a GPU of this number; None: a CPU."""

    def __init__(self, *numbers: int | None) -> None:
        self.numbers, self.rank = numbers, 1
        self.device = distributed.devices.Device(kind="CPU" if numbers[1] is None else "GPU")

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        ids = [rank if number is None else number for rank, number in enumerate(self.numbers)]
        rows = tf.constant([list(number.to_bytes(16, "big")) for number in ids], tf.uint8)
        assert tensors[0].numpy().tolist() == rows[1:2].numpy().tolist()
        return [rows]


def test_ranks_that_share_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed.nvidia, "gpu_uuid", lambda number: uuid.UUID(int=88))
    for comm in (Gathering(None, None, None), Gathering(77, 88, 99)):
        distributed.gpus_of_their_own(comm)
    comm = Gathering(77, 88, 88)
    with pytest.raises(UsageError, match=r"ranks 1, 2 have one GPU \(.*058\); start one rank per GPU"):
        distributed.gpus_of_their_own(comm)


def fail(message: str, worked: bool) -> None:
    """Fail in a collective on rank 3, after a sum that worked or before the first one."""
    ranks: Any = SimpleNamespace(rank=lambda: 3, size=lambda: 5)
    names = ("local_rank", "local_size", "nccl_built", "grouped_allreduce")
    comm = HorovodCommunicator(SimpleNamespace(**dict.fromkeys(names, lambda: 1)), ranks)  # type: ignore[arg-type]
    comm.device = distributed.devices.Device(kind="GPU")
    with comm.collective():  # the gathering at the start
        pass
    if worked:
        comm.all_reduce([])
    with comm.collective():
        raise tf.errors.UnknownError(None, None, message)
