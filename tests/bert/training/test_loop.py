"""A run as a command: its files, its end, its initial weights, and the run directories that it refuses."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core import manifest
from bert.core.config import BatchConfig, DistillConfig, ModelConfig, OptimizerConfig, RunConfig, TrainConfig
from bert.core.errors import Stopped, UsageError
from bert.training import loop, metrics, profiler, step
from tests.training import (
    EVALUATED,
    checkpoints,
    losses,
    measured,
    pretrain,
    same_bits,
    train_here,
    weights,
    write_dataset,
)

OVERLAP, SHARDED = ["--parallel.overlap", "true"], ["--parallel.shard_optimizer", "true"]
BUCKETS = ["--parallel.bucket_megabytes", "0.005"]
LAYOUTS: dict[str, tuple[list[str], int]] = {  # flags, and number of ranks
    "overlap": ([*OVERLAP, *BUCKETS], 2),
    "buckets": (BUCKETS, 2),
    "sharded": (SHARDED, 2),
    "parts": (["--parallel.tensor", "2", *OVERLAP], 2),
    "parts and replicas": (["--parallel.tensor", "2", *SHARDED, *OVERLAP], 4),
}
# Dropout is on: a micro-batch has the same masks whichever rank computes it.
TWENTY = ["--batch.total", "12", "--run.steps", "20", "--run.save_every", "6"]
TWENTY += ["--model.num_attention_heads", "4"]  # which two parts divide
TWENTY += ["--model.num_hidden_layers", "2"]  # overlap has several buckets
NVLAMB = ["--optimizer.name", "nvlamb"]
FIGURES = ["--run.evaluate_every", "10", "--run.evaluate_sequences", "30"]


def ending(outputs: float = 1.0, **run: Any) -> TrainConfig:
    """Return the configuration of a run with these settings of its end."""
    sizes, learning = BatchConfig(total=8, per_device=8), OptimizerConfig(learning_rate=0.1)
    distill = DistillConfig(outputs=outputs, cosine=1 - outputs)
    return TrainConfig(model=ModelConfig(), batch=sizes, optimizer=learning, distill=distill, run=RunConfig(**run))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training records of `dataset`, and held-out ones of three sources."""
    held_out = {"wikipedia": 31, "books": 2, "text": 5}
    return write_dataset(tmp_path_factory.mktemp("sources") / "data", heldout=held_out)


@pytest.fixture(scope="module")
def one_rank(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one rank, with all its checkpoints."""
    run = tmp_path_factory.mktemp("one") / "run"
    train_here(sources, run, *TWENTY, *NVLAMB, *FIGURES, "--run.keep", "9")
    return run


def like(run: Path, one: Path) -> None:
    """Check that the losses and weights of a run are those of one rank's within rounding."""
    same_losses(run, one, 20)
    found = weights(run, 20)
    for key, value in weights(one, 20).items():
        if not key.endswith("key/bias"):  # whose gradient is zero, but for rounding
            np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=2e-5, err_msg=key)


def same_losses(run: Path, one: Path, last: int) -> None:
    """Check that a run has the training losses of one rank's up to this update, within rounding."""
    many, few = ([losses(at)[number, "train"] for number in range(1, last + 1)] for at in (run, one))
    assert many == pytest.approx(few, rel=1e-6)


@pytest.mark.multiprocess
def test_two_ranks_train_like_one_with_or_without_overlap(one_rank: Path, sources: Path, tmp_path: Path) -> None:
    flags = [*TWENTY, *NVLAMB, *FIGURES]
    for layout in ("buckets", "overlap"):
        (more, ranks), timeline = LAYOUTS[layout], f"{tmp_path}/{layout}.json"
        done = pretrain(sources, tmp_path / layout, *flags, *more, ranks=ranks, HOROVOD_TIMELINE=timeline)
        assert done.returncode == 0, done.stderr
    like(tmp_path / "buckets", one_rank)
    same_bits(weights(tmp_path / "buckets", 20), weights(tmp_path / "overlap", 20))

    one, two = measured(one_rank), measured(tmp_path / "buckets")  # the figures of each source
    for key in ((10, "heldout"), (20, "heldout")):
        assert {"mlm_loss/wikipedia", "mlm_loss/text"} < one[key].keys() == two[key].keys()
        names = one[key].keys() - {"split"}
        assert [two[key][name] for name in names] == pytest.approx([one[key][name] for name in names], rel=1e-5)

    activities = re.findall(r'"ph": "B", "name": "(\w+)"', (tmp_path / "buckets.json").read_text())
    assert activities.count("INIT_FUSION_BUFFER") == 2  # of both tensors of one sum, and no second time
    # Settings and weights are compared and sent by broadcasts, all of them before the first update.
    assert activities.index("INIT_FUSION_BUFFER") < activities.index("BROADCAST")


