"""The scores while fine-tuning are those of squad.predict and squad.metric, and name the best checkpoint."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bert.core import manifest
from bert.core.errors import InputError
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from bert.training import selection
from squad import examples, features, metric, predict, train
from squad.config import SquadData, Windowing
from squad.development import Questions
from tests.squad.test_train_predict import FLAGS, MODEL, WORDS, records, write_lines
from tests.training import checkpoints

SMALL = Windowing(max_seq_length=29, doc_stride=7, max_query_length=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("development")
    (path / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    write_lines(path / "train.jsonl", (line for line in records(225, seed=1) if not line["is_impossible"]))
    write_lines(path / "dev.jsonl", (line for line in records(55, seed=2) if not line["is_impossible"]))
    return path


@pytest.mark.slow
def test_the_best_checkpoint_has_the_scores_of_predict_and_metric(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    run = tmp_path / "run"
    files = f"--data.train_file {folder}/train.jsonl --data.dev_file {folder}/dev.jsonl --run.directory {run}"
    start = f"--init.checkpoint none --data.vocab {folder}/vocab.txt --length.evaluations 1 --run.keep 1"
    start += " --data.language en"
    train.main(f"squad_tiny {files} {start} {FLAGS} {MODEL}".split())
    best = selection.read(run)
    assert best is not None and best.measure == "f1" and best.value > 80
    assert f"step-{best.step:08d}" in checkpoints(run)
    measured = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values = {line["step"]: line["f1"] for line in measured if line["split"] == "heldout"}
    assert len(values) >= 2 and max(values.values()) == values[best.step] == best.value
    predict.main(f"--model {run} --dataset {folder}/dev.jsonl --output {tmp_path}/answers.json --batch 5".split())
    assert "answers.json --language en" in capfd.readouterr().err  # the next command has the rules of the run
    dataset = examples.read_dataset(folder / "dev.jsonl")
    score = metric.score(dataset.examples, json.loads((tmp_path / "answers.json").read_text()))
    [line] = [line for line in measured if line["step"] == best.step and line["split"] == "heldout"]
    assert (line["exact_match"], line["f1"]) == pytest.approx((score.exact_match, score.f1), abs=1e-9)


def test_no_answer_is_right_where_there_is_none(folder: Path, tmp_path: Path) -> None:
    questions = Questions(write_lines(tmp_path / "dev.jsonl", records(37, seed=2)), None)
    questions.write(WordPieceTokenizer(folder / "vocab.txt"), SMALL, tmp_path)
    shape = questions.places.max_context.shape
    starts, ends = np.zeros((2, *shape), np.float32)
    starts[:, 0] = ends[:, 0] = 1  # [CLS] has the highest scores: no question is answered
    none = questions.scores(starts, ends, threshold=0.0)
    assert none == pytest.approx({"exact_match": 1200 / 37, "f1": 1200 / 37})
    assert questions.scores(starts, ends, threshold=None)["exact_match"] < 1200 / 37
    starts[3, 5] = np.nan
    assert all(np.isnan(value) for value in questions.scores(starts, ends, threshold=0.0).values())


def test_a_development_set_is_scored_by_the_rules_of_its_language(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = {"text": "der dog", "answer_start": 11}  # of which the model gives the second word
    content = {"id": "a", "question": "who ?", "context": "und it ist der dog", "answers": [answer]}
    path = write_lines(tmp_path / "dev.jsonl", [content])
    found = []
    for language in (None, "de"):
        questions = Questions(path, language)
        questions.encode(WordPieceTokenizer(folder / "vocab.txt"), SMALL)
        starts, ends = np.zeros((2, *questions.places.max_context.shape), np.float32)
        place = int(np.flatnonzero(questions.places.max_context[0])[-1])
        starts[0, place] = ends[0, place] = 1
        found.append(questions.scores(starts, ends, None)["exact_match"])
    assert found == [0.0, 100.0]
    assert "MLQA's rules: --data.language de" in capfd.readouterr().err


def test_a_bad_development_set_is_one_line(tmp_path: Path) -> None:
    dataset = {"version": "1.1", "data": [{"paragraphs": [{"context": "the dog", "qas": []}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(dataset))
    with pytest.raises(InputError, match=r"dev\.json: "):
        Questions(tmp_path / "dev.json", None)
    dataset["data"][0]["paragraphs"][0]["qas"] = [{"id": "a", "question": "who", "answers": []}]  # type: ignore[index]
    (tmp_path / "dev.json").write_text(json.dumps(dataset))
    with pytest.raises(InputError, match=r"dev\.json: .*a"):
        Questions(tmp_path / "dev.json", None)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_limit_leaves_the_first_questions(
    folder: Path, tmp_path: Path, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = examples.read_pieces
    monkeypatch.setattr(examples, "read_pieces", lambda path, strict: original(path, strict=strict, questions=pieces))
    tokenizer, vocab = WordPieceTokenizer(folder / "vocab.txt"), folder / "vocab.txt"
    data = SquadData(train_file=folder / "train.jsonl", limit=11)
    limited = features.training_set(data, tokenizer, vocab, SMALL, tmp_path)
    whole = features.training_set(dataclasses.replace(data, limit=0), tokenizer, vocab, SMALL, tmp_path)
    assert manifest.load(limited).counts["questions"] == 11
    first, second = ((part / "train-00000-of-00001.tfrecord").read_bytes() for part in (limited, whole))
    assert len(first) < len(second) and second.startswith(first)
