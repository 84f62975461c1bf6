"""The notebook runs from its first cell to its last, and is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from data.synthetic import __main__ as synthetic
from tests.serve import runs

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebooks" / "first_steps.ipynb"


def read() -> nbformat.NotebookNode:
    """The notebook, valid by the schema of its format."""
    notebook = nbformat.read(NOTEBOOK, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    return notebook


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the demo's models: models of the same kinds with random weights."""
    demo = tmp_path / "demo"
    sizes = "--articles 9 --books 2 --train_questions 9 --dev_questions 9"
    synthetic.main(["--output", str(demo / "synthetic"), *sizes.split()])
    runs.of_questions(demo / "squad" / "pretrained")
    runs.of_pretraining(demo / "pretrain" / "demo_phase2")
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[2]))  # as after `pip install -e .`
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = read()
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    shown = [
        "".join(one.get("text", "") for one in cell.outputs) for cell in notebook.cells if cell.cell_type == "code"
    ]
    values = [one.data["text/plain"] for cell in notebook.cells for one in cell.get("outputs", []) if "data" in one]
    assert "('answer', 'embed')" in values and "(2, 24)" in values
    assert any(value.startswith("Answer(text=") for value in values)
    assert "this model has no classify; it has answer and embed" in shown[-1]
    assert "Error" not in "".join(shown)


def test_the_notebook_has_no_outputs() -> None:
    cells = [cell for cell in read().cells if cell.cell_type == "code"]
    assert len(cells) > 5
    assert not [cell for cell in cells if cell.outputs or cell.execution_count is not None]
