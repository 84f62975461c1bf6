"""Causal models go out as GPT-2 of transformers and come back as they were."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.model.encoder import variables
from bert.text.vocabulary import TOKENIZER
from bert.training import checkpoint
from extensions.gpt import tokenizer_files
from extensions.gpt.task import CausalModel
from extensions.tokenizers import byte_bpe
from tests.bert.convert.folders import Values, same_bits, weights
from tests.extensions.gpt.runs import SIZES

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
    (folder / TOKENIZER).write_text(byte_bpe.text_of(VOCABULARY, MERGES, folder), encoding="utf-8")
    checkpoint.save(folder, 7, values | {"adam_m/final/layer_norm/beta": np.ones(20)}, keep=1)
    return values


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    a_run(tmp_path / "run")
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    return tmp_path / "theirs"


@pytest.mark.parametrize("tokenizer", ["tokenizer.json", "vocab.json and merges.txt"])
def test_a_run_comes_back_as_it_was(tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = a_run(tmp_path / "run")
    convert.main(["export", "huggingface", str(tmp_path / "run"), str(tmp_path / "theirs")])
    if tokenizer != "tokenizer.json":
        (tmp_path / "theirs" / TOKENIZER).unlink()
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "back")])
    assert f"next: python -m bert.generate {tmp_path / 'back'} PROMPT" in capsys.readouterr().err  # no task has it
    same_bits(before, weights(tmp_path / "back"))
    assert ModelConfig.load(tmp_path / "back/bert_config.json") == CONFIG
    assert (tmp_path / "back" / TOKENIZER).read_bytes() == (tmp_path / "run" / TOKENIZER).read_bytes()


def test_the_tensors_are_those_of_gpt2(exported: Path, tmp_path: Path) -> None:
    tensors, ours = load_file(exported / "model.safetensors"), weights(tmp_path / "run", 7)
    names = ("query", "key", "value")
    kernels = np.concatenate([ours[f"layer_2/attention/{name}/kernel"] for name in names], axis=1)
    np.testing.assert_array_equal(tensors["transformer.h.2.attn.c_attn.weight"], kernels)
    np.testing.assert_array_equal(tensors["transformer.h.1.mlp.c_proj.weight"], ours["layer_1/mlp/outer/kernel"])
    assert len(tensors) == 3 * 12 + 4 and not any(".query" in name for name in tensors)
    config = json.loads((exported / "config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["eos_token_id"] == len(VOCABULARY) - 1


def test_names_without_a_prefix_buffers_and_one_of_two_tied_weights_are_taken(exported: Path, tmp_path: Path) -> None:
    before = load_file(exported / "model.safetensors")
    plain = {name.removeprefix("transformer."): value for name, value in before.items()}
    more = {"h.0.attn.bias": np.ones((1, 1, 17, 17), np.float32), "h.0.attn.masked_bias": np.ones(1, np.float32)}
    tied = {"lm_head.weight": plain["wte.weight"]}
    one = {name: value for name, value in before.items() if not name.endswith("wte.weight")} | tied
    for number, stored in enumerate((plain | more | tied, one)):
        save_file(stored, exported / "model.safetensors")
        convert.main(["import", "huggingface", str(exported), str(tmp_path / f"back{number}")])
        np.testing.assert_array_equal(weights(tmp_path / f"back{number}")["embeddings/word"], plain["wte.weight"])


def test_a_padding_token_that_was_added_and_an_end_that_is_only_added_are_taken(exported: Path, tmp_path: Path) -> None:
    path, number = exported / TOKENIZER, len(VOCABULARY)
    content = json.loads(path.read_text(encoding="utf-8"))
    before = byte_bpe.ByteBPE(path)
    del content["model"]["vocab"][byte_bpe.END]
    content["added_tokens"].append(content["added_tokens"][0] | {"id": number, "content": "[PAD]"})
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [content["pre_tokenizer"]]}
    path.write_text(json.dumps(content), encoding="utf-8")
    text = tokenizer_files.read_tokenizer(exported, ModelConfig(vocab_size=number + 1))
    (tmp_path / "new.json").write_text(text, encoding="utf-8")
    after = byte_bpe.ByteBPE(tmp_path / "new.json")
    assert (after.size, after.end, after.vocabulary["[PAD]"]) == (number + 1, before.end, number)
    assert after.encode("the [PAD]<|endoftext|>") == before.encode("the [PAD]<|endoftext|>")
    assert after.sizes().tolist() == [*before.sizes().tolist(), 0]


def test_a_byte_order_mark_is_no_part_of_the_files(exported: Path) -> None:
    ids, merges = byte_bpe.find(exported)
    plain = byte_bpe.load(ids, merges)
    for path in (ids, merges):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert byte_bpe.load(ids, merges) == plain
