"""What nothing disturbed: a tiny dataset, a run on it, and the outputs of all data stages."""

from pathlib import Path

import pytest

from tests import training
from tests.faults import stages


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder shared by tests that only read it."""
    return training.write_dataset(tmp_path_factory.mktemp("records") / "dataset")


@pytest.fixture(scope="session")
def straight(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `training.LENGTH` that nothing disturbed."""
    run = tmp_path_factory.mktemp("straight") / "run"
    training.train_here(dataset, run, *training.LENGTH)
    return run


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the outputs of all stages."""
    at = tmp_path_factory.mktemp("whole")
    for name, (command, _) in stages.STAGES.items():
        code, said = stages.run(at, command, name)
        assert code == 0, said
    return at
