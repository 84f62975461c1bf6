"""A run that goes on from a checkpoint of another one is the run that has its settings from the beginning."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from bert import pretrain
from bert.core.config import (
    BatchConfig,
    InitConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
    flatten,
)
from bert.core.errors import InputError, Stopped, UsageError
from bert.training import resume
from tests.training import TINY, checkpoints, measured, same_bits, weights, write_dataset

STABLE = ["--optimizer.schedule", "stable"]
DECAY = [*STABLE, "--optimizer.decay_start", "4", "--optimizer.decay_power", "0.5"]


def train(dataset: Path, run: Path, steps: int, *more: str) -> None:
    flags = ["--data.train", str(dataset), "--run.directory", str(run), "--batch.per_device", "3", "--run.keep", "9"]
    every = ["--run.save_every", "2", "--optimizer.name", "adamw"]
    pretrain.main(["demo_phase1", *flags, *TINY, *every, "--run.steps", str(steps), *more])


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data, and a run whose rate does not fall, of three updates, then of eight."""
    folder = tmp_path_factory.mktemp("branch")
    data = write_dataset(folder / "data")
    for steps in (3, 8):
        train(data, folder / "run", steps, *STABLE)
    return data, folder / "run"


@pytest.mark.slow
def test_a_decay_from_any_checkpoint_has_the_bits_of_one_that_was_planned(
    endless: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, source = endless
    train(data, tmp_path / "planned", 7, *DECAY)
    begun = ["--init.checkpoint", str(source), "--init.step", "4"]
    saved = []
    for stop in (4, 5):
        with pytest.raises(Stopped, match=f"stopped at step {stop} of 7, saved"):
            train(data, tmp_path / "branch", 7, *DECAY, *begun, "--run.stop_at", str(stop))
        saved.append(f"step-{stop:08d}")
        assert checkpoints(tmp_path / "branch") == saved
    train(data, tmp_path / "branch", 7, *DECAY, *begun)
    assert f"going on from {source} after step 4" in capsys.readouterr().err
    same_bits(weights(tmp_path / "branch", 7), weights(tmp_path / "planned", 7))
    planned, branch = measured(tmp_path / "planned"), measured(tmp_path / "branch")
    assert {key: planned[key] for key in branch if key[1] == "train"} == {
        key: line for key, line in branch.items() if key[1] == "train"
    }
    rates = [branch[step, "train"]["learning_rate"] for step in (5, 6, 7)]
    assert rates == pytest.approx([0.01, 0.01 * (1 - (1 / 3) ** 0.5), 0.01 * (1 - (2 / 3) ** 0.5)])


@pytest.mark.slow
def test_what_the_other_run_would_not_have_done_is_refused(endless: tuple[Path, Path], tmp_path: Path) -> None:
    data, source = endless
    begun = ["--init.checkpoint", str(source), "--init.step", "4"]
    cases: list[tuple[type[Exception], str, list[str]]] = [
        (
            UsageError,
            r"run\.seed was 12345, now 7\); give --run\.seed 12345 to go on from it",
            [*DECAY, "--run.seed", "7"],
        ),
        (UsageError, "update 3 had learning rate 0.01, which would be 0.007", []),
        (UsageError, "update 4 had learning rate 0.01", [*STABLE, "--optimizer.decay_start", "2"]),
        (InputError, "no checkpoint of update 5; there are 2, 3, 4, 6, 8", [*DECAY, "--init.step", "5"]),
        (UsageError, "init.step 7 is not before run.steps 7", [*DECAY, "--init.step", "7"]),
        (UsageError, "init.step 4 needs --init.checkpoint RUN", [*DECAY, "--init.checkpoint", "none"]),
        (UsageError, r"with budget\.hours the learning rate follows the clock", [*DECAY, "--budget.hours", "1"]),
        (UsageError, "batch.bucket_by_length sorts samples", [*DECAY, "--batch.bucket_by_length", "2"]),
    ]
    for kind, message, flags in cases:
        with pytest.raises(kind, match=message):
            train(data, tmp_path / "branch", 7, *begun, *flags)
    assert not list(tmp_path.rglob("config.json"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--optimizer.decay_start", "5"], "decay_start has no effect with optimizer.schedule polynomial"),
        ([*STABLE, "--optimizer.decay_start", "1"], "decay_start 1 is within optimizer.warmup_steps 2"),
        ([*STABLE, "--optimizer.minimum_rate", "1e-5"], "need optimizer.decay_start"),
        ([*STABLE, "--optimizer.decay_start", "7"], "decay_start 7 is not before the end of the decay, update 7"),
    ],
)
def test_a_decay_that_cannot_be_meant_is_refused(flags: list[str], message: str, dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        train(dataset, tmp_path / "run", 7, *flags)


@pytest.mark.slow
def test_a_student_with_layers_of_its_teacher_goes_on_with_the_same_teacher_alone(
    endless: tuple[Path, Path], tmp_path: Path
) -> None:
    data, source = endless
    teacher, layers = tmp_path / "teacher", ["--init.layers", "0"]
    shutil.copytree(source, teacher)
    learns = ["--distill.teacher", str(teacher), "--model.hidden_dropout_prob", "0.1"]
    flags = [*learns, *layers]
    train(data, tmp_path / "student", 4, *STABLE, *flags, "--init.checkpoint", str(teacher))
    train(data, tmp_path / "planned", 6, *DECAY, *flags, "--init.checkpoint", str(teacher))
    begun = [*DECAY, *flags, "--init.checkpoint", str(tmp_path / "student"), "--init.step", "4"]
    with pytest.raises(Stopped, match="stopped at step 5 of 6"):
        train(data, tmp_path / "branch", 6, *begun, "--run.stop_at", "5")
    train(data, tmp_path / "branch", 6, *begun)
    same_bits(weights(tmp_path / "branch", 6), weights(tmp_path / "planned", 6))
    shutil.rmtree(teacher / "checkpoints/step-00000008")  # the newest one is now another
    with pytest.raises(UsageError, match=r"student: was begun with a teacher of other weights than \S*teacher has now"):
        train(data, tmp_path / "other", 6, *begun)


def test_the_decay_that_a_refusal_names_counts_the_updates_of_earlier_phases(
    model_config: ModelConfig, tmp_path: Path
) -> None:
    endless = OptimizerConfig(learning_rate=1.0, schedule="stable", first_step=10)
    config = PretrainConfig(
        model=model_config,
        batch=BatchConfig(total=6, per_device=3),
        optimizer=endless,
        run=RunConfig(directory=tmp_path / "branch", steps=8),
        init=InitConfig(checkpoint=tmp_path, step=4),
    )
    early = dataclasses.replace(config, optimizer=dataclasses.replace(endless, decay_start=11))
    with pytest.raises(UsageError, match=r"update 3 had learning rate 1, .* --optimizer\.decay_start 14\)"):
        resume._check_rates(flatten(config), early, tmp_path)
    named = dataclasses.replace(config, optimizer=dataclasses.replace(endless, decay_start=14))
    resume._check_rates(flatten(config), named, tmp_path)
