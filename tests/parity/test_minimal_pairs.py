"""Sentences have the pseudo-log-likelihoods that transformers gives with the same weights, a pass for each token."""

from pathlib import Path

import numpy as np
import pytest

from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.model.encoder import variables
from bert.pretraining import PretrainingModel
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from extensions.minimal_pairs import scoring
from extensions.minimal_pairs.reading import Pair
from tests.parity.test_transformers import oracle

pytestmark = pytest.mark.parity

PIECES = ["cat", "##s", "dog", "##ging", "see", "##n", "the", "a", "no", "##t", "un", "##see", ",", "."]
SENTENCES = [
    "The cats see the dogs.",
    "the cats sees a dog .",
    "A dog has not seen the unseen cats, the dogging.",
    "unseens",
    "no dog seesn .",
    "cat",
]


def test_pseudo_log_likelihoods_are_those_of_transformers(tmp_path: Path) -> None:
    config = ModelConfig(
        vocab_size=len(SPECIAL) + len(PIECES),
        hidden_size=36,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=50,
        max_position_embeddings=27,
        initializer_range=0.4,
    )
    run, random = tmp_path / "run", np.random.default_rng(8)
    run.mkdir()
    config.save(run / "bert_config.json")
    (run / "vocab.txt").write_text("\n".join([*SPECIAL, *PIECES]) + "\n")
    weights = variables(PretrainingModel(config, seed=5))
    for weight in weights.values():  # no bias is zero and no gamma one
        weight.assign_add(random.normal(0, 0.2, weight.shape).astype(np.float32))
    checkpoint.save(run, 3, weights, keep=1)
    convert.main(["export", "huggingface", str(run), str(tmp_path / "theirs")])

    both = zip(SENTENCES[::2], SENTENCES[1::2], strict=True)
    pairs = [Pair(good=good, bad=bad, paradigm="p", where="here") for good, bad in both]
    methods: tuple[scoring.Method, ...] = ("masked", "word_l2r")
    expected = oracle(*(("pseudo", tmp_path / "theirs", SENTENCES, method == "word_l2r") for method in methods))
    for method, theirs in zip(methods, expected, strict=True):
        found = scoring.score(run, pairs, method, 5, "float32")
        ours = np.stack([found.good, found.bad], axis=1).ravel()
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)
    assert max(abs(a - b) for a, b in zip(*expected, strict=True)) > 1e-2  # the two differ for words of several pieces
