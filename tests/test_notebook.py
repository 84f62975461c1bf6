"""The notebook runs from its first cell to its last, and is kept without outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

from data.synthetic import __main__ as synthetic
from tests.serve import runs

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebooks" / "first_steps.ipynb"


def cells() -> list[dict[str, Any]]:
    """The cells of code."""
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In place of the demo's models: models of the same kinds with random weights."""
    demo = tmp_path / "demo"
    sizes = "--articles 9 --books 2 --train_questions 9 --dev_questions 9"
    synthetic.main(["--output", str(demo / "synthetic"), *sizes.split()])
    runs.of_questions(demo / "squad" / "pretrained")
    runs.of_pretraining(demo / "pretrain" / "demo_phase2")
    monkeypatch.chdir(NOTEBOOK.parent)
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path))
    names: dict[str, Any] = {}
    capsys.readouterr()
    for cell in cells():
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}: {cell['id']}", "exec"), names)
    assert names["features"].shape == (2, 24)
    assert len(names["answers"]) == len(names["questions"]) > 0
    assert "this model has no classify; it has answer and embed" in capsys.readouterr().out


def test_the_notebook_has_no_outputs() -> None:
    assert len(cells()) > 5
    assert not [cell for cell in cells() if cell["outputs"] or cell["execution_count"] is not None]
