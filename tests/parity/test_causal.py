"""Texts and losses of a causal model equal those of transformers' GPT-2 with the same weights."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert import evaluate_lm
from bert.causal import trained
from bert.causal.detokenizer import detokenize
from bert.causal.generation import Generator
from bert.causal.sampling import Choice
from bert.config import ModelConfig
from bert.training import checkpoint
from tests.bert.causal.runs import write_tokenizer
from tests.parity.test_transformers import oracle

pytestmark = pytest.mark.parity

CONFIG = ModelConfig(
    vocab_size=258,
    hidden_size=36,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=100,
    hidden_act="gelu_tanh",
    norm_placement="pre",
    max_position_embeddings=61,
    type_vocab_size=0,
    layer_norm_epsilon=1e-5,
    causal=True,
)
THEIRS = {"vocab_size": 258, "n_embd": 36, "n_layer": 3, "n_head": 4, "n_inner": 100, "n_positions": 61}
TEXT = " \n = Two @-@ fold = \n \n It ( the game ) had 1 @,@ 200 players ; some left . " + "Others came . \n" * 9
NORMS = {"ln_1": "attention/layer_norm", "ln_2": "mlp/layer_norm"}
DENSE = {"attn.c_proj": "attention/output", "mlp.c_fc": "mlp/inner", "mlp.c_proj": "mlp/outer"}


def write_run(folder: Path, theirs: dict[str, np.ndarray]) -> None:
    """A run directory with the weights of a GPT2LMHeadModel."""
    weights = {name.removeprefix("transformer."): value for name, value in theirs.items()}
    ours = {"embeddings/word": weights["wte.weight"], "embeddings/position": weights["wpe.weight"]}
    norms = {"ln_f": "final/layer_norm"}
    for layer in range(CONFIG.num_hidden_layers):
        norms |= {f"h.{layer}.{theirs}": f"layer_{layer}/{name}" for theirs, name in NORMS.items()}
        for kind, suffix in (("weight", "kernel"), ("bias", "bias")):
            joint = weights[f"h.{layer}.attn.c_attn.{kind}"]
            for name, part in zip(("query", "key", "value"), np.split(joint, 3, axis=-1), strict=True):
                ours[f"layer_{layer}/attention/{name}/{suffix}"] = part
            for their_name, name in DENSE.items():
                ours[f"layer_{layer}/{name}/{suffix}"] = weights[f"h.{layer}.{their_name}.{kind}"]
    for their_name, name in norms.items():
        ours |= {f"{name}/gamma": weights[f"{their_name}.weight"], f"{name}/beta": weights[f"{their_name}.bias"]}
    folder.mkdir()
    CONFIG.save(folder / "bert_config.json")
    write_tokenizer(folder)
    checkpoint.save(folder, 0, ours, keep=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in theirs/ and run/."""
    root = tmp_path_factory.mktemp("causal")
    oracle(("gpt2", root / "theirs", 3, THEIRS))
    write_run(root / "run", load_file(root / "theirs/model.safetensors"))
    return root


def test_greedy_texts_are_theirs(root: Path) -> None:
    random, count = np.random.default_rng(8), 23
    prompts = [random.integers(0, 257, length).tolist() for length in (1, 19, 7, 30)]
    model = trained.load(root / "run")
    found = [text.ids for text in Generator(model, Choice(0), seed=0, batch=3).generate(prompts, count)]
    expected = oracle(("continued", root / "theirs", prompts, count))[0]
    end = model.tokenizer.end
    assert found == [ids[: ids.index(end)] if end in ids else ids for ids in expected]
    assert max(len(set(ids)) for ids in expected) > 5


@pytest.mark.parametrize(("window", "stride"), [(61, 32), (40, 7), (23, 23)])
def test_perplexity_in_overlapping_windows_is_theirs(
    window: int, stride: int, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ids = tmp_path / "wiki.test.tokens", trained.load(root / "run").tokenizer.encode(detokenize(TEXT))
    path.write_text(TEXT)
    sizes = ["--window", str(window), "--stride", str(stride)]
    evaluate_lm.main([str(root / "run"), "wikitext", str(path), "--json", *sizes])
    found, losses = json.loads(capsys.readouterr().out), oracle(("stream", root / "theirs", ids, window, stride))[0]
    assert found["tokens"] - 1 == len(losses) == len(ids) - 1
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["adjusted_perplexity"] == pytest.approx(
        math.exp(min(20, sum(losses) / (len(TEXT.strip().split(" ")) - 1))), rel=1e-4
    )
