"""A model of several labels, from columns of 0 and 1 in a table to thresholds, predictions and scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import thresholds
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.text.vocabulary import SPECIAL
from tasks import evaluate, predict, scoring, train
from tasks import thresholds as tuning
from tasks.examples import Skipped
from tasks.labels import of_positives
from tasks.loading import load
from tests.tasks.test_train_predict import MODEL

LABELS = {"animal": {"ant", "bee"}, "fruit": {"fig", "kiwi"}, "stone": set[str]()}
WORDS = ["ant", "bee", "fig", "kiwi", "the", "and"]
SETTINGS = f"""{MODEL} --data.length 9 --batch.total 24 --batch.per_device 24 --optimizer.learning_rate 0.02
    --length.epochs 12 --length.evaluations 0"""
Lines = list[dict[str, Any]]


def write(path: Path, count: int, seed: int, longest: int) -> Path:
    """Texts of 1 to `longest` words in a table; no text has the label "stone"."""
    random = np.random.default_rng(seed)
    lines = [f"text,{','.join(LABELS)}"]
    for _ in range(count):
        words = random.choice(WORDS, random.integers(1, longest + 1), p=[0.06, 0.06, 0.06, 0.06, 0.38, 0.38]).tolist()
        having = [int(bool(of & {*words})) for of in LABELS.values()]
        lines.append(f"{' '.join(words)},{','.join(map(str, having))}")
    path.write_text("\n".join(lines) + "\n")
    return path


def fine_tune(folder: Path, run: Path, *more: str) -> Path:
    files = f"--data.train {folder / 'train.csv'} --data.label_columns {' '.join(LABELS)}"
    start = f"--init.checkpoint none --data.vocab {folder}/vocab.txt --run.directory {run}"
    train.main([*f"multilabel {files} {start} {SETTINGS}".split(), *more])
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("labels")
    (path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    write(path / "train.csv", 240, 1, longest=9)
    write(path / "dev.csv", 53, 2, longest=19)
    return path


@pytest.fixture(autouse=True)
def workdir(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(folder / "work"))


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A run on texts most of which fit, with thresholds of a development set of longer ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_WORKDIR", str(folder / "work"))
        flags = ["--data.dev", str(folder / "dev.csv"), "--run.evaluate_every", "60"]
        return fine_tune(folder, folder / "run", *flags)


def predicted(run: Path, path: Path, output: Path, *more: str) -> Lines:
    predict.main(["--model", str(run), "--input", str(path), "--output", str(output), *more])
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.mark.slow
def test_labels_are_given_from_the_thresholds_of_the_run_on(run: Path, folder: Path, tmp_path: Path) -> None:
    stored = json.loads((run / thresholds.NAME).read_text())
    assert stored["thresholds"].keys() == LABELS.keys() and stored["dataset"] == "dev.csv"
    assert stored["thresholds"]["stone"] == 0.5 and stored["f1"]["stone"] == 0  # no text has it
    for at, more in ((stored["thresholds"], []), (dict.fromkeys(LABELS, 0.01), ["--threshold", "0.01"])):
        for line in predicted(run, folder / "dev.csv", tmp_path / "out.jsonl", *more):
            assert line["labels"] == [name for name in LABELS if line["probabilities"][name] >= at[name]]
            assert line.keys() == {"id", "labels", "probabilities"}


def test_the_thresholds_are_those_of_the_command(run: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / thresholds.NAME).read_bytes()
    tuning.main(["--model", str(run), "--input", str(folder / "dev.csv")])
    assert (run / thresholds.NAME).read_bytes() == before
    assert json.loads(capsys.readouterr().out)["examples"] == 53
    (run / thresholds.NAME).write_bytes(before.replace(b"dev.csv", b"dev.tsv"))
    with pytest.raises(IntegrityError, match="not thresholds of labels"):
        load(run)
    facts = json.loads(before)
    del facts["checksum"]
    thresholds.write(run, thresholds.Tuned(**facts | {"weights": "others"}))
    with pytest.raises(UsageError, match="tuned for another checkpoint; tune again"):
        load(run)
    (run / thresholds.NAME).write_bytes(before)


@pytest.mark.slow
def test_a_label_that_no_text_has_is_told(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fine_tune(folder, tmp_path / "run", "--run.steps", "1", "--data.limit", "239")
    told = capfd.readouterr().err
    assert "no text has stone; the model learns to give it to none" in told and "of 239 texts have none" in told
    assert not (tmp_path / "run" / thresholds.NAME).exists()  # without a development set
    load(tmp_path / "run")
    assert "no stored thresholds; labels are given from 0.5 on" in capfd.readouterr().err


def test_rare_labels_weigh_as_much_as_their_absence() -> None:
    assert of_positives([3, 0, 7, 5], [12, 12, 7, 6]) == (3.0, 1.0, 1.0, 0.2)


@pytest.mark.slow
def test_long_texts_are_read_whole_on_request(
    run: Path, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A text has a label if one of its words says so, which may be behind the first window."""
    capfd.readouterr()
    found = {}
    for how in ("first", "mean", "max"):
        evaluate.main(["--model", str(run), "--input", str(folder / "dev.csv"), "--windows", how])
        out, err = capfd.readouterr()
        found[how] = json.loads(out)
        assert ("do not fit 9 tokens and are read in windows" in err) == (how != "first")
        assert ("of all tokens are not read" in err) == (how == "first")
    assert found["max"]["windows"] == "max" and "windows" not in found["first"]
    assert found["max"]["roc_auc"] > found["first"]["roc_auc"] + 3
    options = ["--windows", "max", "--stride", "3"]
    lines = predicted(run, folder / "dev.csv", tmp_path / "out.jsonl", *options)
    words = [len(row.split(",")[0].split()) for row in (folder / "dev.csv").read_text().splitlines()[1:]]
    assert [line["windows"] for line in lines] == [1 + max(0, -(-(count - 7) // 3)) for count in words]
    evaluate.main(["--model", str(run), "--input", str(folder / "dev.csv"), *options])
    scored = json.loads(capfd.readouterr().out)
    written = scoring.compare(load(run).kind, folder / "dev.csv", tmp_path / "out.jsonl", Skipped())
    assert written == pytest.approx({name: value for name, value in scored.items() if name != "windows"}, abs=1e-4)


def test_what_is_no_file_of_predictions_is_one_line(run: Path, folder: Path, tmp_path: Path) -> None:
    kind = load(run).kind
    line = {"id": "0", "labels": [], "probabilities": dict.fromkeys(LABELS, 0.5)}
    (tmp_path / "one.csv").write_text("text,animal,fruit,stone\nant,1,0,0\n")
    for wrong in (None, "0.5", True):
        line["probabilities"] = dict.fromkeys(LABELS, wrong)
        (tmp_path / "out.jsonl").write_text(json.dumps(line) + "\n")
        with pytest.raises(InputError, match="the prediction for '0' has no `labels` and `probabilities`"):
            scoring.compare(kind, tmp_path / "one.csv", tmp_path / "out.jsonl", Skipped())
    for name in ("out.csv", "out.tsv", "out.parquet"):
        with pytest.raises(InputError, match=r"only predictions in \.jsonl are scored"):
            scoring.compare(kind, folder / "dev.csv", tmp_path / name, Skipped())


@pytest.mark.slow
def test_a_run_that_reads_windows_is_scored_by_them(folder: Path, tmp_path: Path, capfd: Any) -> None:
    windows = ["--data.windows", "max", "--data.stride", "4", "--data.dev", str(folder / "dev.csv")]
    made = fine_tune(folder, tmp_path / "run", *windows, "--run.steps", "40", "--run.evaluate_every", "20")
    best = json.loads((made / "best.json").read_text())
    capfd.readouterr()
    evaluate.main(["--model", str(made), "--input", str(folder / "dev.csv")])
    found = json.loads(capfd.readouterr().out)
    assert found["windows"] == "max" and found["examples"] == 53
    assert found[best["measure"]] == pytest.approx(best["value"], abs=1e-3) and best["value"] > 60


def test_what_has_no_effect_is_refused(run: Path, folder: Path) -> None:
    model = ["--model", str(run)]
    with pytest.raises(UsageError, match="--stride has no effect with windows first"):
        predict.main([*model, "--stride", "3", "the ant"])
    with pytest.raises(UsageError, match="is a pair, and windows are for single texts"):
        predict.main([*model, "--windows", "mean", "the ant", "the bee"])
    with pytest.raises(InputError, match="label 'tree' is not one of the model's"):
        (folder / "trees.jsonl").write_text('{"text": "ant", "labels": ["tree"]}\n')
        evaluate.main([*model, "--input", str(folder / "trees.jsonl"), "--label", "labels"])
