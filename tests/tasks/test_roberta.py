"""Tasks with a RoBERTa: the layout of pairs and of words, and runs from an import to predictions."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert.convert import __main__ as convert
from bert.core.errors import UsageError
from bert.text import byte_bpe
from bert.text.tokenization import BytePairTokenizer
from tasks import alignment, inputs, predict, train
from tests.bert.convert.test_roberta import MERGES, TOKENS, VOCABULARY, a_folder

G = "\u0120"  # a space


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BytePairTokenizer:
    path = tmp_path_factory.mktemp("bpe") / byte_bpe.NAME
    path.write_text(byte_bpe.text_of_tables(byte_bpe.Tables(VOCABULARY, MERGES, byte_bpe.ROBERTA), path))
    return BytePairTokenizer(path)


def shown(ids: np.ndarray, mask: np.ndarray) -> str:
    return " ".join(TOKENS[number] for number in ids[mask > 0])


def test_pairs_have_two_separators_and_one_segment(tokenizer: BytePairTokenizer) -> None:
    found = inputs.pairs(tokenizer, ["the river", "river", "the" * 9], ["the", None, "river" * 5], 13)
    rows = [shown(ids, mask) for ids, mask in zip(found["input_ids"], found["input_mask"], strict=True)]
    assert rows[:2] == [f"<s> the {G}river </s> </s> the </s>", "<s> river </s>"]
    assert rows[2] == "<s> the the the the the </s> </s> river river river river </s>"
    assert not found["segment_ids"].any() and (found["input_ids"][found["input_mask"] == 0] == 1).all()
    with pytest.raises(UsageError, match="the special tokens alone are 4"):
        inputs.pairs(tokenizer, ["the"], ["the"], 3)


def test_each_word_of_a_sentence_has_a_space_before_it(tokenizer: BytePairTokenizer) -> None:
    made = alignment.windows(tokenizer, [["the", "rivers", "the"]], 11, 4)
    assert shown(made.input_ids[0], made.input_mask[0]) == f"<s> {G}the {G}river s {G}the </s>"
    assert made.position.tolist() == [1, 2, 4]


@pytest.mark.slow
def test_an_import_is_fine_tuned_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    a_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "start")])
    lines = [f"{'river' if number % 2 else 'the the'}\t{'ab'[number % 2]}" for number in range(24)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    flags = "--data.length 11 --batch.total 12 --batch.per_device 6 --run.steps 2"
    place = f"--data.train {tmp_path}/train.tsv --init.checkpoint {tmp_path}/start --run.directory {tmp_path}/run"
    train.main(["classify", *place.split(), *flags.split()])
    files = ["--input", str(tmp_path / "train.tsv"), "--output", str(tmp_path / "found.jsonl")]
    predict.main(["--model", str(tmp_path / "run"), *files])
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert len(found) == 24 and {line["label"] for line in found} <= {"a", "b"}
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert config["architectures"] == ["RobertaForSequenceClassification"]
    assert config["id2label"] == {"0": "a", "1": "b"}
