"""Each kind of task is learnt, scored and predicted by a tiny model, from files made up here."""

import csv
import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.errors import InputError, UsageError
from bert.text.vocabulary import SPECIAL
from bert.training import selection
from tasks import evaluate, predict, scoring, tables, train
from tasks.examples import Skipped
from tasks.loading import _kind, load
from tasks.model import Reader
from tests.training import checkpoints, same_bits, weights

ANIMALS = ["ant", "bee", "cat", "dog", "eel", "fox"]
FRUITS = ["fig", "kiwi", "lime", "nut", "pear", "plum"]
WORDS = [*ANIMALS, *FRUITS, "a", "the", "and", "is", "here", ".", "?"]
MODEL = """--model.hidden_size 24 --model.num_attention_heads 3 --model.num_hidden_layers 1 --model.intermediate_size 40
    --model.max_position_embeddings 33 --model.hidden_dropout_prob 0 --model.attention_probs_dropout_prob 0"""
SETTINGS = f"""{MODEL} --data.length 17 --batch.total 24 --batch.per_device 12 --optimizer.learning_rate 0.02
    --length.epochs 6 --length.evaluations 2 --run.log_every 1000"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary, and for each kind a training and a development set."""
    path = tmp_path_factory.mktemp("tasks")
    (path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    for split, count, seed in (("train", 240, 1), ("dev", 53, 2)):
        rng = np.random.default_rng(seed)
        made = [_sentence(rng) for _ in range(count)]
        kinds = ["fruit" if word in FRUITS else "animal" for _, word in made]
        _write(
            path / f"{split}.tsv",
            ["kind\ttext", *(f"{k}\t{' '.join(s)}" for k, (s, _) in zip(kinds, made, strict=True))],
        )
        numbers = [FRUITS.index(word) / 2 if word in FRUITS else -1.0 for _, word in made]
        rows = zip(numbers, made, strict=True)
        _write(path / f"{split}_numbers.tsv", ["label\ttext", *(f"{n}\t{' '.join(s)}" for n, (s, _) in rows)])
        _write(path / f"{split}.jsonl", [json.dumps(_question(rng)) for _ in range(count)])
        _write(path / f"{split}_labels.jsonl", [json.dumps(_labelled(rng)) for _ in range(count)])
        _write(path / f"{split}.conll", [line for sentence, _ in made for line in [*map(_tagged, sentence), ""]])
    return path


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def _sentence(rng: np.random.Generator) -> tuple[list[str], str]:
    """Two to nine words with one animal or fruit among them."""
    words = rng.choice(["a", "the", "and", "is", "here"], rng.integers(1, 9)).tolist()
    word = str(rng.choice([*ANIMALS, *FRUITS]))
    words.insert(int(rng.integers(len(words) + 1)), word)
    return words, word


def _labelled(rng: np.random.Generator) -> dict[str, Any]:
    """One to eight words and the labels of the animals and fruits among them, of which there may be none."""
    words = rng.choice([*ANIMALS[:3], *FRUITS[:3], "a", "the", "and", "is", "here", "."], rng.integers(1, 9)).tolist()
    kinds = {"animal": ANIMALS, "fruit": FRUITS}
    return {"text": " ".join(words), "labels": [name for name, of in kinds.items() if {*words} & {*of}]}


def _question(rng: np.random.Generator) -> dict[str, Any]:
    """Three choices, one of which is a fruit."""
    label = int(rng.integers(3))
    choices = [str(rng.choice(FRUITS if number == label else ANIMALS)) for number in range(3)]
    return {"context": " ".join(_sentence(rng)[0]), "choices": choices, "label": label}


def _tagged(word: str) -> str:
    return f"{word}\tI-FRUIT" if word in FRUITS else f"{word}\tO"


FILES = {
    "classify": "{}.tsv",
    "regress": "{}_numbers.tsv",
    "choose": "{}.jsonl",
    "tag": "{}.conll",
    "multilabel": "{}_labels.jsonl",
}
COLUMNS = {"classify": "--data.label kind"}


def fine_tune(folder: Path, recipe: str, run: Path | str, *more: str) -> Path:
    files = [f"--data.{split} {folder / FILES[recipe].format(split)}" for split in ("train", "dev")]
    start = f"--init.checkpoint none --data.vocab {folder}/vocab.txt --run.directory {run}"
    words = f"{recipe} {' '.join(files)} {start} {SETTINGS} {COLUMNS.get(recipe, '')}".split()
    given = dict(zip(words[1::2], words[2::2], strict=True)) | dict(zip(more[::2], more[1::2], strict=True))
    train.main([recipe, *(word for pair in given.items() for word in pair)])
    return Path(run)


@pytest.fixture(autouse=True)
def workdir(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(folder / "work"))


@pytest.fixture(
    scope="module",
    params=["classify", "regress", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("choose", "tag"))],
)
def run(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A run of each kind; its name is that of the recipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_WORKDIR", str(folder / "work"))
        return fine_tune(folder, request.param, folder / request.param)


def classifier(folder: Path) -> Path:
    """The run of `classify`, which is made if no test of all kinds has made it."""
    run = folder / "classify"
    return run if run.exists() else fine_tune(folder, "classify", run)


def dev(run: Path) -> Path:
    return run.parent / FILES[run.name].format("dev")


def scores(run: Path) -> dict[str, float]:
    model = load(run)
    return scoring.evaluate(model, Reader(model, 7), dev(run), Skipped())


@pytest.mark.slow
def test_each_kind_is_learnt_and_the_best_checkpoint_has_the_scores_of_training(run: Path) -> None:
    found, best = scores(run), selection.read(run)
    assert best is not None and found["examples"] == 53 and best.measure in found
    assert found[best.measure] == pytest.approx(best.value, abs=1e-3)
    assert found[best.measure] > 80  # by chance: 50, 0, 33, 0 and about 50
    assert f"step-{best.step:08d}" in checkpoints(run)


@pytest.mark.slow
def test_written_predictions_have_the_scores_of_the_model(run: Path, tmp_path: Path) -> None:
    predict.main(["--model", str(run), "--input", str(dev(run)), "--output", str(tmp_path / "out.jsonl")])
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == [str(number) for number in range(53)]
    written = scoring.compare(load(run).kind, dev(run), tmp_path / "out.jsonl", Skipped())
    assert written == pytest.approx(scores(run), abs=1e-4)
    for content, reason in ((lines[:-1], "1 ids have no prediction: '52'"), ([*lines, lines[3]], "more than once")):
        (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, content)))
        with pytest.raises(InputError, match=reason):
            scoring.compare(load(run).kind, dev(run), tmp_path / "bad.jsonl", Skipped())


