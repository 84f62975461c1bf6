"""Ranks: a single process needs no Horovod, several do. Real ranks are in the tests marked `multiprocess`."""

import sys

import pytest
import tensorflow as tf

from bert.core.config import ParallelConfig, RunConfig
from bert.core.errors import UsageError
from bert.training import distributed
from bert.training.distributed import Communicator, HorovodCommunicator, connect


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


def test_both_kinds_have_the_same_interface() -> None:
    public = {name for name in vars(Communicator) if not name.startswith("_") and callable(getattr(Communicator, name))}
    assert public - {"sums_over_parts"} <= set(vars(HorovodCommunicator))  # this one is made of another
