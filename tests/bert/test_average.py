"""The average of checkpoints is the mean of each weight, and a run directory that commands read."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert import average
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError
from bert.masked_words import MaskedWords
from bert.model.encoder import variables
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from tests.training import weights

WORDS = ["ant", "bee", "cat", "##s"]
SMALL = ModelConfig(
    vocab_size=len(SPECIAL) + len(WORDS),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=11,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Checkpoints of three updates with other weights, the moments of an optimizer, and a generator."""
    folder = tmp_path / "run"
    folder.mkdir()
    SMALL.save(folder / "bert_config.json")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    for step in (3, 10, 11):
        state = dict(variables(PretrainingModel(SMALL, seed=step)))
        state |= {name: tf.Variable(tf.ones([2])) for name in ("adam_m/pooler/bias", "generator/masked_lm/bias")}
        checkpoint.save(folder, step, state, keep=3)
    return folder


def test_each_weight_is_the_mean_of_the_newest_checkpoints(run: Path, tmp_path: Path) -> None:
    average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "2"])
    found, (one, two) = weights(tmp_path / "mean", 0), (weights(run, step) for step in (10, 11))
    assert found.keys() == {name for name in one if not name.startswith(("adam_m", "generator"))}
    for name, value in found.items():
        expected = (one[name].astype(np.float64) + two[name]) / 2
        assert np.array_equal(value, expected.astype(np.float32)), name
    opened = Run.open(tmp_path / "mean")
    assert opened.settings["averaged"] == [10, 11]
    assert opened.settings["imported"]["origin"] == "average run"
    (scores,) = MaskedWords(opened).log_probabilities([np.array([2, 5, 4, 3])], [[2]])
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-5)


def test_low_rank_updates_are_in_the_mean(run: Path, tmp_path: Path) -> None:
    kernel, random = "layer_1/attention/query", np.random.default_rng(2)
    expected = np.zeros((12, 12))
    for step in (12, 13):
        state = dict(variables(PretrainingModel(SMALL, seed=step)))
        a, b = random.normal(size=(12, 2)), random.normal(size=(2, 12))
        for part, value in (("a", a), ("b", b), ("scale", 0.5)):
            state[f"{kernel}/lora_{part}"] = tf.Variable(value, dtype=tf.float32)
        expected += (state[f"{kernel}/kernel"].numpy() + 0.5 * a @ b) / 2
        checkpoint.save(run, step, state, keep=5)
    average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "2"])
    np.testing.assert_allclose(weights(tmp_path / "mean", 0)[f"{kernel}/kernel"], expected, atol=1e-6)


def test_checkpoints_that_are_not_there_or_damaged_end_the_command(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has 3 checkpoints, not 4; give --last 3, or train with --run.keep 4"):
        average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "4"])
    path = next((run / "checkpoints/step-00000010").glob("*.data-*"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match="step-00000010"):
        average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "2"])
    assert not (tmp_path / "mean").exists()