@pytest.mark.multiprocess
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "compress", "rtol", "several"), [("adam", "false", 1e-6, (2, 4)), ("lamb", "true", 2e-3, (4,))]
)
def test_two_and_four_ranks_train_like_one(
    name: str, compress: str, rtol: float, several: tuple[int, ...], dataset: Path, tmp_path: Path
) -> None:
    # Dropout is on: a micro-batch has the same masks whichever rank computes it.
    flags = ["--batch.total", "12", "--run.steps", "8", "--run.save_every", "8", "--optimizer.learning_rate", "1e-3"]
    flags += ["--optimizer.name", name, "--precision.compress", compress]
    for ranks in (1, *several):  # which accumulate 4, 2 and 1 micro-batches of 3
        done = pretrain(dataset, tmp_path / str(ranks), *flags, ranks=ranks)
        assert done.returncode == 0, done.stderr
    one = losses(tmp_path / "1")
    for run in (tmp_path / str(ranks) for ranks in several):
        many = losses(run)
        assert one.keys() == many.keys()
        assert list(many.values()) == pytest.approx(list(one.values()), rel=rtol)
        if compress == "true":
            before, after = (weights(at, 8)["adam_m/embeddings/word"] for at in (tmp_path / "1", run))
            assert np.abs(after - before).max() > 1e-5 * np.abs(before).max()  # the switch has an effect
            continue
        for key, value in weights(tmp_path / "1", 8).items():
            np.testing.assert_allclose(value, weights(run, 8)[key], rtol=1e-3, atol=2e-5, err_msg=key)


@pytest.mark.slow
def test_an_objective_without_figures_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_dataset(tmp_path / "data", label=0)
    train_here(data, tmp_path / "run", "--run.steps", "4", "--run.evaluate_every", "2")
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith(f"warning: {data}: all pairs")]
    assert len(told) == 1 and "no figures of nsp" in told[0]
    lines = [values for (_, split), values in measured(tmp_path / "run").items() if split == "heldout"]
    assert [set(line) for line in lines] == [{"step", "split", "scale", "loss", "mlm_loss", "mlm_accuracy"}] * 2


