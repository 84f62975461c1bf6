"""A checkpoint is evaluated as during training, and texts are scored and filled with each token's true probability."""

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest

from bert import evaluate, fill_mask, masked_evaluation
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.masked_words import MaskedWords
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch, variables
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.text import vocabulary
from bert.text.normalization import UNCASED
from bert.text.records import Dataset
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from tests.training import measured, train_here, write_dataset

WORDS = ["ant", "bee", "cat", "##s", "dog", "sees", "a", "the", "."]
SMALL = ModelConfig(
    vocab_size=len(SPECIAL) + len(WORDS),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=11,
    initializer_range=0.5,
)


def write_run(folder: Path) -> Path:
    """Write a run directory with random weights."""
    folder.mkdir()
    SMALL.save(folder / "bert_config.json")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    checkpoint.save(folder, 3, variables(PretrainingModel(SMALL, seed=5)), keep=1)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@functools.cache
def training_model(run: Path) -> PretrainingModel:
    model = PretrainingModel(SMALL, seed=0)
    checkpoint.load_weights(run, variables(model))
    return model


def log_probabilities(run: Path, ids: list[int], place: int) -> np.ndarray:
    """log p [V] of the training model, at one place of one text without padding."""
    model = training_model(run)
    mode = Mode(np.float32, DropoutRng(None))
    tokens = np.array([ids], np.int32)
    hidden = model.encoder(TokenBatch(tokens, np.ones_like(tokens), np.zeros_like(tokens)), mode)[0]
    logits = (model.masked_lm(hidden, model.encoder.embeddings.word, mode.dtype) + model.masked_lm.biases()).numpy()
    shifted = logits[place] - logits[place].max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def tokens_of(run: Path, text: str) -> list[int]:
    tokenizer = WordPieceTokenizer(run / "vocab.txt")
    return [tokenizer.cls_id, *tokenizer.encode([text])[0].tolist(), tokenizer.sep_id]