@pytest.mark.slow
def test_a_model_of_glue_predicts_a_table_of_ones_own_to_any_format(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    def loaded(*arguments: Any) -> Any:
        model = load(*arguments)
        model.kind.data = dataclasses.replace(model.kind.data, task="sst2")
        return model

    monkeypatch.setattr("tasks.loading.load", loaded)
    _write(tmp_path / "own.csv", ["id,words", 'x7,"the plum, is here"', "x8,a dog"])
    given = ["--model", str(classifier(folder)), "--input", str(tmp_path / "own.csv"), "--text", "words"]
    predict.main([*given, "--output", "-", "--n_best", "1"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [(row["id"], row["label"], len(row["n_best"])) for row in printed]
    assert found == [("x7", "fruit", 1), ("x8", "animal", 1)]
    assert all(row["n_best"][0]["label"] == row["label"] and row["n_best"][0]["probability"] > 0.5 for row in printed)
    predict.main([*given, "--output", str(tmp_path / "out.csv")])
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["label"] for row in rows] == ["fruit", "animal"]
    best = [float(row[f"probabilities.{row['label']}"]) for row in rows]
    assert best == pytest.approx([row["n_best"][0]["probability"] for row in printed], abs=1e-6)
    with pytest.raises(UsageError, match="a model of sst2 reads one text"):
        predict.main([*given, "id", "--output", "-"])


def test_equal_ids_of_predictions_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(
        tmp_path / "gaps.jsonl", ['{"id": 1.0, "text": "a"}', '{"id": null, "text": "b"}', '{"id": 3.0, "text": "c"}']
    )
    skipped = Skipped()
    lines = [
        {"id": row.id}
        for row in tables.read(tmp_path / "gaps.jsonl", ["text"], None, regression=False, skipped=skipped)
    ]
    assert [*predict.with_told_ids(lines, Path("gaps.jsonl"))] == lines == [{"id": "1"}, {"id": "1"}, {"id": "3"}]
    assert "gaps.jsonl: examples 1 and 2 have the same id" in capsys.readouterr().err
    assert [*predict.with_told_ids(lines[1:], Path("f"))] == lines[1:] and not capsys.readouterr().err


def test_a_text_on_the_command_line_is_classified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predict.main(["--model", str(classifier(folder)), "the plum is here"])
    line = json.loads(capsys.readouterr().out)
    assert line["label"] == "fruit" and math.isclose(sum(line["probabilities"].values()), 1)


def test_a_run_whose_record_lacks_how_texts_are_read_is_refused(folder: Path) -> None:
    run = load(classifier(folder)).run
    read = {name: value for name, value in run.settings["inputs"].items() if name != "task"}
    run.settings = run.settings | {"inputs": read}
    with pytest.raises(InputError, match=r"config\.json: not the configuration of a tasks\.train run"):
        _kind(run)


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_weights_and_the_same_best_checkpoint(folder: Path, tmp_path: Path) -> None:
    whole = fine_tune(folder, "classify", tmp_path / "whole", "--run.steps", "20")
    fine_tune(folder, "classify", tmp_path / "parts", "--run.steps", "20", "--run.save_every", "5", "--run.keep", "4")
    for step in (10, 15, 20):
        shutil.rmtree(tmp_path / "parts" / "checkpoints" / f"step-{step:08d}")
    assert checkpoints(tmp_path / "parts") == ["step-00000005"]  # from which it goes on
    (tmp_path / "parts" / selection.BEST).unlink()
    fine_tune(folder, "classify", tmp_path / "parts", "--run.steps", "20")
    same_bits(weights(whole, 20), weights(tmp_path / "parts", 20))
    assert selection.read(whole) == selection.read(tmp_path / "parts")


@pytest.mark.slow
def test_a_run_of_more_epochs_reads_each_sample_as_often_and_its_record_repeats_it(
    folder: Path, tmp_path: Path
) -> None:
    run = fine_tune(folder, "classify", tmp_path / "run", "--length.epochs", "0.7")  # ends within a sorted pool
    with pytest.raises(UsageError, match=r"give --optimizer\.warmup_steps 0 to go on with it"):  # 7 and 20 updates
        fine_tune(folder, "classify", run, "--length.epochs", "2")
    with pytest.raises(UsageError, match=r"run\.steps was 7, now 5"):
        fine_tune(folder, "classify", run, "--length.epochs", "0.5")
    fine_tune(folder, "classify", run, "--length.epochs", "2", "--length.warmup", "0")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["split"], last["step"], last["least"], last["most"]) == ("fed", 20, 2, 2)

    record = ["--config", str(run / "config.json")]
    with pytest.raises(UsageError, match=r"--length\.epochs has no effect beside run\.steps 7 of"):
        train.main([*record, "--length.epochs", "2"])
    train.main([*record, "--run.steps", "0", "--length.epochs", "2", "--length.warmup", "0"])  # it has ended
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1]) == last
    other, again = tmp_path / "other", tmp_path / "again"
    fine_tune(folder, "classify", other, "--length.epochs", "0.7")
    train.main([*record, "--run.directory", str(again)])
    same_bits(weights(other, 7), weights(again, 7))