@pytest.mark.slow
def test_a_run_that_ends_within_the_warm_up_says_so(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_here(dataset, tmp_path / "run", "--run.steps", "1", "--budget.hours", "9")
    said = capsys.readouterr().err
    assert "warning: optimizer.warmup_steps 2 are not over when the run ends, after update 1" in said
    assert "warning: run.steps 1 ended the run after " in said and " of budget.hours 9, which" in said


@pytest.mark.slow
def test_a_profile_that_never_begins_is_told(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_here(dataset, tmp_path / "run", "--run.steps", "1", "--run.profile", "2")
    assert "warning: run.profile 2 profiles nothing, as the run ends after update 1" in capsys.readouterr().err


def test_a_profile_that_begins_is_not_told() -> None:
    assert not profiler.never(RunConfig(steps=7, profile=7)) and not profiler.never(RunConfig(steps=7))


class Scores:
    """An evaluator; `check_early_end` asks for no score."""

    measure = "f1"

    def scores(self, step: step.Step, alive: Any) -> dict[str, float]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("config", "heldout", "said"),
    [
        (ending(target_accuracy=72), "samples", ""),
        (ending(target_accuracy=72), None, "run.target_accuracy 72 does not end this run"),
        (ending(target_accuracy=72, evaluate_every=0), "samples", "run.target_accuracy 72 does not end"),
        (ending(patience=3), "samples", "run.patience counts scores on a development set, of which"),
        (ending(outputs=0, target_accuracy=72), "samples", "there is no accuracy"),
        (ending(patience=3), Scores(), ""),
        (ending(patience=3), None, "run.patience counts scores on a development set, of which"),
        (ending(patience=3, evaluate_every=0), Scores(), "run.patience 3 does not end this run"),
        (ending(target_accuracy=90), Scores(), "run.target_accuracy is for pretraining; leave"),
    ],
)
def test_an_early_end_that_cannot_come_is_told(config: Any, heldout: Any, said: str) -> None:
    """A usage error if the run's evaluations never have the figure, else a warning; "" if it may come."""
    try:
        told = loop.check_early_end(config, heldout)
    except UsageError as error:
        assert "does not end" not in said and said in str(error)
    else:
        assert told.startswith(said) and bool(told) == bool(said)


# Sums buckets in the same order, but when the backward pass has ended.
AFTERWARDS = """
    from bert.training import distributed, overlap
    distributed.HorovodCommunicator.reduce_in_graph = lambda self, tensors, name, **_: list(tensors)
    overlap.Overlap.reduce = lambda self, gradients, scalars: self.reducer.reduce(gradients, scalars)
"""


@pytest.mark.multiprocess
@pytest.mark.thorough
def test_overlap_with_xla_computes_the_bits_of_sums_after_the_same_programs(dataset: Path, tmp_path: Path) -> None:
    flags = [*TWENTY, "--run.steps", "4", "--run.save_every", "4", "--precision.xla", "true"]
    for name, layout, patch in (
        ("during", "overlap", None),
        ("after", "overlap", AFTERWARDS),
        ("one program", "buckets", None),
    ):
        more, ranks = LAYOUTS[layout]
        run = tmp_path / name
        done = pretrain(dataset, run, *flags, *more, ranks=ranks, patch=patch, XLA_FLAGS="", TF_XLA_FLAGS="")
        assert done.returncode == 0, done.stderr
    same_bits(weights(tmp_path / "during", 4), weights(tmp_path / "after", 4))
    during, together = (list(losses(tmp_path / name).values()) for name in ("during", "one program"))
    assert during == pytest.approx(together, rel=1e-6)


@pytest.mark.multiprocess
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("layout", ["parts", pytest.param("parts and replicas", marks=pytest.mark.thorough)])
def test_a_run_goes_on_in_other_layouts(layout: str, one_rank: Path, sources: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(one_rank, run)
    for path in (run / "checkpoints").iterdir():
        if path.name != "step-00000006":
            shutil.rmtree(path)
    profile = ["--run.profile", "11"]  # up to the fifteenth update, before which it stops
    for last, name, beside in ((13, "sharded", profile), (20, layout, [])):
        more, ranks = LAYOUTS[name]
        stop = STOP.format(number=last)
        done = pretrain(sources, run, *TWENTY, *NVLAMB, *FIGURES, *more, *beside, ranks=ranks, patch=stop)
        assert done.returncode in (0, 75), (name, done.stderr)
        same_losses(run, one_rank, last)
        if name == "sharded":
            assert "after step 6\n" in done.stderr and list((run / "events").rglob("*.xplane.pb"))
            assert "REDUCESCATTER" in (run / "timeline.json").read_text()
    like(run, one_rank)


# A rank that is asked to stop during this update: all ranks save after it.
STOP = """
    import os, signal
    from bert.training import step
    update = step.Step.update
    def asking(self, number, *arguments, **named):
        if number == {number} and self.comm.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, number, *arguments, **named)
    step.Step.update = asking
"""


@pytest.mark.slow
def test_a_run_ends_at_its_target_accuracy_and_profiles_the_chosen_updates(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--run.steps", "2000", "--run.target_accuracy", "2", "--run.profile", "2", "--run.save_every", "2000"]
    train_here(dataset, run, *options, "--run.evaluate_every", "8")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first = next(line["step"] for line in lines if line["split"] == "heldout" and line["mlm_accuracy"] >= 2)
    assert lines[-1]["step"] == first < 2000
    assert [path.name for path in (run / "checkpoints").iterdir()] == [f"step-{first:08d}"]
    assert list((run / "events" / "plugins" / "profile").rglob("*.xplane.pb"))
    train_here(dataset, run, *options, "--run.evaluate_every", "8")  # it has ended
    assert len((run / "metrics.jsonl").read_text().splitlines()) == len(lines)


@pytest.mark.slow
def test_a_budget_of_time_ends_the_run(dataset: Path, tmp_path: Path) -> None:
    run, begun = tmp_path / "run", time.monotonic()
    options = ["--run.steps", "100000", "--budget.hours", str(3 / 3600), *EVALUATED]
    train_here(dataset, run, *options)
    took = time.monotonic() - begun
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["split"] for line in lines[-2:]] == ["heldout", "fed"] and lines[-1]["step"] < 100_000
    assert checkpoints(run)[-1] == f"step-{lines[-1]['step']:08d}"
    assert 3 <= weights(run, lines[-1]["step"])["run/seconds"] <= took
    train_here(dataset, run, *options)  # it has ended
    assert len((run / "metrics.jsonl").read_text().splitlines()) == len(lines)


# Every update takes four seconds by this clock.
CLOCK = """
    from bert.training import metrics
    metrics.Clock.since_last_asked = lambda self: 4.0
"""
KILL = STOP.replace("signal.SIGTERM", "signal.SIGKILL")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # half a minute of processor time
def test_a_budget_of_time_is_that_of_all_sessions_together_and_the_schedule_follows_it(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics.Clock, "since_last_asked", lambda self: 4.0)  # as CLOCK, in this process
    straight, run = tmp_path / "straight", tmp_path / "run"
    options = ["--run.steps", "1000", "--budget.hours", "0.01", "--optimizer.warmup_steps", "250"]  # 36 s
    options += ["--run.save_every", "2", *EVALUATED]
    train_here(dataset, straight, *options)
    train = [values for (_, split), values in sorted(measured(straight).items()) if split == "train"]
    done = [4 * number / 36 * 1000 for number in range(9)]  # updates of the schedule, by the clock
    rates = [0.01 * (at / 250 if at < 250 else 1 - at / 1000) for at in done]
    assert [line["learning_rate"] for line in train] == pytest.approx(rates)

    make_update = step.Step.update

    def asking(self: step.Step, number: int, *arguments: Any, **named: Any) -> Any:
        if number == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return make_update(self, number, *arguments, **named)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(step.Step, "update", asking)
        train_here(dataset, run, *options)
    with pytest.raises(Stopped):
        train_here(dataset, run, *options, "--run.stop_at", "5")
    ended = pretrain(dataset, run, *options, patch=CLOCK + KILL.format(number=8))
    assert ended.returncode == -9, ended.stderr
    for _ in range(2):  # to the end, and once more
        train_here(dataset, run, *options)
    assert checkpoints(run)[-1] == checkpoints(straight)[-1] == "step-00000009"
    assert weights(run, 9)["run/seconds"] == 36
    same_bits(weights(run, 9), weights(straight, 9))
    lines = measured(run)
    assert lines.pop((5, "heldout"))  # which --run.stop_at adds
    assert lines == measured(straight)


@pytest.mark.slow
def test_a_run_directory_records_configuration_versions_and_checkpoints(dataset: Path, tmp_path: Path) -> None:
    straight = tmp_path / "run"
    train_here(dataset, straight, "--run.steps", "40", "--run.save_every", "7")
    config = json.loads((straight / "config.json").read_text())
    assert config["config"]["run.steps"] == 40 and "tensorflow" in config["versions"]
    assert json.loads((straight / "bert_config.json").read_text())["vocab_size"] == 99
    assert (straight / "vocab.txt").exists() and list((straight / "events").iterdir())
    assert checkpoints(straight) == [f"step-{step:08d}" for step in (28, 35, 40)]
    found = manifest.load(straight / "checkpoints" / "step-00000040", "checkpoint")
    manifest.verify(found)
    curve = [loss for (_, split), loss in losses(straight).items() if split == "train"]
    assert np.mean(curve[-5:]) < np.mean(curve[:5]) - 0.2
