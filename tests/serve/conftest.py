"""Models that several tests of the service share, loaded once."""

from pathlib import Path

import pytest

from serve.models import Models
from tests.serve import runs


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each kind of model."""
    root = tmp_path_factory.mktemp("served")
    made = {name: runs.of_task(root / name, name) for name in runs.TASKS}
    return made | {"answer": runs.of_questions(root / "answer"), "fill": runs.of_pretraining(root / "fill")}


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> Models:
    """All of them, loaded; tests do not change them."""
    return Models(folders, "float32", 8)