@pytest.mark.slow
def test_a_run_without_improvement_ends_and_stays_ended(folder: Path, tmp_path: Path, capfd: Any) -> None:
    patient = ("--run.patience", "2", "--optimizer.learning_rate", "0", "--run.keep", "1")
    fine_tune(folder, "classify", tmp_path / "run", *patient)
    assert "no improvement in 2 evaluations; accuracy" in capfd.readouterr().err
    best, last = selection.read(tmp_path / "run"), checkpoints(tmp_path / "run")[-1]
    assert best is not None and checkpoints(tmp_path / "run") == [f"step-{best.step:08d}", last]  # despite run.keep
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    fine_tune(folder, "classify", tmp_path / "run", *patient)
    assert checkpoints(tmp_path / "run")[-1] == last and (tmp_path / "run" / "metrics.jsonl").read_text() == before


@pytest.mark.slow
def test_a_second_run_keeps_the_head_of_the_same_labels_only(folder: Path, tmp_path: Path, capfd: Any) -> None:
    first = classifier(folder)
    reversed_rows = (folder / "train.tsv").read_text().splitlines()
    _write(tmp_path / "train.tsv", [reversed_rows[0], *reversed(reversed_rows[1:])])
    command = f"classify --init.checkpoint {first} --data.train {tmp_path}/train.tsv --data.length 17 --data.label kind"
    flags = "--run.steps 2 --optimizer.learning_rate 0 --batch.per_device 12 --batch.total 24"
    train.main(f"{command} {flags} --run.directory {tmp_path}/same".split())
    assert "initialised randomly" not in capfd.readouterr().err
    same = weights(tmp_path / "same", 2)["classifier/kernel"]
    best = selection.read(first)
    assert best is not None
    np.testing.assert_array_equal(same, weights(first, best.step)["classifier/kernel"])
    _write(tmp_path / "train.tsv", [row.replace("fruit", "plant") for row in reversed_rows])
    train.main(f"{command} {flags} --run.directory {tmp_path}/other".split())
    assert "classifier has classes animal, fruit, not classes animal, plant; init" in capfd.readouterr().err


