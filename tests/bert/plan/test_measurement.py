"""A measured run gives the rate."""

import dataclasses
import json
from pathlib import Path

import pytest

from bert.core.config import flatten
from bert.core.errors import InputError
from bert.plan import forecast as forecasts
from bert.plan import hardware, measurement
from bert.plan.forecast import Job, forecast
from bert.recipes import RECIPES

CLUSTER = hardware.cluster("a100-sxm-80", 1, 4)


def write(folder: Path, rate: float) -> Path:
    config = RECIPES["bert_large_phase1"].phases[0].config
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=30_522),
        batch=dataclasses.replace(config.batch, total=768),
        precision=config.precision.resolved(gpu=True),
    )
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": flatten(config)}))
    rates = [rate / 9, rate, rate, 0.9 * rate, 1.1 * rate]  # the first update compiles
    lines = [
        {"step": step, "split": "train", "sequences_per_second": one, "tokens_per_second": 128 * one}
        for step, one in enumerate(rates, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "metrics.jsonl"


def test_the_plan_of_the_measured_run_gives_back_its_rate(tmp_path: Path) -> None:
    measured = measurement.read(write(tmp_path / "run", 1100.0), CLUSTER, ranks=4)
    config = RECIPES["bert_large_phase1"].phases[0].config
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, vocab_size=30_522),
        batch=dataclasses.replace(config.batch, total=768),
    )
    found = forecast("it", config, CLUSTER, Job(128, 20, measured=measured))
    assert found.accumulation == 3 and found.rate == pytest.approx(1100.0, rel=0.001)
    assert forecasts.replicas(config, CLUSTER) == 4


@pytest.mark.parametrize(("lines", "ranks", "message"), [(1, 4, "lines of training"), (9, 5, "give their number")])
def test_a_run_that_does_not_say_enough_is_refused(tmp_path: Path, lines: int, ranks: int, message: str) -> None:
    path = write(tmp_path / "run", 1100.0)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    with pytest.raises(InputError, match=message):
        measurement.read(path, CLUSTER, ranks)


@pytest.mark.parametrize("content", ["[]", "{", '{"config": {}}', '{"config": {"model.hidden_size": "x"}}'])
def test_damaged_configurations_end_in_one_line(tmp_path: Path, content: str) -> None:
    path = write(tmp_path / "run", 1100.0)
    (path.parent / "config.json").write_text(content)
    with pytest.raises(InputError):
        measurement.read(path, CLUSTER, 4)
    (path.parent / "config.json").unlink()
    with pytest.raises(InputError, match="no such file"):
        measurement.read(path, CLUSTER, 4)


def test_predictions_are_those_of_the_data() -> None:
    model = RECIPES["bert_large_phase1"].phases[0].config.model
    assert [measurement.predictions(model, length) for length in (128, 512)] == [20, 77]
