"""Folders of transformers are read and written exactly, with tokenizer and vocabulary."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer as Fast

from bert.convert import __main__ as convert
from bert.inputs.tokenization import tokenizer_for
from squad.model import QuestionAnswering
from tests.bert.convert.folders import (
    SMALL,
    WORDS,
    a_run,
    same_bits,
    their_folder,
    theirs,
    weights,
    widened,
)


def test_theirs_in_and_out_is_bit_equal(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "back")])
    same_bits(load_file(tmp_path / "back" / "model.safetensors"), tensors)


@pytest.mark.parametrize(("kind", "exact"), [(np.float16, np.float64), (tf.bfloat16.as_numpy_dtype, None)])
def test_half_precision_is_read_exactly(kind: Any, exact: Any, tmp_path: Path) -> None:
    halves = {name: value.astype(kind) for name, value in theirs(SMALL).items()}
    their_folder(tmp_path / "theirs", tensors=halves)
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    expected = halves["embeddings.word_embeddings.weight"]
    got = weights(tmp_path / "run")["embeddings/word"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, expected.astype(exact) if exact else widened(expected))


def test_earlier_names_copies_of_tied_weights_and_buffers_are_known(tmp_path: Path) -> None:
    tensors = {f"bert.{name}": value for name, value in theirs(SMALL).items()}
    earlier = {name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta") for name in tensors}
    old = {earlier[name]: value for name, value in tensors.items()}
    old["bert.embeddings.position_ids"] = np.arange(17)[None]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"].copy()
    for folder, stored in (("new", tensors), ("old", old)):
        their_folder(tmp_path / folder, tensors=stored)
        convert.main(["import", "huggingface", str(tmp_path / folder), str(tmp_path / f"from_{folder}")])
    same_bits(weights(tmp_path / "from_new"), weights(tmp_path / "from_old"))


def test_weights_in_several_files_are_one_model(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "whole")
    their_folder(tmp_path / "parts")
    (tmp_path / "parts" / "model.safetensors").unlink()
    places = {name: f"model-{number % 3}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({name: value for name, value in tensors.items() if places[name] == file}, tmp_path / "parts" / file)
    (tmp_path / "parts/model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for folder in ("whole", "parts"):
        convert.main(["import", "huggingface", str(tmp_path / folder), str(tmp_path / f"from_{folder}")])
    same_bits(weights(tmp_path / "from_whole"), weights(tmp_path / "from_parts"))


@pytest.mark.parametrize("words", [WORDS, [*WORDS[:-1], "River"]], ids=["lower-cased", "cased"])
def test_their_tokenizer_gives_our_ids(words: list[str], tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, QuestionAnswering(SMALL, 0), words)
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    fast = Fast.from_file(str(tmp_path / "theirs/tokenizer.json"))
    text = "The River flows, unable! a  b? rivers xyz \u6c34"
    ours = tokenizer_for(tmp_path / "run/vocab.txt", SMALL)
    assert ours.encode([text])[0].tolist() == fast.encode(text, add_special_tokens=False).ids
    assert fast.encode(text).tokens[0] == "[CLS]" and fast.encode(text).tokens[-1] == "[SEP]"
    settings = json.loads((tmp_path / "theirs/tokenizer_config.json").read_text())
    assert settings["do_lower_case"] == ("River" not in words)


def test_a_vocabulary_is_found_in_tokenizer_json(tmp_path: Path) -> None:
    a_run(tmp_path / "run", SMALL, QuestionAnswering(SMALL, 0))
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    (tmp_path / "theirs/vocab.txt").unlink()
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    assert (tmp_path / "back/vocab.txt").read_bytes() == (tmp_path / "run/vocab.txt").read_bytes()


def test_another_form_of_lower_casing_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer_config.json").write_text('{"do_lower_case": false}')
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    assert "do_lower_case is False, but texts will be lower-cased" in capsys.readouterr().err


def test_a_tokenizer_of_an_unknown_class_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    their_folder(tmp_path / "theirs")
    settings = tmp_path / "theirs/tokenizer_config.json"
    settings.write_text('{"tokenizer_class": "BertJapaneseTokenizer", "strip_accents": null}')
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    assert "tokenizer_class is 'BertJapaneseTokenizer', but" in capsys.readouterr().err
    settings.write_text('{"tokenizer_class": "BertTokenizerFast", "strip_accents": true}')
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run2")])
    assert "tokenizer_class" not in capsys.readouterr().err
