"""What the trainer's faults are measured against: a tiny dataset, and a run on it that nothing disturbed."""

from pathlib import Path

import pytest

from tests import training


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder shared by tests that only read it."""
    return training.write_dataset(tmp_path_factory.mktemp("records") / "dataset")


@pytest.fixture(scope="session")
def straight(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `training.LENGTH` that nothing disturbed."""
    run = tmp_path_factory.mktemp("straight") / "run"
    done = training.pretrain(dataset, run, *training.LENGTH)
    assert done.returncode == 0, done.stderr
    return run
