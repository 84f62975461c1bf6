"""Each passage has the scores that it has alone, by a softmax in NumPy."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import IntegrityError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch
from extensions.gpt import scoring, trained
from extensions.gpt.scoring import Passage, Scorer
from extensions.gpt.trained import Trained
from tests.extensions.gpt.runs import SIZES, write_run

POSITIONS, VOCAB = SIZES["max_position_embeddings"], SIZES["vocab_size"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained.load(write_run(tmp_path_factory.mktemp("scoring") / "run"))


@pytest.mark.slow
def test_scores_are_those_of_each_passage_alone(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "TARGETS", 13)  # so that the targets of a batch are compared in pieces
    random = np.random.default_rng(2)
    shapes = ((38, 0), (5, 3), (2, 0), (21, 7), (38, 30), (9, 0), (17, 15))  # tokens, first
    passages = [Passage(random.integers(0, VOCAB, size), first) for size, first in shapes]
    found = list(Scorer(model, batch=3)(passages))
    assert len(found) == len(passages)
    for (ids, first), scores in zip(passages, found, strict=True):
        hidden = model.encoder(TokenBatch(tf.constant(ids[None, :-1], tf.int32)), Mode(tf.float32, DropoutRng(None)))
        logits = hidden.numpy()[0].astype(np.float64) @ model.encoder.embeddings.word.numpy().T
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(ids) - 1), ids[1:]]
        np.testing.assert_allclose(scores.losses, losses[first:], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(scores.likeliest, (logits.argmax(axis=1) == ids[1:])[first:])


@pytest.mark.slow
def test_the_likeliest_tokens_are_found(model: Trained) -> None:
    ids = np.arange(9)
    for place in range(8):  # put the likeliest token behind those before it
        hidden = model.encoder(TokenBatch(tf.constant(ids[None, :-1], tf.int32)), Mode(tf.float32, DropoutRng(None)))
        ids[place + 1] = np.argmax(hidden.numpy()[0, place] @ model.encoder.embeddings.word.numpy().T)
    ids[6] += 1
    (scores,) = Scorer(model, batch=2)([Passage(ids, 4)])
    assert scores.likeliest.tolist()[:2] == [True, False]


@pytest.mark.slow
def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    model = trained.load(write_run(tmp_path / "run"))
    words = model.encoder.embeddings.word
    words.assign(words * np.nan)
    with pytest.raises(IntegrityError, match="not finite"):
        list(Scorer(model, batch=2)([Passage(np.arange(5))]))
