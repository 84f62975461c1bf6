"""Hidden states and logits of causal models equal those of transformers, for models that go out and that come in.

As test_transformers.py, which has the oracle.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch, variables
from bert.text.vocabulary import TOKENIZER
from bert.training import checkpoint
from extensions.gpt import tokenizer_files
from extensions.gpt.task import CausalModel
from extensions.tokenizers import byte_bpe
from tests.parity.test_transformers import Arrays, assert_equal, command, oracle, theirs, to_run

pytestmark = pytest.mark.parity

KINDS = ("GPT2LMHeadModel", "GPT2Model")
VOCABULARY = {token: number for number, token in enumerate((*byte_bpe.BYTES, "th", "the", byte_bpe.END))}
MERGES = [("t", "h"), ("th", "e")]
SIZES: dict[str, dict[str, Any]] = {
    "small": {"n_embd": 20, "n_layer": 2, "n_head": 5, "n_positions": 19},
    "deep": {"n_embd": 36, "n_layer": 11, "n_head": 3, "n_positions": 64, "n_inner": 130},
    "exact": {"n_embd": 264, "n_layer": 3, "n_head": 4, "n_positions": 128, "activation_function": "gelu"},
}


def inputs() -> Arrays:
    return {"input_ids": np.random.default_rng(4).integers(0, len(VOCABULARY), (3, 19))}


def ours(run: Path, kind: str) -> Arrays:
    """What our model makes of a run directory, under the names of transformers."""
    config, tokens = (
        ModelConfig.load(run / "bert_config.json"),
        TokenBatch(tf.constant(inputs()["input_ids"], tf.int32)),
    )
    model = CausalModel(config, 0)
    checkpoint.load_weights(run, variables(model))
    states = np.stack(model.encoder.states(tokens, Mode(tf.float32, DropoutRng(None))))
    if kind == "GPT2Model":
        return {"hidden_states": states, "last_hidden_state": states[-1]}
    return {"hidden_states": states, "logits": states[-1] @ model.encoder.embeddings.word.numpy().T}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/KIND/SIZE, as they came in in run/KIND/SIZE, as these went out in back/KIND/SIZE."""
    root = tmp_path_factory.mktemp("gpt2")
    places = [Path(kind) / size for kind in KINDS for size in SIZES]
    made = []
    for number, place in enumerate(places):
        (root / "theirs" / place).mkdir(parents=True)
        tokenizer_files.write_tokenizer(byte_bpe.text_of(VOCABULARY, MERGES, root), 19, root / "theirs" / place)
        sizes = SIZES[place.name] | {"vocab_size": len(VOCABULARY), "eos_token_id": VOCABULARY[byte_bpe.END]}
        made.append(("make", str(place.parent), root / "theirs" / place, number, sizes))
    oracle(*made)
    for place in places:
        command("import", root / "theirs" / place, root / "run" / place)
        command("export", root / "run" / place, root / "back" / place)
    oracle(*(to_run(root / folder / place, inputs()) for place in places for folder in ("theirs", "back")))
    return root


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_in_computes_the_same_here(kind: str, size: str, converted: Path) -> None:
    assert_equal(theirs(converted / "theirs" / kind / size), ours(converted / "run" / kind / size, kind))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_out_computes_the_same_there(kind: str, size: str, converted: Path) -> None:
    back = theirs(converted / "back" / kind / size)
    back.pop("logits" if kind == "GPT2Model" else "", None)  # everything goes out with the tied output layer
    before = theirs(converted / "theirs" / kind / size)
    before.pop("last_hidden_state", None)
    assert_equal(back, before)


def test_their_tokenizer_of_what_goes_out_is_ours(converted: Path) -> None:
    folder = converted / "back/GPT2LMHeadModel/small"
    text = "the 12 cats, then\nthe th\u00e9"
    assert oracle(("tokens", folder, text))[0] == byte_bpe.ByteBPE(folder / TOKENIZER).encode(text)
    (folder / TOKENIZER).unlink()  # now from the other two files
    assert oracle(("tokens", folder, text))[0] == byte_bpe.ByteBPE(
        converted / "run/GPT2LMHeadModel/small" / TOKENIZER
    ).encode(text)
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == VOCABULARY[byte_bpe.END]
