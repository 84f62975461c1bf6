"""Updates that are not finite are skipped and counted, and the loss scale halves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.model.encoder import variables
from bert.pretraining import Pretraining
from bert.text.records import Dataset
from bert.text.sampler import Batch, BatchSampler
from bert.training import loss_scale
from bert.training.communicator import Communicator
from bert.training.guard import UpdateGuard
from bert.training.optimizer import Optimizer
from bert.training.step import Step
from tests.training import same_bits


class Poisoned(Pretraining):
    """Pretraining whose loss is multiplied by a number that can be made infinite."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__(config, seed)
        self.poison = tf.Variable(1.0, trainable=False)

    def measure(self, *arguments: Any) -> dict[str, Any]:
        found = super().measure(*arguments)
        return found | {"mlm": found["mlm"]._replace(loss=found["mlm"].loss * self.poison)}


def steps(
    config: ModelConfig, batches: list[Batch], runs: list[list[float]], precision: PrecisionConfig
) -> list[tuple[dict[str, np.ndarray], list[dict[str, float]]]]:
    """Return for each run the final state, and the measures of each update.

    All runs start from the same state. A run is a list of numbers: one update for each, its loss multiplied by it.
    """
    task = Poisoned(config, seed=3)
    optimizer = Optimizer(variables(task.module), OptimizerConfig(name="lamb", learning_rate=1.0))
    step = Step(task, optimizer, Communicator(), precision, RunConfig(seed=4))
    start, found = {name: variable.numpy() for name, variable in step.state.items()}, []
    for poisons in runs:
        for name, variable in step.state.items():
            variable.assign(start[name])
        measured = []
        for poison in poisons:
            task.poison.assign(poison)
            measured.append(step.update(1, batches, rate=1e-2, stop=False))
        found.append(({name: variable.numpy() for name, variable in step.state.items()}, measured))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("compute", "bad"), [("float32", np.inf), ("float16", np.nan)])
def test_an_update_that_is_not_finite_changes_no_weight(
    compute: Any, bad: float, shallow_config: ModelConfig, dataset: Path
) -> None:
    precision = PrecisionConfig(compute=compute)
    batches = BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=3), seed=1).read(0)
    poisoned = [1.0, bad, bad, 1.0, 1.0]
    (without, _), *found = steps(shallow_config, batches, [[1.0, 1.0, 1.0], poisoned, poisoned], precision)
    (state, measured), (state_again, measured_again) = found
    same_bits(state, state_again)  # an update depends on nothing but the state, which is what a checkpoint has
    np.testing.assert_equal(measured, measured_again)
    assert [measures["skipped_in_a_row"] for measures in measured] == [0, 1, 2, 0, 0]
    assert [measures["skipped"] for measures in measured] == [0, 1, 2, 2, 2]
    scaled = compute == "float16"
    for name, value in without.items():
        if not name.startswith(("guard/", "loss_scale/", "spikes/")):
            np.testing.assert_allclose(state[name], value, rtol=1e-2 if scaled else 0, atol=1e-4 if scaled else 0)
    assert state["applied"] == 3
    scales = [measures.get("loss_scale", 0) / loss_scale.INITIAL for measures in measured]
    assert scales == ([1, 1, 1 / 2, 1 / 4, 1 / 4] if scaled else [0] * 5)


@pytest.mark.slow
@pytest.mark.parametrize(("compute", "rounding"), [("float16", 5e-3), ("bfloat16", 2e-2)])
def test_16_bits_learn_what_float32_learns(
    compute: Any, rounding: float, shallow_config: ModelConfig, dataset: Path
) -> None:
    batches = BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=3), seed=1).read(0)
    (_, full), (state, half) = (
        steps(shallow_config, batches, [[1.0] * 4], PrecisionConfig(compute=kind))[0] for kind in ("float32", compute)
    )
    assert all(value.dtype != tf.as_dtype(compute) for value in state.values())  # the weights and moments are float32
    for one, two in zip(full, half, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=rounding)
        assert two["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=4 * rounding)
        # The switch has an effect on each update; float32 has too few losses near 5 for two never to be the same one.
        assert (two["loss"], two["gradient_norm"]) != (one["loss"], one["gradient_norm"])


def test_the_scale_doubles_after_patience_and_stays_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "PATIENCE", 3.0)
    monkeypatch.setattr(loss_scale, "GREATEST", loss_scale.INITIAL * 2)
    guard, used = UpdateGuard(scaled=True), []
    for norm in [1.0] * 7 + [np.inf, 2.0, 2.0, np.nan, 1.0, 1.0, 1.0, 1.0]:
        used.append(float(guard.check(tf.constant(1.0), tf.constant(norm))[1]["loss_scale"]) / loss_scale.INITIAL)
    assert used == [1, 1, 1, 2, 2, 2, 2, 2, 1, 1, 1, 0.5, 0.5, 0.5, 1]
    for _ in range(40):
        guard.check(tf.constant(1.0), tf.constant(np.inf))
    assert float(guard.loss_scale.scale) == 1.0 and float(guard.skipped) == 42
