"""TensorFlow's own collectives between ranks, against Horovod's and against NumPy."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import RunConfig
from bert.core.errors import UsageError
from bert.training import distributed
from extensions.collectives import collectives
from tests.training import ROOT, errors, losses, pretrain, same_bits, weights

OURS = ["--run.communicator", "tensorflow"]
FOUR = ["--run.steps", "4", "--run.save_every", "4"]
ADAMW = ["--optimizer.name", "adamw", "--model.num_attention_heads", "4"]
WAYS = {  # flags, and the number of ranks
    "together": ([], 2),
    "overlap": (["--parallel.overlap", "true", "--parallel.bucket_megabytes", "0.01"], 2),
    "sharded, float16": (["--parallel.shard_optimizer", "true", "--precision.compress", "true"], 2),
    "parts": (["--parallel.tensor", "2", "--model.num_attention_heads", "4"], 2),
}


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.uint8, np.bool_, np.int32])
@pytest.mark.parametrize("shape", [(7, 3), (5,), (), (0, 2)])
def test_any_type_travels_as_float32_with_its_bits(dtype: type, shape: tuple[int, ...]) -> None:
    value: np.ndarray = np.random.default_rng(3).integers(0, 250, shape).astype(dtype)
    flat = collectives._to_floats(tf.constant(value))
    assert flat.dtype == tf.float32 and flat.shape == [-(-value.nbytes // 4)]
    back = collectives._from_floats(tf.concat([flat, flat], 0)[: flat.shape[0]], tf.as_dtype(dtype), value.shape)
    assert back.dtype == dtype and back.shape == shape and back.numpy().tobytes() == value.tobytes()


def test_bits_that_are_no_number_travel_too() -> None:
    value = tf.constant([-1, 0x7FA00001_7FC00000, -(2**63)], tf.int64)  # signalling and quiet NaN, -0.0
    back = collectives._from_floats(collectives._to_floats(value), tf.int64, [3])
    assert back.numpy().tolist() == value.numpy().tolist()


def test_large_sums_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "PIECE", 40)
    sizes = [[x.shape[0] for x in piece] for piece in collectives._pieces([tf.zeros([n]) for n in (3, 7, 1, 99, 0, 2)])]
    assert sizes == [[3, 7], [1], [99], [0, 2]]


@pytest.mark.slow
def test_no_two_collectives_have_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    comm, taken = collectives.TensorFlowCommunicator(range(2), 0), list[tuple[int, int]]()  # key, elements

    def reduce(input: tf.Tensor, instance_key: int | tf.Tensor, **_: object) -> tf.Tensor:
        def note(key: tf.Tensor, size: tf.Tensor) -> None:
            taken.append((int(key), int(size)))

        with tf.control_dependencies([tf.py_function(note, [instance_key, tf.size(input)], [])]):
            return 2 * input

    monkeypatch.setattr(collectives.TensorFlowCommunicator, "_ordered", lambda self: [])
    monkeypatch.setattr(tf.raw_ops, "CollectiveReduceV2", reduce)
    for name in ("dbbldjek", "eidbahnn", *(f"layer_{number}/mlp" for number in range(50))):  # two with equal hashes
        program = tf.function(lambda x, name=name: comm._reduce(x, name), [tf.TensorSpec([None, None, 3])])
        for rows, tokens in ((2, 8), (4, 4), (7, 16), (5, 3)):
            state = tf.random.stateless_uniform([rows, tokens, 3], [1, rows])
            np.testing.assert_array_equal(program(state), 2 * state)
        for size in (48, 49):
            comm._reduce(tf.zeros([size]), name)
    keys = {key for key, _ in taken}
    assert len(taken) == 52 * 6 and len(keys) == 52 * 5  # 2 x 8 and 4 x 4 are the same numbers one after the other
    assert len({*taken}) == len(keys) and min(keys) > 0 and max(keys) < 1 << 31
    # A rank that ends early says so by a key that the others do not use for another sum.
    comm._sum([tf.zeros([1])], "leave")
    assert taken[-1] == (0, 1)


def test_ranks_of_a_launcher_that_tells_no_place_to_meet_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*distributed.LAUNCHERS, "HOROVOD_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(
        UsageError, match=r"--run.communicator tensorflow: .*'HOROVOD_RANK'; start .* scripts/launch.sh"
    ):
        distributed.connect(RunConfig(communicator="tensorflow"))


@pytest.mark.multiprocess
@pytest.mark.thorough  # the last test below has the bits of Horovod too
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_have_the_bits_of_horovod(way: str, dataset: Path, tmp_path: Path) -> None:
    flags, ranks = WAYS[way]
    for name, more in (("horovod", []), ("tensorflow", OURS)):
        done = pretrain(dataset, tmp_path / name, *FOUR, *flags, *more, ranks=ranks)
        assert done.returncode == 0, done.stderr
        assert f"by {'Horovod with Gloo' if not more else 'TensorFlow with gRPC'}" in done.stderr or "parts" in way
    same_bits(weights(tmp_path / "horovod", 4), weights(tmp_path / "tensorflow", 4))
    assert losses(tmp_path / "horovod") == losses(tmp_path / "tensorflow")


@pytest.mark.multiprocess
@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_four_ranks_add_in_an_order_of_their_own_that_does_not_change(dataset: Path, tmp_path: Path) -> None:
    flags = [*FOUR, *ADAMW, "--batch.total", "12", "--parallel.tensor", "2", "--parallel.overlap", "true"]
    for name, more in (("horovod", []), ("first", OURS), ("second", OURS)):
        done = pretrain(dataset, tmp_path / name, *flags, *more, ranks=4)
        assert done.returncode == 0, done.stderr
    same_bits(weights(tmp_path / "first", 4), weights(tmp_path / "second", 4))
    ours, theirs = losses(tmp_path / "first"), losses(tmp_path / "horovod")
    assert ours.keys() == theirs.keys() and list(ours.values()) == pytest.approx(list(theirs.values()), rel=1e-6)


OPERATIONS = """
import sys
sys.modules["horovod"] = None
import numpy as np, tensorflow as tf
from bert.core.config import RunConfig
from bert.hardware import graphs
from bert.training.distributed import connect
comm = connect(RunConfig(device="cpu", communicator="tensorflow"))
mine = lambda rank: [np.random.default_rng(rank).integers(-9, 9, shape).astype(np.float32) for shape in ((7, 3), (2,))]
everyone = [mine(rank) for rank in range(comm.size)]
sums = [sum(values) for values in zip(*everyone)]
own = [tf.constant(x) for x in mine(comm.rank)]
def same(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x.numpy(), y)
for fp16 in (0, 2):
    same(comm.all_reduce(own, fp16), sums)  # whole numbers, so that every order of additions has one result
