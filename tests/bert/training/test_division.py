"""Each rank has its piece of a variable, and the pieces of all ranks are the whole; real ranks are in test_loop.py."""

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import ResourceError
from bert.training import checkpoint, division
from bert.training.division import DividedVariable, State
from bert.training.saver import Saver
from tests.bert.training.ranks import Ranks, as_ranks

WHOLE: dict[str, np.ndarray] = {
    "rows": np.arange(14, dtype=np.float32).reshape(7, 2),
    "columns": np.arange(35, dtype=np.float32).reshape(5, 7) / 7,
    "vector": np.arange(5, dtype=np.float32) - 2,
    "short": np.arange(2, dtype=np.float32),  # fewer rows than ranks
}


def state_of(comm: Ranks, rows: bool) -> State:
    """Return zeros for this rank's pieces of WHOLE, and for a variable that all ranks have."""

    def divided(name: str, axis: int | None) -> DividedVariable:
        shape = tf.TensorShape(WHOLE[name].shape)
        return DividedVariable(name, shape, comm, axis=axis if comm.group.size > 1 else None, rows=rows)

    state: State = {
        name: divided(name, axis) for name, axis in (("rows", 0), ("columns", -1), ("vector", 0), ("short", None))
    }
    return state | {"step": tf.Variable(0, dtype=tf.int64)}


def fill(state: State) -> None:
    """Assign WHOLE, as a rank 0 that reads a checkpoint does."""
    for name, whole in WHOLE.items():
        state[name].assign_later(lambda whole=whole: whole)
    state["step"].assign(7)


def test_a_rank_keeps_its_rows_of_what_rank_0_was_assigned() -> None:
    def work(comm: Ranks) -> tuple[np.ndarray, bool]:
        variable = DividedVariable("rows", tf.TensorShape([7, 2]), comm, rows=True)
        if comm.rank == 0:
            variable.assign_later(lambda: WHOLE["rows"])
        assigned = variable.assigned
        variable.distribute()
        return variable.local.numpy(), assigned and not variable.assigned

    pieces = as_ranks(3, 1, work)
    for (first, last), (piece, was_assigned) in zip([(0, 3), (3, 5), (5, 7)], pieces, strict=True):
        np.testing.assert_array_equal(piece, WHOLE["rows"][first:last])
        assert was_assigned == (first == 0)


@pytest.mark.parametrize(
    ("size", "tensor", "rows"), [(1, 1, False), (3, 1, True), (2, 2, False), (4, 2, False), (4, 2, True), (6, 3, True)]
)
def test_a_checkpoint_that_ranks_wrote_in_pieces_holds_whole_variables(
    size: int, tensor: int, rows: bool, tmp_path: Path
) -> None:
    def write(comm: Ranks) -> None:
        state = state_of(comm, rows)
        if comm.rank == 0:
            fill(state)
        division.synchronise(state, comm)
        saver = Saver(tmp_path, 2, 0, comm)
        saver.save(3, state)
        for variable in state.values():  # training goes on
            local = variable.local if isinstance(variable, DividedVariable) else variable
            local.assign(tf.zeros_like(local))
        saver.wait()

    assert as_ranks(size, tensor, write) == [None] * size
    [folder] = (tmp_path / "checkpoints").iterdir()  # no part is left
    reader = tf.train.load_checkpoint(str(folder / "variables"))
    assert reader.get_variable_to_shape_map() == {name: list(whole.shape) for name, whole in WHOLE.items()} | {
        "step": []
    }
    for name, whole in WHOLE.items():
        np.testing.assert_array_equal(reader.get_tensor(name), whole)

    def read(comm: Ranks) -> dict[str, np.ndarray]:
        state = state_of(comm, rows=True)
        if comm.rank == 0:
            assert checkpoint.restore(tmp_path, state) == 3
        division.synchronise(state, comm)
        assert int(state["step"]) == 7
        return {name: state[name].local.numpy() for name in WHOLE}

    by_rank = as_ranks(2, 1, read)  # another layout
    for name, whole in WHOLE.items():
        np.testing.assert_array_equal(np.concatenate([pieces[name] for pieces in by_rank]), whole)