@pytest.mark.slow
def test_f1_is_over_the_positive_classes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fine_tune(folder, "classify", tmp_path / "run", "--data.positive", "fruit", "--run.steps", "12")
    best = selection.read(run)
    assert best is not None and best.measure == "micro_f1"
    _, *rows = (folder / "dev.tsv").read_text().splitlines()
    _write(tmp_path / "other.tsv", ["relation\tsentence", *rows])
    names = ["--text", "sentence", "--label", "relation"]  # other columns than in training
    capsys.readouterr()
    evaluate.main(["--model", str(run), "--input", str(tmp_path / "other.tsv"), *names])
    found = json.loads(capsys.readouterr().out)
    assert found["micro_f1"] == pytest.approx(best.value, abs=1e-3) and "accuracy" in found
    evaluate.main(["--model", str(run), "--input", str(tmp_path / "other.tsv"), *names, "--limit", "9"])
    assert json.loads(capsys.readouterr().out)["examples"] == 9
    with pytest.raises(UsageError, match=r"--data\.positive 'plant' is not one of the classes: animal, fruit"):
        fine_tune(folder, "classify", tmp_path / "none", "--data.positive", "plant")


@pytest.mark.slow
def test_frozen_layers_stay_those_of_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    first = classifier(folder)
    best = selection.read(first)
    assert best is not None
    command = f"classify --init.checkpoint {first} --data.train {folder}/train.tsv --data.length 17 --data.label kind"
    flags = f"--batch.per_device 12 --batch.total 24 --run.directory {tmp_path}/run --optimizer.warmup_steps 1"
    train.main(f"{command} {flags} --run.steps 3 --init.frozen_layers 1".split())
    before, after = weights(first, best.step), weights(tmp_path / "run", 3)
    for name in before:
        if name.startswith(("embeddings/", "layer_0/", "pooler/", "classifier/")):
            is_same = before[name].tobytes() == after[name].tobytes()
            assert is_same == name.startswith(("embeddings/", "layer_0/")), name
    with pytest.raises(UsageError, match="frozen_layers 2 is more than the 1 layers"):
        train.main(f"{command} {flags}2 --run.steps 3 --init.frozen_layers 2".split())
    with pytest.raises(UsageError, match=r"needs --init\.checkpoint RUN"):
        fine_tune(folder, "classify", tmp_path / "random", "--init.frozen_layers", "1")


@pytest.mark.parametrize(
    ("recipe", "content", "reason"),
    [
        ("classify", "kind\ttext\nfruit\tfig\nfruit\tplum\n", "all 2 examples have the label 'fruit'"),
        ("classify", "kind\ttext\n", r"train\.tsv: no usable example; check the file"),
        ("classify", "a\ttext\nfruit\tfig\n", "the column 'kind' is missing"),
        ("multilabel", '{"text": "fig", "labels": null}\n', "no usable example; .* labels is None, not a list of the"),
        ("multilabel", '{"text": "fig", "labels": [1, 0]}\n', "labels has 0 and 1 only; .*--data.label_columns"),
        ("multilabel", '{"text": "fig", "labels": "0 1"}\n', "labels has 0 and 1 only; .*--data.label_columns"),
        ("regress", "label\ttext\n1\tfig\n1e39\tplum\n", r"example 1: the number 1e\+39 is beyond"),
        ("regress", "label\ttext\nhigh\tfig\n", "no usable example; the first of 1 that are not: .* label is 'high'"),
        ("choose", '{"context": "a", "choices": ["b"], "label": 0}\n', "choices"),
        ("tag", "fig\tfruit\n\n", "fruit"),
    ],
)
def test_a_bad_training_set_is_one_line_and_leaves_no_run(
    folder: Path, tmp_path: Path, recipe: str, content: str, reason: str
) -> None:
    path = tmp_path / FILES[recipe].format("train")
    path.write_text(content)
    with pytest.raises(InputError, match=reason):
        fine_tune(folder, recipe, tmp_path / "run", "--data.train", str(path))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_largest_numbers_that_are_taken_can_be_learned(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "train.tsv", ["label\ttext", *(f"{number}\tfig" for number in (1e15, -1e15, 1e15))])
    flags = ("--data.train", str(tmp_path / "train.tsv"), "--run.steps", "3")
    run = fine_tune(folder, "regress", tmp_path / "run", *flags)
    assert run.exists() and "skipped" not in capfd.readouterr().err


def test_an_unknown_label_and_a_missing_file_are_one_line(folder: Path, tmp_path: Path) -> None:
    _write(tmp_path / "dev.tsv", ["kind\ttext", "stone\tfig"])
    with pytest.raises(InputError, match=r"example 0: label 'stone' is not one of the model's \(animal, fruit\)"):
        fine_tune(folder, "classify", tmp_path / "run", "--data.dev", str(tmp_path / "dev.tsv"))
    with pytest.raises(UsageError, match=r"no examples: give --data\.train"):
        train.main(["classify", "--init.checkpoint", "none", "--data.vocab", str(folder / "vocab.txt")])
    with pytest.raises(InputError, match=r"nowhere\.tsv: no such file"):
        fine_tune(folder, "classify", tmp_path / "run", "--data.dev", str(tmp_path / "nowhere.tsv"))
    assert not (tmp_path / "run").exists()