@pytest.mark.slow
def test_pseudo_perplexity_is_that_of_each_token_masked_in_turn(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    texts = ["the ants sees a dog .", "", "cat", "a bee sees the ant . the cats sees a dog . bee"]  # the last: windows
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    evaluate.main([str(run), "--text", str(tmp_path / "texts.txt"), "--batch", "4"])
    found = json.loads(capsys.readouterr().out)
    expected, mask = [], WordPieceTokenizer(run / "vocab.txt").mask_id
    for text in filter(None, texts):
        inner, room = tokens_of(run, text)[1:-1], SMALL.max_position_embeddings - 2
        for first in range(0, len(inner), room):
            row = [2, *inner[first : first + room], 3]
            for place in range(1, len(row) - 1):
                masked = [*row[:place], mask, *row[place + 1 :]]
                expected.append(log_probabilities(run, masked, place)[row[place]])
    assert (found["texts"], found["tokens"], found["words"]) == (3, len(expected), 20)
    assert found["pseudo_perplexity"] == pytest.approx(np.exp(-np.mean(expected)), rel=1e-4)
    assert found["pseudo_perplexity_per_word"] == pytest.approx(np.exp(-np.sum(expected) / 20), rel=1e-4)


@pytest.mark.slow
def test_masked_words_have_their_probabilities(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, size = "the [MASK] sees a[MASK] dog", SMALL.vocab_size
    fill_mask.main([str(run), text, "--top", str(size), "--json"])
    found = json.loads(capsys.readouterr().out)
    ids = [2, 12, 4, 10, 11, 4, 9, 3]
    vocabulary = [*SPECIAL, *WORDS]
    assert [vocabulary[number] for number in ids] == ["[CLS]", "the", "[MASK]", "sees", "a", "[MASK]", "dog", "[SEP]"]
    for place, choices in zip((2, 5), found["masks"], strict=True):
        expected = np.exp(log_probabilities(run, ids, place))
        assert sum(choice["probability"] for choice in choices) == pytest.approx(1, abs=1e-5)
        given = [choice["probability"] for choice in choices]
        assert given == sorted(given, reverse=True)
        for choice in choices:
            number = vocabulary.index(choice["word"])
            assert choice["probability"] == pytest.approx(expected[number], abs=1e-6)


@pytest.mark.slow
def test_a_file_is_filled_in_order_whatever_the_batch(run: Path, tmp_path: Path) -> None:
    texts = ["[MASK]", "the [MASK] sees [MASK] .", "a cat [MASK]", "[MASK] [MASK] [MASK] dog"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    results = []
    for batch in ("1", "3"):
        files = ["--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / batch)]
        fill_mask.main([str(run), *files, "--batch", batch, "--top", "1"])
        results.append([json.loads(line) for line in (tmp_path / batch).read_text().splitlines()])
    for one, many, text in zip(*results, texts, strict=True):
        assert one["text"] == many["text"] == text and len(one["masks"]) == text.count("[MASK]")
        for (first,), (second,) in zip(one["masks"], many["masks"], strict=True):
            assert first["word"] == second["word"]
            assert first["probability"] == pytest.approx(second["probability"], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("the cat", r"the text: no \[MASK\] in the text"), ("[MASK] " * 10, "12 tokens, but the model has 11 positions")],
)
def test_a_text_that_cannot_be_filled_is_one_line(run: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        fill_mask.main([str(run), text])


def test_bad_input_leaves_no_output(run: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("[MASK] cat\nno mask\n")
    out = tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=r"texts\.txt: line 2: no \[MASK\]"):
        fill_mask.main([str(run), "--input", str(tmp_path / "texts.txt"), "--output", str(out)])
    assert not out.exists()
    with pytest.raises(UsageError, match="either --data or --text"):
        evaluate.main([str(run)])
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError, match="has no text"):
        evaluate.main([str(run), "--text", str(tmp_path / "empty.txt")])


def test_a_run_without_the_head_is_refused(run: Path) -> None:
    model = PretrainingModel(SMALL, seed=5)
    checkpoint.save(run, 4, variables(model.encoder), keep=1)
    with pytest.raises(InputError, match="has no head 'masked_lm'"):
        MaskedWords(Run.open(run))


@pytest.mark.slow
def test_an_evaluation_has_the_figures_of_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    write_dataset(data, heldout={"wikipedia": 31, "books": 17})
    train_here(data, run, "--run.steps", "2", "--run.evaluate_every", "2", "--run.evaluate_sequences", "20")
    line = measured(run)[(2, "heldout")]
    command = [str(run), "--data", str(data), "--batch", "5"]
    evaluate.main([*command, "--sequences", "20"])
    found = json.loads(capsys.readouterr().out)
    figures = {f"{name}_{what}" for name in ("mlm", "nsp") for what in ("loss", "accuracy")}
    figures |= {f"{name}/{source}" for name in figures for source in ("wikipedia", "books")}
    assert {*line} - {"step", "split", "scale", "loss"} == figures
    for name in figures:
        assert found[name] == pytest.approx(line[name], rel=1e-5), name
    for source in ("", "/wikipedia", "/books"):
        assert found[f"mlm_perplexity{source}"] == pytest.approx(np.exp(line[f"mlm_loss{source}"]), rel=1e-5)
    assert found["samples"] == found["samples/wikipedia"] + found["samples/books"] == 20
    evaluate.main(command)
    assert json.loads(capsys.readouterr().out)["samples/books"] == 17


def test_documents_are_masked_by_the_seed_and_the_shares_of_the_run(run: Path) -> None:
    settings = {"config": {"run.seed": 7, "data.mask_shares": [0.9, 0.1, 0.0]}}
    (run / "config.json").write_text(json.dumps(settings))
    assert masked_evaluation._masking(run) == (7, (0.9, 0.1, 0.0))
    (run / "config.json").write_text("{}")
    assert masked_evaluation._masking(run) == (12345, ())


def test_data_of_another_vocabulary_are_refused_and_of_other_rules_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_dataset(tmp_path / "data")  # as that of other programs: the manifest names no vocabulary
    stored = Dataset(data, "heldout")
    words = (data / "vocab.txt").read_text().splitlines()
    for name, tokens in (("other", [*words[:-1], "wombat"]), ("fewer", words[:-7])):
        vocabulary.write(tokens, UNCASED, tmp_path / name)
        described(tmp_path / name, len(tokens))
        with pytest.raises(InputError, match="made with another vocabulary"):
            masked_evaluation._check(Run.open(tmp_path / name), stored, data)
    for rules, told in ((UNCASED, False), (dataclasses.replace(UNCASED, lower_case=False), True)):
        vocabulary.write(words, rules, tmp_path / "same")
        described(tmp_path / "same", len(words))
        masked_evaluation._check(Run.open(tmp_path / "same"), stored, data)
        assert ("other rules" in capsys.readouterr().err) == told


def described(folder: Path, vocab_size: int) -> None:
    dataclasses.replace(SMALL, max_position_embeddings=13, vocab_size=vocab_size).save(folder / "bert_config.json")