@pytest.mark.parametrize("case", ["all see it", "rank 1 does not see it", "rank 1 sees another", "rank 1 cannot read"])
def test_each_rank_reads_its_pieces_of_a_checkpoint_that_all_see(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 3, {**WHOLE, "step": np.int64(7)}, keep=1)  # with whole variables
    asked: dict[int, list[str]] = {0: [], 1: []}
    ranks: dict[int, int] = {}
    see, read = division.bundle, tf.raw_ops.RestoreV2

    def seen(prefix: Path) -> division.Bundle | None:
        found = see(prefix)
        assert found is not None
        blind = ranks[threading.get_ident()] == 1 and "see" in case and case != "all see it"
        return (None if "not" in case else found._replace(digest="another")) if blind else found

    def spied(**arguments: Any) -> Any:
        rank = ranks[threading.get_ident()]
        asked[rank] += [f"{arguments['tensor_names'][0]} {arguments['shape_and_slices'][0]}"]
        if rank == 1 and case == "rank 1 cannot read":
            raise tf.errors.DataLossError(None, None, "bad sector")
        return read(**arguments)

    monkeypatch.setattr(division, "bundle", seen)
    monkeypatch.setattr(checkpoint, "bundle", seen)
    monkeypatch.setattr(tf.raw_ops, "RestoreV2", spied)

    def restore(comm: Ranks) -> dict[str, np.ndarray]:
        ranks[threading.get_ident()] = comm.rank
        state = state_of(comm, rows=True)
        if comm.rank == 0:
            checkpoint.restore(tmp_path, state)
        division.synchronise(state, comm)
        return {name: state[name].local.numpy() for name in WHOLE}

    by_rank = as_ranks(2, 1, restore)
    if case == "rank 1 cannot read":
        assert "another rank could not read" in str(by_rank[0]) and "rows cannot be read (bad sector)" in str(
            by_rank[1]
        )
        return
    for name, whole in WHOLE.items():
        np.testing.assert_array_equal(np.concatenate([pieces[name] for pieces in by_rank]), whole)
    one = ["rows 7 2 4,3:0,2", "columns 5 7 3,2:0,7", "vector 5 3,2", "short 2 1,1"]
    assert asked[1] == (one if case == "all see it" else [])


def test_a_checkpoint_is_joined_when_all_ranks_have_written(tmp_path: Path) -> None:
    def work(comm: Ranks) -> list[bool]:
        state = state_of(comm, rows=True)
        saver, folder = Saver(tmp_path, 2, 0, comm), tmp_path / "checkpoints" / "step-00000001"
        saver.save(1, state)
        found = []
        for number in itertools.count():
            ready = saver.has_written_pieces() and number >= comm.rank  # rank 1 is late
            [written] = comm.all_reduce([tf.constant(float(ready))])
            if comm.rank == 0:
                found.append(folder.exists())
            saver.join(float(written))
            if written == comm.size:
                break
        saver.wait()
        comm.broadcast_object(None)
        return [*found, folder.exists(), saver.has_written_pieces()]

    first, second = as_ranks(2, 1, work)
    assert not any(first[:-2]) and len(first) > 3 and first[-2:] == second == [True, False]


def test_a_full_disk_of_one_rank_ends_all_and_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_part = checkpoint.write_part

    def full(run: Path, step: int, rank: int, *arguments: Any, **named: Any) -> None:
        if rank == 1:
            raise ResourceError("no space")
        write_part(run, step, rank, *arguments, **named)

    monkeypatch.setattr(checkpoint, "write_part", full)

    def work(comm: Ranks) -> None:
        saver = Saver(tmp_path, 2, 0, comm)
        saver.save(1, state_of(comm, rows=True))
        saver.wait()

    errors = as_ranks(3, 1, work)
    assert [str(error) for error in errors[1:2]] == ["no space"]
    assert all("another rank could not write" in str(errors[rank]) for rank in (0, 2))
    assert not checkpoint.steps(tmp_path)
    checkpoint.sweep(tmp_path)
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_part_that_cannot_be_seen_ends_in_one_line(tmp_path: Path) -> None:
    checkpoint.write_part(tmp_path, 5, 0, {"rows": tf.constant(WHOLE["rows"][:3])}, {"rows": "7 2 0,3:0,2"})
    with pytest.raises(ResourceError, match=r"1 of 2 ranks' parts .* that all ranks share"):
        checkpoint.join(tmp_path, 5, parts=2, variables=1, keep=1)
    assert not checkpoint.steps(tmp_path)
