"""The average of checkpoints is the mean of each weight, and a run directory that commands read."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert import average, pretrain
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError, Stopped, UsageError
from bert.masked_words import MaskedWords
from bert.model.added import tunes
from bert.model.encoder import variables
from bert.pretraining import PretrainingModel
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from tests.training import TINY, sign, weights

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_model_that_no_other_format_has_is_averaged_too(run: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, positions="rotary")
    config.save(run / "bert_config.json")
    for step in (12, 13):
        checkpoint.save(run, step, dict(variables(PretrainingModel(config, seed=step))), keep=5)
    average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "2"])
    found, (one, two) = weights(tmp_path / "mean", 0), (weights(run, step) for step in (12, 13))
    assert found.keys() == one.keys() and Run.open(tmp_path / "mean").config == config
    np.testing.assert_allclose(found["pooler/kernel"], (one["pooler/kernel"] + two["pooler/kernel"]) / 2, rtol=1e-6)


@pytest.mark.slow
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
    found = weights(tmp_path / "mean", 0)
    np.testing.assert_allclose(found[f"{kernel}/kernel"], expected, atol=1e-6)
    assert not any(tunes(name) for name in found)  # readers would add them again


def test_the_moving_average_of_a_run_is_a_model(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"step-00000011: has no moving average of the weights; train with --optim"):
        average.main([str(run), "--output", str(tmp_path / "mean"), "--ema", "true"])
    assert not (tmp_path / "mean").exists()
    state = dict(variables(PretrainingModel(SMALL, seed=12)))
    frozen = {name for name in state if name.startswith("embeddings/")}
    expected = {name: value.numpy() + 1 for name, value in state.items() if name not in frozen}
    averages = {f"ema/{name}": tf.Variable(value * 0.75) for name, value in expected.items()}
    checkpoint.save(run, 12, state | averages | {"ema_total": tf.Variable(0.75)}, keep=5)
    average.main([str(run), "--output", str(tmp_path / "mean"), "--ema", "true"])
    found = weights(tmp_path / "mean", 0)
    assert found.keys() == state.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, state[name] if name in frozen else expected[name], rtol=1e-6, err_msg=name)
    assert Run.open(tmp_path / "mean").settings["ema"] == [12]


@pytest.mark.slow
def test_the_moving_average_is_that_of_the_weights_of_every_update_of_a_run(dataset: Path, tmp_path: Path) -> None:
    """Also across a stop, with limited steps."""
    run, decay, steps = tmp_path / "run", 0.6, 5
    flags = [*TINY, "--data.train", str(dataset), "--run.directory", str(run), "--batch.per_device", "3"]
    flags += ["--run.save_every", "1", "--run.keep", "9", "--run.steps", str(steps)]
    flags += ["--optimizer.name", "stableadamw", "--optimizer.ema", str(decay)]
    with pytest.raises(Stopped):
        pretrain.main(["demo_phase1", *flags, "--run.stop_at", "2"])
    pretrain.main(["demo_phase1", *flags])
    average.main([str(run), "--output", str(tmp_path / "mean"), "--ema", "true"])
    found = weights(tmp_path / "mean", 0)
    expected, total = {name: np.zeros(value.shape) for name, value in found.items()}, 0.0
    for number in range(1, steps + 1):
        state = weights(run, number)
        total = decay * total + 1 - decay
        expected = {name: decay * value + (1 - decay) * state[name] for name, value in expected.items()}
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name] / total, rtol=1e-5, atol=1e-7, err_msg=name)
    assert np.abs(found["pooler/kernel"] - weights(run, steps)["pooler/kernel"]).max() > 1e-4
    assert not any(name.startswith(("adam", "ema")) for name in found)


def test_documents_are_masked_for_the_mean_as_for_the_run(run: Path, tmp_path: Path) -> None:
    config = {"run.seed": 7, "data.mask_shares": [0.9, 0.1, 0.0], "run.steps": 11}
    (run / "config.json").write_text(json.dumps({"config": config, "rules": 2}))
    sign(run)
    average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "2"])
    made = json.loads((tmp_path / "mean" / "config.json").read_text())
    assert {**made["config"], **config, "run.steps": None} == {**made["config"], "run.steps": None}
    assert (made["rules"], made["config"]["model.hidden_size"]) == (2, 12)
    (run / "config.json").write_text(json.dumps({"config": config, "rules": 1}))
    sign(run)
    with pytest.raises(UsageError, match=r"ordered by rules 1, and this program has 2 only"):
        average.main([str(run), "--output", str(tmp_path / "other"), "--last", "2"])


def test_a_number_of_checkpoints_is_refused_for_the_moving_average(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--last has no effect with --ema true"):
        average.main([str(run), "--output", str(tmp_path / "mean"), "--ema", "true", "--last", "2"])


def test_checkpoints_that_are_not_there_or_damaged_end_the_command(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has 3 checkpoints, not 4; give --last 3, or train with --run.keep 4"):
        average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "4"])
    path = next((run / "checkpoints/step-00000010").glob("*.data-*"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match="step-00000010"):
        average.main([str(run), "--output", str(tmp_path / "mean"), "--last", "2"])
    assert not (tmp_path / "mean").exists()
