"""DistilBERT, ELECTRA and RoBERTa are fine-tuned, answer, are served and go out, as BERT does."""

import json
from pathlib import Path

import pytest

from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from serve import models
from serve.items import Masked
from squad import export
from squad import predict as answer
from squad import train as ask
from tasks import predict, train
from tests.extensions.families import test_families as families
from tests.extensions.families import test_roberta as roberta

pytestmark = pytest.mark.slow

TITLES = families.TITLES | {"roberta": "Roberta"}
PASSAGE = "the river flows a river the flowing river the a w1 w2"


@pytest.fixture(params=["electra", "roberta", pytest.param("distilbert", marks=pytest.mark.thorough)])
def start(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The import of a small model with a head for masked words."""
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    if request.param == "roberta":
        roberta.a_folder(tmp_path / "theirs")
    else:
        families.a_folder(tmp_path / "theirs", request.param)
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / request.param)])
    return tmp_path / request.param


def test_an_import_is_fine_tuned_predicts_is_served_and_goes_out(start: Path, tmp_path: Path) -> None:
    served = models.load(start, start.name, "float32", 3)
    mask, fill = "<mask>" if start.name == "roberta" else "[MASK]", served.heads["fill"]
    assert served.details["uses"] == ["fill", "embed"] and served.details["mask"] == mask
    prepared = fill.prepare(Masked(text=f"the {mask} the", top=2), 9)
    assert [len(choices) for choices in prepared.finish(fill.compute(prepared.rows))["masks"]] == [2]
    lines = [f"{'river' if number % 2 else 'the the'}\t{'ab'[number % 2]}" for number in range(24)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    flags = "--data.length 11 --batch.total 12 --batch.per_device 6 --run.steps 2"
    place = f"--data.train {tmp_path}/train.tsv --init.checkpoint {start} --run.directory {tmp_path}/run"
    train.main(["classify", *place.split(), *flags.split()])
    trained, first = (ModelConfig.load(run / "bert_config.json") for run in (tmp_path / "run", start))
    assert (trained.pooler_act, trained.embedding_size) == (first.pooler_act, first.embedding_size)
    files = ["--input", str(tmp_path / "train.tsv"), "--output", str(tmp_path / "found.jsonl")]
    predict.main(["--model", str(tmp_path / "run"), *files])
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert len(found) == 24 and {line["label"] for line in found} <= {"a", "b"}
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert config["architectures"] == [f"{TITLES[start.name]}ForSequenceClassification"]
    assert config["id2label"] == {"0": "a", "1": "b"}


@pytest.mark.thorough
def test_an_import_learns_to_answer_questions(start: Path, tmp_path: Path) -> None:
    answers = [{"text": "flows", "answer_start": PASSAGE.index("flows")}]
    asked = [{"id": str(number), "question": "the river", "answers": answers} for number in range(12)]
    articles = [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": asked}]}]
    (tmp_path / "train.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    flags = "--windows.max_seq_length 17 --windows.doc_stride 5 --windows.max_query_length 4 --batch.total 12"
    flags += " --batch.per_device 6 --run.steps 2"
    place = f"--data.train_file {tmp_path}/train.json --init.checkpoint {start} --run.directory {tmp_path}/run"
    ask.main(["squad_tiny", *place.split(), *flags.split()])
    files = ["--dataset", str(tmp_path / "train.json"), "--output", str(tmp_path / "answers.json")]
    answer.main(["--model", str(tmp_path / "run"), *files])
    found = json.loads((tmp_path / "answers.json").read_text())
    assert list(found) == [str(number) for number in range(12)] and all(text in PASSAGE for text in found.values())
    if start.name == "roberta":
        assert (tmp_path / "run/tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
        assert not (tmp_path / "run/vocab.txt").exists()
        with pytest.raises(UsageError, match="only word pieces have operations in a graph"):
            export.main(["--model", str(tmp_path / "run"), "--output", str(tmp_path / "served")])
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert config["architectures"] == [f"{TITLES[start.name]}ForQuestionAnswering"]