in_graph = graphs.function(lambda x: comm.reduce_in_graph(x, "bucket_0"))
with comm.collective():
    same(in_graph(own), sums)
rows = [slice(*[[0, 3], [3, 5], [5, 7]][comm.rank]), slice(*[[0, 1], [1, 2], [2, 2]][comm.rank])]
same(comm.reduce_scatter(own), [x[at] for x, at in zip(sums, rows)])
ragged = [np.full((rank, 2), rank, np.int64) for rank in range(comm.size)]
same(comm.all_gather([tf.constant(ragged[comm.rank])]), [np.concatenate(ragged)])
same([comm.broadcast(tf.constant([comm.rank - 1, 5], tf.int64))], [[-1, 5]])
assert comm.broadcast_object({"rank": comm.rank, "long": "x" * 999}) == {"rank": 0, "long": "x" * 999}
variable = tf.Variable(own[0])
comm.broadcast_variables([variable])
same([variable], [everyone[0][0]])
print(f"rank {comm.rank} agrees", file=sys.stderr)
"""


@pytest.mark.multiprocess
def test_three_ranks_without_horovod_compute_what_numpy_does(tmp_path: Path) -> None:
    program = tmp_path / "operations.py"
    program.write_text(OPERATIONS)
    # An environment without horovodrun, and a proxy that nobody runs, which gRPC would ask for the other ranks.
    path = ":".join(place for place in os.environ["PATH"].split(":") if not Path(place, "horovodrun").exists())
    hidden = {"PATH": path, "VENV": str(tmp_path), "http_proxy": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    line = [str(ROOT / "scripts/launch.sh"), "-np", "3", "--", sys.executable, str(program)]
    done = subprocess.run(line, env=os.environ | hidden, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall("rank . agrees", done.stderr)) == [f"rank {rank} agrees" for rank in range(3)]


# Rank 1 is killed in update 5, and notes when.
KILLED = """
    import os, signal, time
    from bert.training import step
    update = step.Step.update
    def ending(self, number, *arguments, **named):
        if number == 5 and self.comm.rank == 1:
            open({note!r}, "w").write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, number, *arguments, **named)
    step.Step.update = ending
"""
ASKED = """
    import os, signal
    from bert.training import step
    update = step.Step.update
    def asking(self, number, *arguments, **named):
        if number == {number} and self.comm.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, number, *arguments, **named)
    step.Step.update = asking
"""
EIGHT = ["--run.steps", "8", "--run.save_every", "4"]


@pytest.mark.multiprocess
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_a_killed_rank_ends_the_others_and_the_run_goes_on_by_either_communicator(
    dataset: Path, tmp_path: Path
) -> None:
    straight, run, note = tmp_path / "straight", tmp_path / "run", tmp_path / "killed"
    flags = [*EIGHT, *WAYS["sharded, float16"][0]]
    assert pretrain(dataset, straight, *flags, ranks=2).returncode == 0
    killed = pretrain(dataset, run, *flags, *OURS, ranks=2, patch=KILLED.format(note=str(note)))
    took = time.time() - float(note.read_text())
    assert killed.returncode == 128 + signal.SIGKILL and took < 60, (killed.stderr, took)
    stopped = pretrain(dataset, run, *flags, *OURS, ranks=2, patch=ASKED.format(number=6))
    assert stopped.returncode == 75 and errors(stopped.stderr) == [
        "stopped at step 7 of 8, saved; the same command resumes"
    ], stopped.stderr
    done = pretrain(dataset, run, *flags, ranks=2)
    assert done.returncode == 0, done.stderr
    same_bits(weights(straight, 8), weights(run, 8))
