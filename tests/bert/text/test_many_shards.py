"""A set of many shards costs a rank no more system calls than one of few."""

import builtins
import collections
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bert import pretraining
from bert.core.errors import IntegrityError
from bert.core.manifest import Manifest
from bert.recipes import RECIPES
from bert.text import records
from bert.training import loop
from bert.training.communicator import Communicator
from tests.training import write_dataset

FEW, MANY, SAMPLES = 5, 137, 548
CONFIG = RECIPES["demo_phase1"].phases[0].config

Calls = collections.Counter[str]


class Second(Communicator):
    """Rank 1 of 3; rank 0 has looked at all files."""

    rank, size = 1, 3

    def __init__(self, described: Manifest) -> None:
        self.described = described

    def broadcast_object(self, value: Any) -> Any:
        assert value is None
        return self.described


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Count the calls that open a file or ask for its size."""
    counts: Calls = collections.Counter()

    def count(module: ModuleType, name: str, kind: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            counts[kind] += 1
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, counted)

    for name in ("stat", "lstat"):
        count(os, name, "stats")
    for module in (os, io):
        count(module, "open", "opens")
    monkeypatch.setattr(builtins, "open", io.open)
    yield counts


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return two sets of the same samples: in few shards, and in many."""
    folder = tmp_path_factory.mktemp("sets")
    sizes = {FEW: (109, 109, 109, 109, 112), MANY: (4,) * MANY}
    return {shards: write_dataset(folder / str(shards), sizes[shards]) for shards in (FEW, MANY)}


def opened(folder: Path, comm: Communicator, calls: Calls) -> tuple[loop.Data, Calls]:
    """Return the training samples, and the calls until they can be read."""
    calls.clear()
    data, heldout = pretraining.datasets(folder, CONFIG, comm=comm)
    assert heldout is not None and len(data) == SAMPLES and len(heldout) == 11
    return data, calls.copy()


@pytest.mark.slow
def test_at_the_start_rank_0_looks_at_each_file_once_and_others_at_none(folders: dict[int, Path], calls: Calls) -> None:
    ours, theirs = {}, {}
    for shards, folder in folders.items():
        data, ours[shards] = opened(folder, Communicator(), calls)
        _, theirs[shards] = opened(folder, Second(data.manifest), calls)
    more = MANY - FEW  # shards, each with an index
    assert ours[MANY]["stats"] - ours[FEW]["stats"] == 2 * 2 * more  # its size, and whether it is a link
    assert ours[MANY]["opens"] - ours[FEW]["opens"] == more  # the index
    assert theirs[MANY] == theirs[FEW] and theirs[FEW].total() < 20


def test_a_run_opens_each_file_once(folders: dict[int, Path], calls: Calls) -> None:
    rows = {}
    order = np.random.default_rng(3).permutation(np.arange(3 * SAMPLES) % SAMPLES)
    for shards, folder in folders.items():
        data, _ = opened(folder, Communicator(), calls)
        calls.clear()
        rows[shards] = data.read(order, np.arange(len(order)))
        assert calls["opens"] == 2 * shards and not calls["stats"]
        assert isinstance(data, records.Dataset)
        data.sizes(order)
        assert calls["opens"] == 2 * shards
    for name, values in rows[FEW].items():
        np.testing.assert_array_equal(values, rows[MANY][name])


@pytest.mark.parametrize("name", ["train-00003.tfrecord", "train-00003.tfrecord.index"])
def test_a_rank_names_a_file_that_is_missing_on_its_host(name: str, folders: dict[int, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders[FEW], tmp_path / "copy"))
    described = records.checked(folder)
    (folder / name).unlink()
    data, _ = pretraining.datasets(folder, CONFIG, comm=Second(described))
    data.read(np.arange(327), np.arange(327))
    with pytest.raises(IntegrityError, match=f"{name}: the file is missing; build the folder again, or copy it to"):
        data.read(np.array([3, 328]), np.arange(2))
