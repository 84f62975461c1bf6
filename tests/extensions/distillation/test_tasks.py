"""A teacher's classes, labels, tags and choices are learnt by a smaller model; a wrong teacher is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import UsageError
from bert.labels import Head
from bert.training import checkpoint
from tasks import evaluate, train
from tasks.config import TaskData
from tasks.datasets import kind
from tasks.labels import Labels
from tests.extensions.distillation.test_training import divergence, sigmoid, softmax
from tests.tasks.test_train_predict import FILES, classifier, fine_tune, folder, workdir  # noqa: F401 fixtures
from tests.training import checkpoints, measured, same_bits, sign, weights

T = 1.5
SMALL = ["--model.hidden_size", "20", "--model.num_attention_heads", "5"]


def taught(folder: Path, teacher: Path, run: Path, *more: str) -> Path:  # noqa: F811
    return fine_tune(folder, "classify", run, *SMALL, "--distill.teacher", str(teacher), *more)


@pytest.mark.slow
def test_a_student_agrees_with_its_teacher_without_labels_and_resumes_to_the_same_bits(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    teacher = classifier(folder)
    rows = (folder / "train.tsv").read_text().splitlines()
    wrong = [row.replace("fruit", "?").replace("animal", "fruit").replace("?", "animal") for row in rows]
    (tmp_path / "wrong.tsv").write_text("\n".join(wrong) + "\n")  # every label is the other one
    more = (
        "--data.train",
        f"{tmp_path}/wrong.tsv",
        "--distill.weight",
        "1",
        "--run.save_every",
        "20",
        "--run.keep",
        "9",
    )
    run = taught(folder, teacher, tmp_path / "run", *more)
    capsys.readouterr()
    evaluate.main(["--model", str(run), "--input", str(folder / "dev.tsv"), "--text", "text", "--label", "kind"])
    assert '"accuracy": 100' in capsys.readouterr().out  # the teacher's, from wrong labels
    parts, last = shutil.copytree(run, tmp_path / "parts"), checkpoint.newest(run)
    for step in checkpoints(parts)[1:]:
        shutil.rmtree(parts / "checkpoints" / step)
    (parts / "best.json").unlink()
    taught(folder, teacher, parts, *more)
    same_bits(weights(run, last), weights(parts, last))
    assert not any(value.shape == (24, 24) for value in weights(run, last).values())  # none of the teacher's
    other = fine_tune(folder, "classify", tmp_path / "other", "--run.steps", "2")
    with pytest.raises(UsageError, match="was begun with a teacher of other weights"):
        taught(folder, other, parts, *more)


@pytest.mark.slow
def test_numbers_are_learned_with_the_layers_of_a_teacher_with_another_head(
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    teacher = classifier(folder)
    layers = ("--distill.weight", "0", "--distill.hidden", "1", "--distill.relations", "1")
    few = ("--distill.relation_heads", "4", "--run.steps", "8", "--run.log_every", "1")
    taught = ("--distill.teacher", str(teacher), *SMALL, *layers, *few)
    run = fine_tune(folder, "regress", tmp_path / "run", *taught)
    lines = [line for key, line in measured(run).items() if key[1] == "train"]
    assert not any("accuracy" in key for key in lines[-1])
    assert lines[-1]["hidden_loss"] < lines[0]["hidden_loss"]
    assert lines[0]["loss"] == pytest.approx(sum(lines[0][f"{n}_loss"] for n in ("classifier", "hidden", "relations")))
    evaluate.main(["--model", str(run), "--input", str(folder / FILES["regress"].format("dev"))])
    with pytest.raises(UsageError, match="leaves the head of a task untrained"):
        fine_tune(folder, "regress", tmp_path / "none", *taught, "--distill.outputs", "0")
    with pytest.raises(UsageError, match=r"distill\.hidden needs --distill\.teacher RUN"):
        fine_tune(folder, "regress", tmp_path / "none", "--distill.hidden", "1")


def test_a_teacher_of_another_task_is_refused(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    teacher = classifier(folder)
    (tmp_path / "train.tsv").write_text((folder / "train.tsv").read_text().replace("fruit", "plant"))
    with pytest.raises(UsageError, match="has classifier animal, fruit, but the data are for classifier animal, plant"):
        taught(folder, teacher, tmp_path / "none", "--data.train", f"{tmp_path}/train.tsv", "--data.dev", "none")
    command = f"regress --init.checkpoint none --data.vocab {folder}/vocab.txt --data.train {folder}/train_numbers.tsv"
    with pytest.raises(UsageError, match="needs classes"):
        train.main([*command.split(), "--distill.teacher", str(teacher), "--run.directory", f"{tmp_path}/none"])
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_new_head_has_its_classes_in_the_order_of_the_teacher(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    """As of an import: those of MNLI have other orders than GLUE's files."""
    teacher = shutil.copytree(classifier(folder), tmp_path / "teacher")
    settings = json.loads((teacher / "config.json").read_text())
    assert settings["id2label"] == {"0": "animal", "1": "fruit"}
    (teacher / "config.json").write_text(json.dumps(settings | {"id2label": {"0": "fruit", "1": "animal"}}))
    sign(teacher)
    run = taught(folder, teacher, tmp_path / "run", "--run.steps", "2", "--length.evaluations", "0")
    assert json.loads((run / "config.json").read_text())["id2label"] == {"0": "fruit", "1": "animal"}
    start = ("--init.checkpoint", str(classifier(folder)))
    with pytest.raises(UsageError, match="has classifier fruit, animal, but the data are for classifier animal, fruit"):
        fine_tune(folder, "classify", tmp_path / "other", "--distill.teacher", str(teacher), *start)


def test_soft_labels_of_each_kind_have_the_weights_of_its_labels() -> None:
    random, names = np.random.default_rng(3), ("a", "b", "c")

    def soft(recipe: str, shape: tuple[int, ...], label: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        z, of_teacher = random.normal(size=shape), random.normal(size=shape)
        task = kind(TaskData(task=recipe), Labels(names=names))
        assert task.described == Head(kind=task.head.name, labels=names if task.head.has_classes else ())
        logits, theirs = (tf.constant(x, tf.float32) for x in (z, of_teacher))
        return float(task.soft(logits, theirs, {"label": tf.constant(label)}, T)), z / T, of_teacher / T

    for recipe in ("classify", "choose"):
        value, z, of_teacher = soft(recipe, (5, 3), np.zeros((5, 1), np.int64))
        assert value == pytest.approx(T**2 * divergence(softmax(of_teacher), softmax(z)).sum(), rel=1e-5)
    read = np.array([[0, -1, 2, -1], [-1, 1, 1, 0]])
    value, z, of_teacher = soft("tag", (2, 4, 3), read)
    rows = divergence(softmax(of_teacher), softmax(z)).sum(axis=-1)
    assert value == pytest.approx(T**2 * rows[read >= 0].sum(), rel=1e-5)
    known = np.array([[1, 0, -1], [-1, 1, 1]], np.float32)
    value, z, of_teacher = soft("multilabel", (2, 3), known)
    p, q = sigmoid(of_teacher), sigmoid(z)
    assert value == pytest.approx(T**2 * (divergence(p, q) + divergence(1 - p, 1 - q))[known >= 0].sum(), rel=1e-4)
