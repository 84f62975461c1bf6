"""Which uses a run has, and how a changed run takes the place of the one before."""

import gc
import json
import os
import shutil
import weakref
from pathlib import Path

import pytest

from bert.core.errors import UsageError
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from serve.heads import Embedding
from serve.models import Models, named
from squad.model import AnswerSpans
from tests.bert.export.served import CONFIG
from tests.serve import runs


def test_uses_follow_from_the_head(models: Models) -> None:
    uses = {model.name: model.details["uses"] for model in models.all()}
    assert uses == {
        "classify": ["classify", "embed"],
        "regress": ["classify", "embed"],
        "label": ["label", "embed"],
        "choose": ["choose", "embed"],
        "tag": ["tag", "embed"],
        "answer": ["answer", "embed"],
        "fill": ["fill", "embed"],
        "library": ["search"],
    }
    facts = {model.name: model.details for model in models.all()}
    assert facts["tag"]["labels"] == ["O", "B-PER", "I-PER"] and facts["choose"]["choices"] == 3
    assert facts["answer"]["impossible"] and len(facts["answer"]["weights"]) == 64


def test_runs_with_the_same_encoder_share_it(models: Models) -> None:
    of_tasks, others = ["classify", "label", "regress", "choose", "tag"], ["answer", "fill"]
    assert models.sharing() == [("tensorflow", of_tasks), ("tensorflow", others)]
    words = {
        model.name: model.heads["embed"].encoder.embeddings.word for model in models.all() if model.name in of_tasks
    }
    assert len(words) == 5 and all(table is words["tag"] for table in words.values())


def test_models_have_names() -> None:
    assert named(["a/b", "c=a/b", "./d=e"]) == {"b": Path("a/b"), "c": Path("a/b"), "d=e": Path("./d=e")}
    for given in (["a/b", "c/b"], ["x=a", "x=b"], ["=a"]):
        with pytest.raises(UsageError, match="give it another name: NAME="):
            named(given)


@pytest.mark.slow
def test_a_changed_run_is_loaded_again_and_a_damaged_one_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.of_questions(tmp_path / "run")
    models = Models({"run": run}, "float32", 4)
    (first,) = models.all()
    assert models.reload() == []
    shutil.rmtree(run)
    assert models.reload() == [] and models.failures == 1  # gone for a moment
    assert models.all() == [first] and "the earlier one serves on" in capsys.readouterr().err
    assert models.reload() == [] and models.failures == 1  # reported once
    runs.of_questions(run, seed=2)
    assert models.reload() == ["run"]
    (second,) = models.all()
    assert second.details["weights"] != first.details["weights"] and second.heads["answer"] is not first.heads["answer"]
    assert models.reload() == [] and models.reload(force=True) == ["run"]


@pytest.mark.slow
def test_a_service_that_ends_loads_no_further_model(tmp_path: Path) -> None:
    run = runs.of_questions(tmp_path / "run")
    models = Models({"first": run, "second": run}, "float32", 4)
    ends = iter([False, True])
    assert models.reload(True, lambda: next(ends)) == ["first"]


@pytest.mark.slow
def test_a_model_that_is_loaded_again_does_not_keep_the_earlier_one(tmp_path: Path) -> None:
    models = Models({"run": runs.of_questions(tmp_path / "run")}, "float32", 4)
    heads = models.all()[0].heads
    earlier = [weakref.ref(heads[name]) for name in heads] + [weakref.ref(_embedding(models).encoder)]
    del heads
    assert models.reload(force=True) == ["run"]
    gc.collect()
    assert [found() for found in earlier] == [None] * 3


def _embedding(models: Models) -> Embedding:
    found = models.all()[0].heads["embed"]
    assert isinstance(found, Embedding)
    return found


@pytest.mark.slow
def test_a_checkpoint_that_is_still_being_copied_is_loaded_once_it_is_complete(tmp_path: Path) -> None:
    run = runs.of_questions(tmp_path / "run")
    models = Models({"run": run}, "float32", 4)
    described = json.loads((run / "config.json").read_text())
    runs.save(run, variables(TaskModel(CONFIG, 5, AnswerSpans.described)), described, step=7)
    (data,) = (run / "checkpoints/step-00000007").glob("*.data*")
    content = data.read_bytes()
    os.truncate(data, 100)
    assert models.reload() == [] and models.failures == 1
    with data.open("r+b") as stream:  # grows in place, as a copy does: its folder does not change
        stream.write(content)
    assert models.reload() == ["run"] and models.all()[0].details["checkpoint"] == "step-00000007"


@pytest.mark.slow
def test_a_checkpoint_that_is_damaged_after_it_was_loaded_serves_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs.of_questions(tmp_path / "run")
    described = json.loads((run / "config.json").read_text())
    older, newest = (run / "checkpoints" / f"step-{step:08}" for step in (3, 7))
    shutil.copytree(older, tmp_path / "older")
    runs.save(run, variables(TaskModel(CONFIG, 5, AnswerSpans.described)), described, step=7)
    shutil.move(tmp_path / "older", older)
    models = Models({"run": run}, "float32", 4)
    (data,) = newest.glob("*.data*")
    os.truncate(data, 100)
    assert models.reload() == [] and models.failures == 1
    assert "step-00000007: damaged on disk" in capsys.readouterr().err
    assert models.reload(force=True) == [] and models.failures == 2
    assert models.all()[0].details["checkpoint"] == newest.name
    shutil.rmtree(newest)
    assert models.reload() == ["run"] and models.all()[0].details["checkpoint"] == older.name
