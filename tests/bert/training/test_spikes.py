"""Loss spikes are reported; if skipped or rolled back, they do not affect the weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PretrainConfig, RunConfig
from bert.core.errors import IntegrityError
from bert.pretraining import Pretraining
from bert.text import sampler
from bert.text.records import Dataset
from bert.text.sampler import Batch
from bert.training import checkpoint, loop, spikes
from bert.training.communicator import Communicator
from bert.training.guard import UpdateGuard

TOTAL, STEPS, SAVED, SPIKE, SEED = 6, 60, 40, 47, 5


class Poisoned(Pretraining):
    """Pretraining whose loss is multiplied by a factor in the samples."""

    def measure(self, batch: Batch, *arguments: Any) -> dict[str, Any]:
        found, poison = super().measure(batch, *arguments), tf.reduce_max(batch["poison"])
        return found | {"mlm": found["mlm"]._replace(loss=found["mlm"].loss * poison)}


class Samples(Dataset):
    """Samples; those of some updates are poisoned, or absent."""

    poison: float = 1.0
    poisoned: tuple[int, ...] = ()  # updates, from 1
    absent: tuple[int, int] = (STEPS, STEPS)  # updates after the first number, up to the second

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> Batch:
        assert positions is not None
        begin, end = self.absent
        there = np.where(positions < begin * TOTAL, positions, positions + (end - begin) * TOTAL)
        found = super().read(sampler.SampleOrder(len(self), TOTAL, SEED)(there), there)
        return found | {
            "poison": np.where(np.isin(positions // TOTAL + 1, self.poisoned), self.poison, 1.0).astype(np.float32)
        }


def trained(data: Samples, directory: Path, model: ModelConfig, **run: Any) -> dict[str, np.ndarray]:
    """Train, and return the state after the run."""
    config = PretrainConfig(
        model=model,
        batch=BatchConfig(total=TOTAL, per_device=3),
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup_steps=2),
        run=RunConfig(directory=directory, steps=STEPS, save_every=SAVED, seed=SEED, evaluate_every=0, **run),
    )
    vocab = data.manifest.path / "vocab.txt"
    loop.train(loop.Training(task=Poisoned(model, SEED), config=config, comm=Communicator(), data=data, vocab=vocab))
    reader = tf.train.load_checkpoint(str(checkpoint.steps(directory)[-1] / "variables"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture
def samples(dataset: Path) -> Samples:
    return Samples(dataset, "train")


def poisoned(samples: Samples, poison: float, *updates: int) -> Samples:
    samples.poison, samples.poisoned = poison, updates
    return samples


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    for name, value in one.items():
        assert name == "run/sample_offset" or value.tobytes() == two[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, True])
def test_a_spike_is_a_loss_far_above_the_median_of_the_last_losses(skip: bool) -> None:
    random = np.random.default_rng(8)
    losses = random.uniform(1.0, 2.0, 200)
    places = [20, 90, 91, 150]  # at the first there is no median yet
    losses[places] = [50.0, 7.0, 5.0, 1e4]
    guard, seen = UpdateGuard(scaled=False, spike_factor=3.0, skip_spikes=skip), []
    for number, loss in enumerate(losses):
        go, found = guard.check(tf.constant(loss, tf.float32), tf.constant(1.0))
        last = [one for index, one in enumerate(losses[:number]) if not skip or index not in seen][-spikes.WINDOW :]
        if found["spike"]:
            assert loss > 3 * np.median(last) and bool(go) != skip
            seen.append(number)
    assert seen == places[1:] and float(guard.skipped) == (3 if skip else 0)


@pytest.mark.faults
def test_a_rolled_back_run_equals_one_without_the_skipped_samples(
    samples: Samples, shallow_config: ModelConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spiked = trained(poisoned(samples, 30.0, SPIKE), tmp_path / "spiked", shallow_config, on_spike="rollback")
    said = capfd.readouterr().err
    first = (SPIKE - 1) * TOTAL
    assert f"step {SPIKE}: the loss " in said and f"samples {first} to {first + TOTAL - 1} in the order" in said
    assert f"back to step {SAVED}" in said and spiked["run/sample_offset"] == SPIKE - SAVED
    never = poisoned(samples, 1.0)
    never.absent = (SAVED, SPIKE)
    same(spiked, trained(never, tmp_path / "never", shallow_config))
    lines = (tmp_path / "spiked" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == STEPS // 20 + 1, "a step was logged twice"  # the last line says what the run was fed


@pytest.mark.faults
def test_a_skipped_spike_has_no_effect_and_an_applied_one_has(
    samples: Samples, shallow_config: ModelConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, poison: float, policy: str) -> dict[str, np.ndarray]:
        return trained(poisoned(samples, poison, SPIKE), tmp_path / name, shallow_config, on_spike=policy)

    one, two = run("one", 30.0, "skip"), run("two", 77.0, "skip")
    same(one, two)
    assert one["guard/skipped"] == 1 and "the update was skipped" in capfd.readouterr().err
    warned = run("warned", 30.0, "warn")
    assert warned["guard/skipped"] == 0 and "the update was made" in capfd.readouterr().err
    assert np.abs(warned["embeddings/word"] - one["embeddings/word"]).max() > 1e-5


@pytest.mark.faults
@pytest.mark.parametrize("policy", ["skip", pytest.param("rollback", marks=pytest.mark.thorough)])
def test_a_loss_that_stays_high_ends_the_run(
    policy: str, samples: Samples, shallow_config: ModelConfig, tmp_path: Path
) -> None:
    always = poisoned(samples, 30.0, *range(SPIKE, 10 * STEPS))
    with pytest.raises(
        IntegrityError, match=r"step \d+: the loss .* run.max_skipped 3 is reached; newest checkpoint: .*step-00000040"
    ):
        trained(always, tmp_path / "run", shallow_config, on_spike=policy, max_skipped=3)
    assert [folder.name for folder in checkpoint.steps(tmp_path / "run")] == [f"step-{SAVED:08d}"]


@pytest.mark.faults
def test_a_run_in_which_no_update_is_made_ends_with_an_error(
    samples: Samples, shallow_config: ModelConfig, tmp_path: Path
) -> None:
    always = poisoned(samples, np.inf, *range(1, STEPS + 1))
    with pytest.raises(IntegrityError, match=rf"step {STEPS}: .* as were all others, so nothing was learned"):
        trained(always, tmp_path / "run", shallow_config, max_skipped=STEPS + 1)


@pytest.mark.faults
def test_without_a_checkpoint_the_spike_is_skipped(
    samples: Samples, shallow_config: ModelConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = trained(poisoned(samples, 30.0, SAVED - 2), tmp_path / "run", shallow_config, on_spike="rollback")
    assert found["guard/skipped"] == 1 and found["run/sample_offset"] == 0
    assert f"step {SAVED - 2}: the loss" in (said := capfd.readouterr().err) and "the update was skipped" in said
