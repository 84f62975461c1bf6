"""A run becomes longer: what it then computes, what it records, and what is refused."""

import itertools
import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from bert import pretrain
from bert.convert import card
from bert.convert.run import read_model
from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PretrainConfig, RunConfig
from bert.core.errors import IntegrityError, Stopped, UsageError
from bert.text.records import Dataset
from bert.text.sampler import BatchSampler
from bert.training import length, schedule
from tests.training import TINY, measured, same_bits, weights, write_dataset


def train(dataset: Path, run: Path, steps: int, *more: str) -> None:
    flags = ["--data.train", str(dataset), "--run.directory", str(run), "--batch.per_device", "3"]
    pretrain.main(["demo_phase1", *flags, *TINY, "--run.steps", str(steps), *more])


@pytest.mark.slow
@pytest.mark.thorough
def test_a_run_whose_decay_does_not_depend_on_its_length_becomes_the_longer_run(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decay = ["--optimizer.decay_steps", "9"]
    train(dataset, tmp_path / "straight", 7, *decay)
    train(dataset, tmp_path / "grown", 4, *decay)
    train(dataset, tmp_path / "grown", 7, *decay)
    assert "run.steps was 4, now 7; the learning rates so far are those of a run of this" in capsys.readouterr().err
    same_bits(weights(tmp_path / "grown", 7), weights(tmp_path / "straight", 7))


@pytest.mark.slow
def test_a_run_that_decayed_to_zero_follows_the_longer_schedule_from_there(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "grown"
    train(dataset, run, 4)
    train(dataset, run, 7)
    note = "update 5 has learning rate 0.004286, by the schedule of 7 updates (update 4 had 0.0025, by that of 4)"
    assert note in capsys.readouterr().err  # 0.01 * (1 - 4 / 7) and 0.01 * (1 - 3 / 4)
    rates = [measured(run)[step, "train"]["learning_rate"] for step in range(1, 8)]
    published = [0, 0.5, *(1 - done / 4 for done in (2, 3)), *(1 - done / 7 for done in (4, 5, 6))]
    np.testing.assert_allclose(rates, 0.01 * np.array(published), rtol=1e-12)
    before = weights(run, 7)

    train(dataset, run, 7)  # it has ended: nothing changes
    assert "run.steps was" not in capsys.readouterr().err
    same_bits(weights(run, 7), before)
    with pytest.raises(UsageError, match=r"run\.steps was 7, now 4\); give --run\.steps 7 to go on with it"):
        train(dataset, run, 4)
    assert json.loads((run / "config.json").read_text())["config"]["run.steps"] == 4

    shown = card.text(read_model(run), "BertForPreTraining")
    assert "--run.steps 4 " in shown and "After update 4 the run became longer, with `--run.steps 7`." in shown

    own = schedule.learning_rate  # a run of 7 updates from the beginning, with these rates
    monkeypatch.setattr(
        schedule, "learning_rate", lambda done, optimizer, steps: own(done, optimizer, 4 if done < 4 else 7)
    )
    train(dataset, tmp_path / "straight", 7)
    same_bits(before, weights(tmp_path / "straight", 7))


@pytest.mark.slow
def test_a_longer_length_counts_once_an_update_was_saved_with_it(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(Stopped):
        train(dataset, run, 5, "--run.stop_at", "3")
    with pytest.raises(Stopped):
        train(dataset, run, 90, "--run.stop_at", "3")  # a mistake, noticed before an update
    with pytest.raises(Stopped):
        train(dataset, run, 6, "--run.stop_at", "4")
    assert length.changes(run) == [length.Change(after=3, steps=6, end=5)]
    with pytest.raises(UsageError, match=r"run\.steps was 6, now 5"):
        train(dataset, run, 5)
    train(dataset, run, 6)


@pytest.mark.slow
def test_a_longer_run_that_returns_to_its_former_end_keeps_its_record(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train(dataset, run, 2)
    train(dataset, run, 4)
    (index,) = (run / "checkpoints/step-00000004").glob("*.index")
    index.write_bytes(index.read_bytes()[:-1])  # the last good checkpoint is that of update 2
    capsys.readouterr()
    train(dataset, run, 4)
    assert "run.steps was 2, now 4" in capsys.readouterr().err
    assert length.changes(run) == [length.Change(after=2, steps=4, end=2)]


@pytest.mark.slow
def test_a_phase_from_which_the_next_has_begun_cannot_become_longer(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--data.train", str(dataset), str(dataset), "--run.directory", str(tmp_path / "run")]
    flags += ["--batch.per_device", "3", *TINY, "--run.steps", "2"]
    flags += ["--optimizer.warmup_steps", "0"]
    pretrain.main(["demo", *flags])
    with pytest.raises(UsageError, match=r"run/phase1: cannot become longer \(run\.steps 3\), because \S*run/phase2 "):
        pretrain.main(["demo", *flags, "--phase1.run.steps", "3"])
    pretrain.main(["demo", *flags, "--phase2.run.steps", "3"])
    assert "phase2: run.steps was 2, now 3" in capsys.readouterr().err


@pytest.mark.parametrize(("former", "end"), [(5, 11), (4, 6), (1, 3)])
def test_sorted_pools_of_a_longer_run_have_each_sample_once(tmp_path: Path, former: int, end: int) -> None:
    data = Dataset(write_dataset(tmp_path / "data", shards=(41, 26)), "train")  # 67 samples, 11 updates of 6
    batch = BatchConfig(total=6, per_device=3, bucket_by_length=4)
    short, grown = BatchSampler(data, batch, seed=5), BatchSampler(data, batch, seed=5)
    grown.ends = [former]
    for update in range(former):  # what the run has read already
        np.testing.assert_array_equal(grown.positions(update, end), short.positions(update, former))
    positions = np.concatenate([grown.positions(update, end) for update in range(end)])
    np.testing.assert_array_equal(np.sort(positions), np.arange(6 * end))


def test_growing_twice_keeps_the_end_of_both(tmp_path: Path) -> None:
    for after, before, now in ((4, 4, 7), (7, 7, 9)):
        length.record(tmp_path, after, before, now, before)
    assert [(change.after, change.end) for change in length.changes(tmp_path)] == [(4, 4), (7, 7)]
    steps = [length.steps(tmp_path, {"run.steps": 4}, step) for step in (3, 4, 5, 7, 8, 9)]
    assert steps == [4, 4, 7, 7, 9, 9]
    (tmp_path / length.NAME).write_text((tmp_path / length.NAME).read_text().replace("9", "8"))
    with pytest.raises(IntegrityError, match="differs from its checksum"):
        length.changes(tmp_path)


@pytest.mark.parametrize("kind", ["polynomial", "cosine"])
def test_the_note_says_whether_the_rates_so_far_are_those_of_the_longer_run(
    kind: Literal["polynomial", "cosine"], model_config: ModelConfig
) -> None:
    def told(minimum: float, decay: int, warmup: int) -> bool:
        optimizer = OptimizerConfig(
            learning_rate=0.1, minimum_rate=minimum, decay_steps=decay, warmup_steps=warmup, schedule=kind
        )
        config = PretrainConfig(
            model=model_config, batch=BatchConfig(total=6, per_device=3), optimizer=optimizer,
            run=RunConfig(directory=Path("run"), steps=8),
        )  # fmt: skip
        rates = [[schedule.learning_rate(done, optimizer, steps) for done in range(5)] for steps in (5, 8)]
        same = "so far are those" in length.describe(config, 5, 5)
        assert same == (rates[0] == rates[1])
        return same

    cases = itertools.product((0.0, 0.1), (0, 9), (0, 2))
    assert [told(*case) for case in cases] == [False, False, True, True, True, True, True, True]
