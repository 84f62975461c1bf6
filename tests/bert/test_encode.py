"""Each text has the features that it has alone, in its place, whatever stands beside it."""

import dataclasses
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert import encode, hidden_states
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.text.tokenization import tokenizer_for
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint

LAYERS = (2, 0, -2)
NINE = " ".join(f"w{number}" for number in range(9))
TEXTS = ["w1 w2", "", "w3 " * 40, "w7", NINE, "   ", "\u6c34 w11 w1", "w2 " * 15, "nothing known"]


def alone(run: Path, config: ModelConfig) -> list[tuple[list[str], np.ndarray]]:
    """Tokens of each text, and what the embeddings and each layer make of it alone [L + 1, T, D]."""
    tokenizer, encoder = tokenizer_for(run / "vocab.txt", config), Encoder(config, 0)
    checkpoint.load_weights(run, variables(encoder))
    found = []
    for text in TEXTS:
        words = tokenizer.encode([text])[0][: config.max_position_embeddings - 2]
        ids = np.concatenate([[tokenizer.cls_id], words, [tokenizer.sep_id]]).astype(np.int32)[None]
        states = encoder.states(
            TokenBatch(ids, np.ones_like(ids), np.zeros_like(ids)), Mode(tf.float32, DropoutRng(None))
        )
        found.append(([tokenizer.vocab[i] for i in ids[0]], np.stack(states)[:, 0]))
    return found


@pytest.fixture
def run(tmp_path: Path, model_config: ModelConfig) -> Path:
    """A run directory with random weights."""
    folder = tmp_path / "run"
    folder.mkdir()
    model_config.save(folder / "bert_config.json")
    words = [f"w{number}" for number in range(model_config.vocab_size - len(SPECIAL))]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    random, weights = np.random.default_rng(6), variables(Encoder(model_config, 0))
    values = {name: v + random.normal(0, 0.2, v.shape).astype(np.float32) for name, v in weights.items()}
    checkpoint.save(folder, 3, values, keep=1)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return folder


def features_of(run: Path, name: str, *more: str) -> Path:
    output = run.parent / name
    layers = map(str, LAYERS)
    arguments = ["--model", str(run), "--input", str(run.parent / "texts.txt"), "--output", str(output)]
    encode.main([*arguments, "--layers", *layers, "--batch", "4", *more])
    return output


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["mean", "cls", "none"])
def test_each_line_is_answered_in_its_place(
    pool: str, run: Path, model_config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_states, "CHUNK", 7)  # so that there are two
    lines = features_of(run, "features.jsonl", "--pool", pool).read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(TEXTS)
    for number, (text, line) in enumerate(zip(alone(run, model_config), map(json.loads, lines), strict=True), start=1):
        assert (line["line"], line["tokens"]) == (number, text[0])
        states = text[1][list(LAYERS)].transpose(1, 0, 2)  # [T, L, D]
        expected = {"none": states, "cls": states[0], "mean": states.mean(0)}[pool]
        np.testing.assert_allclose(line["features"], expected, atol=2e-6)
    with np.load(features_of(run, "features.npz", "--pool", pool)) as found:
        ends = found["row_splits"]
        assert np.diff(ends).tolist() == [len(json.loads(line)["tokens"]) for line in lines]
        rows = np.split(found["features"], ends[1:-1]) if pool == "none" else found["features"]
        for row, line in zip(rows, lines, strict=True):
            np.testing.assert_array_equal(row, np.array(json.loads(line)["features"], np.float32))


def test_a_layer_gives_what_a_model_that_ends_there_gives(model_config: ModelConfig) -> None:
    ids = np.random.default_rng(7).integers(0, model_config.vocab_size, (3, 13)).astype(np.int32)
    tokens = TokenBatch(ids, np.arange(13)[None] < [[13], [9], [4]], ids % 2)
    arguments = tokens, Mode(tf.float32, DropoutRng(None))
    found = Encoder(model_config, 8).states(*arguments)
    assert len(found) == model_config.num_hidden_layers + 1
    for depth in range(1, model_config.num_hidden_layers + 1):
        shorter = Encoder(dataclasses.replace(model_config, num_hidden_layers=depth), 8)  # of the same weights
        np.testing.assert_array_equal(found[depth], shorter(*arguments))


def test_texts_are_cut_where_asked_and_that_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = features_of(run, "features.jsonl", "--length", "5").read_text(encoding="utf-8").splitlines()
    assert [len(json.loads(line)["tokens"]) for line in lines] == [4, 2, 5, 3, 5, 2, 5, 5, 4]
    assert "9 texts, 3 truncated to 5 tokens" in capsys.readouterr().err


@pytest.mark.slow
def test_standard_input_is_read_a_chunk_at_a_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    one_by_one = hidden_states.Reader.encode

    def spied(self: hidden_states.Reader, texts: list[str]):  # type: ignore[no-untyped-def]
        sizes.append(len(texts))
        return one_by_one(self, texts)

    monkeypatch.setattr(hidden_states, "CHUNK", 4)
    monkeypatch.setattr(hidden_states.Reader, "encode", spied)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n".join(TEXTS).encode())))
    output = run.parent / "features.jsonl"
    encode.main(["--model", str(run), "--input", "-", "--output", str(output)])
    assert sizes == [4, 4, 1] and len(output.read_text().splitlines()) == len(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--layers", "3"], "give 0 to 2 or -1 to -3"),
        (["--length", "18"], "17 positions"),
        (["--length", "2"], "must be from 3"),
        (["--batch", "0"], "must be from 1"),
        (["--output", "x.csv"], "jsonl or .npz"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_read(more: list[str], problem: str, run: Path) -> None:
    with pytest.raises(UsageError, match=problem):
        features_of(run, "features.jsonl", *more)
    assert not (run.parent / "features.jsonl").exists()


@pytest.mark.slow
def test_bad_bytes_and_bad_weights_leave_no_output(run: Path) -> None:
    (run.parent / "texts.txt").write_bytes(b"w1\nw2\n\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        features_of(run, "features.jsonl")
    (run.parent / "texts.txt").write_bytes(b"w1\n")
    folder = checkpoint.to_use(run)
    reader = tf.train.load_checkpoint(str(folder / checkpoint.BUNDLE))
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    values["layer_1/mlp/outer/bias"][0] = np.nan
    checkpoint.save(run, 4, values, keep=1)
    with pytest.raises(IntegrityError, match="not finite"):
        features_of(run, "features.jsonl")
    assert not (run.parent / "features.jsonl").exists()
