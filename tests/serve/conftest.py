"""Models that several tests of the service share, loaded once."""

from pathlib import Path

import pytest

from bert import hidden_states
from extensions.search import search
from serve.models import Models, Search
from tests.serve import runs

TEXTS = ["a river", "caf\u00e9 \u6771\u4eac", "b c d", "river 7, cafe", "x y z " * 40]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run for each kind of model."""
    root = tmp_path_factory.mktemp("served")
    made = {name: runs.of_task(root / name, name) for name in runs.TASKS}
    return made | {"answer": runs.of_questions(root / "answer"), "fill": runs.of_pretraining(root / "fill")}


@pytest.fixture(scope="session")
def index(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of `TEXTS` by the model `fill`."""
    root = tmp_path_factory.mktemp("searched")
    (root / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    made = hidden_states.Reader.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "__kwdefaults__", (made.__kwdefaults__ or {}) | {"compiled": False})  # XLA would take long
        search.main(["index", str(root / "texts.txt"), str(root / "library"), "--model", str(folders["fill"])])
    return root / "library"


@pytest.fixture(scope="session")
def models(folders: dict[str, Path], index: Path) -> Models:
    """All of them, loaded, and the index; tests do not change them."""
    return Models(folders, "float32", 8, search=Search(index=index, encoder=None))
