"""Models with more rows of word embeddings than entries of the vocabulary, as those padded for tensor cores."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert import fill_mask
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.masked_words import MaskedWords
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.text.vocabulary import load_vocab
from bert.training import checkpoint
from extensions.gpt import generate
from serve import models
from serve.items import Masked
from tests import training
from tests.bert.convert.folders import SMALL, a_run, same_bits, vocabulary, weights
from tests.extensions.gpt import test_family as gpt2
from tests.training import sign

ROWS, ENTRIES = 31, 27
CONFIG = dataclasses.replace(SMALL, type_vocab_size=2)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """One model with an entry for each row, and with entries for the first ones only."""
    a_run(tmp_path / "whole", CONFIG, PretrainingModel(CONFIG, 0))
    shutil.copytree(tmp_path / "whole", tmp_path / "padded")
    (tmp_path / "padded/vocab.txt").write_text("\n".join(vocabulary(CONFIG)[:ENTRIES]) + "\n")
    sign(tmp_path / "padded")
    return tmp_path / "whole", tmp_path / "padded"


@pytest.mark.parametrize("form", ["huggingface", "google"])
def test_all_rows_go_out_and_come_in(
    form: str, runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    convert.main(["export", form, str(runs[1]), str(tmp_path / "theirs")])
    capsys.readouterr()
    convert.main(["import", form, str(tmp_path / "theirs"), str(tmp_path / "back")])
    assert "vocab.txt: 27 entries for 31 rows of embeddings; the last 4 rows are kept" in capsys.readouterr().err
    name = "config.json" if form == "huggingface" else "bert_config.json"
    assert json.loads((tmp_path / "theirs" / name).read_text())["vocab_size"] == ROWS
    before = {key: value for key, value in weights(runs[1], 7).items() if key.split("/")[0] not in ("adam_m", "run")}
    same_bits(before, weights(tmp_path / "back"))
    assert ModelConfig.load(tmp_path / "back/bert_config.json").vocab_size == ROWS
    assert load_vocab(tmp_path / "back/vocab.txt") == vocabulary(CONFIG)[:ENTRIES]


@pytest.mark.slow
def test_probabilities_are_over_all_rows_and_words_are_entries(runs: tuple[Path, Path]) -> None:
    whole, padded = (
        next(fill_mask.fill(MaskedWords(Run.open(run)), ["the [MASK] river"], 99, ["a text"]))["masks"][0]
        for run in runs
    )
    assert len(whole) == ROWS and len(padded) == ENTRIES
    known = set(vocabulary(CONFIG)[:ENTRIES])
    assert padded == [choice for choice in whole if choice["word"] in known]
    np.testing.assert_allclose(sum(choice["probability"] for choice in whole), 1, rtol=1e-5)


@pytest.mark.slow
def test_a_service_offers_entries_only(runs: tuple[Path, Path]) -> None:
    head = models.load(runs[1], "padded", "float32", 3).heads["fill"]
    prepared = head.prepare(Masked(text="the [MASK] river", top=30), 9)
    (found,) = prepared.finish(head.compute(prepared.rows))["masks"]
    assert sorted(choice["word"] for choice in found) == sorted(vocabulary(CONFIG)[:ENTRIES])


def test_fewer_rows_than_entries_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    convert.main(["export", "google", str(runs[1]), str(tmp_path / "theirs")])
    with open(tmp_path / "theirs/vocab.txt", "a") as stream:
        stream.writelines(f"more{number}\n" for number in range(5))
    with pytest.raises(InputError, match=r"vocab\.txt: 32 entries, but vocab_size is 31"):
        convert.main(["import", "google", str(tmp_path / "theirs"), str(tmp_path / "back")])


@pytest.mark.slow
def test_training_goes_on_with_all_rows(tmp_path: Path) -> None:
    dataset = training.write_dataset(tmp_path / "data")
    config = dataclasses.replace(CONFIG, vocab_size=104)  # otherwise as training.TINY says; the data has 99 entries
    old = a_run(tmp_path / "run", config, PretrainingModel(config, 0))
    shutil.copy(dataset / "vocab.txt", tmp_path / "run/vocab.txt")
    sign(tmp_path / "run")
    more = ("--model.num_hidden_layers", "2", "--run.steps", "1", "--init.checkpoint", str(tmp_path / "run"))
    training.train_here(dataset, tmp_path / "trained", *more)
    trained = training.weights(tmp_path / "trained", 1)["embeddings/word"]
    assert trained.shape == old["embeddings/word"].shape and np.abs(trained - old["embeddings/word"]).max() < 0.1


@pytest.mark.slow
def test_a_row_without_an_entry_can_be_generated_and_has_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = gpt2.a_run(tmp_path / "run")
    gamma, beta, table = "final/layer_norm/gamma", "final/layer_norm/beta", "embeddings/word"
    rows = np.concatenate([values[table], 99 * values[beta][None]])  # the last one has the best score everywhere
    changed = values | {gamma: np.zeros_like(values[gamma]), table: rows}
    dataclasses.replace(gpt2.CONFIG, vocab_size=len(rows)).save(tmp_path / "run/bert_config.json")
    checkpoint.save(tmp_path / "run", 8, changed, keep=1)
    generate.main([str(tmp_path / "run"), "the", "--temperature", "0", "--max_tokens", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == [len(rows) - 1] * 3 and found["text"] == ""
