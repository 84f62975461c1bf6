"""Causal models go out as GPT-2 of transformers and come back as they were."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert.causal.task import CausalModel
from bert.config import ModelConfig
from bert.convert import __main__ as convert
from bert.inputs import byte_bpe
from bert.model.encoder import variables
from bert.training import checkpoint
from tests.bert.causal.runs import SIZES
from tests.bert.convert.folders import Values, same_bits, weights

VOCABULARY = {token: number for number, token in enumerate((*byte_bpe.BYTES, "th", "the", byte_bpe.END))}
MERGES = [("t", "h"), ("th", "e")]
CONFIG = ModelConfig(**SIZES | {"vocab_size": len(VOCABULARY)})


def a_run(folder: Path) -> Values:
    """Write a run directory with random weights; return them."""
    random = np.random.default_rng(1)
    module = CausalModel(CONFIG, 0)
    values = {name: random.normal(0, 0.1, v.shape).astype(np.float32) for name, v in variables(module).items()}
    folder.mkdir()
    CONFIG.save(folder / "bert_config.json")
    (folder / byte_bpe.NAME).write_text(byte_bpe.text_of(VOCABULARY, MERGES, folder), encoding="utf-8")
    checkpoint.save(folder, 7, values | {"adam_m/final/layer_norm/beta": np.ones(20)}, keep=1)
    return values


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    a_run(tmp_path / "run")
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    return tmp_path / "theirs"


@pytest.mark.parametrize("tokenizer", ["tokenizer.json", "vocab.json and merges.txt"])
def test_a_run_comes_back_as_it_was(tokenizer: str, tmp_path: Path) -> None:
    before = a_run(tmp_path / "run")
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    if tokenizer != "tokenizer.json":
        (tmp_path / "theirs" / byte_bpe.NAME).unlink()
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    same_bits(before, weights(tmp_path / "back"))
    assert ModelConfig.load(tmp_path / "back/bert_config.json") == CONFIG
    assert (tmp_path / "back" / byte_bpe.NAME).read_bytes() == (tmp_path / "run" / byte_bpe.NAME).read_bytes()


def test_the_tensors_are_those_of_gpt2(exported: Path, tmp_path: Path) -> None:
    tensors, ours = load_file(exported / "model.safetensors"), weights(tmp_path / "run", 7)
    names = ("query", "key", "value")
    kernels = np.concatenate([ours[f"layer_2/attention/{name}/kernel"] for name in names], axis=1)
    np.testing.assert_array_equal(tensors["transformer.h.2.attn.c_attn.weight"], kernels)
    np.testing.assert_array_equal(tensors["transformer.h.1.mlp.c_proj.weight"], ours["layer_1/mlp/outer/kernel"])
    assert len(tensors) == 3 * 12 + 4 and not any(".query" in name for name in tensors)
    config = json.loads((exported / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["eos_token_id"] == len(VOCABULARY) - 1


def test_names_without_a_prefix_and_what_a_model_does_not_need_are_understood(exported: Path, tmp_path: Path) -> None:
    before = load_file(exported / "model.safetensors")
    plain = {name.removeprefix("transformer."): value for name, value in before.items()}
    more = {"h.0.attn.bias": np.ones((1, 1, 17, 17), np.float32), "h.0.attn.masked_bias": np.ones(1, np.float32)}
    save_file(plain | more | {"lm_head.weight": plain["wte.weight"]}, exported / "model.safetensors")
    convert.main(["import", "huggingface", str(exported), str(tmp_path / "back")])
    after = weights(tmp_path / "back")
    np.testing.assert_array_equal(after["embeddings/word"], plain["wte.weight"])
