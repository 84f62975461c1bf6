"""The report of runs has what their files say, and draws runs with and without held-out figures."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import report
from bert.core.errors import InputError, UsageError


def write(run: Path, steps: int, held_out: bool) -> Path:
    run.mkdir()
    lines = [
        {"step": step, "split": "train", "loss": 100 / step, "mlm_accuracy": 0.1, "tokens_per_second": 10.0 * step}
        for step in range(10, steps + 1, 10)
    ]
    if held_out:
        lines.append({"step": steps, "split": "heldout", "scale": 100, "loss": 1.5, "mlm_accuracy": 25.5})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write(tmp_path / "one", 50, held_out=True), write(tmp_path / "two", 30, held_out=False)
    report.main([str(one), str(two), "--output", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    figures = {"steps": 50, "tokens_per_second": 300, "train_loss": 2.0}
    assert found[str(one)] == figures | {"mlm_accuracy": 25.5, "heldout_loss": 1.5}
    assert found[str(two)]["steps"] == 30 and "heldout_loss" not in found[str(two)]
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].split() == [str(one), "50", "300", "2", "25.5", "1.5"]
    assert rows[2].split() == [str(two), "30", "200", "3.33333"]


def test_the_work_folder_has_the_report_of_a_command_that_names_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    report.main([str(write(tmp_path / "one", 50, held_out=True))])
    assert {path.name for path in (tmp_path / "work/report").iterdir()} == {"curves.png", "report.json"}
    assert f"{tmp_path}/work/report/curves.png" in capsys.readouterr().out


def test_damaged_lines_are_left_out_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run$_{", 50, held_out=True)
    damages = [
        '{"step": 60, "split": "tr',
        "\udcff\udc80",
        "[]",
        '{"step": 70, "split": "train", "loss": [1]}',
        "[" * 9999,
    ]
    more = [{"step": 60, "split": "train", "loss": "nan", "tokens_per_second": "inf"}, {"step": 60, "split": "heldout"}]
    texts = [(run / "metrics.jsonl").read_text(), *(json.dumps(line) + "\n" for line in more), "\n".join(damages)]
    (run / "metrics.jsonl").write_bytes("".join(texts).encode(errors="surrogateescape"))
    report.main([str(run), "--output", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert f"warning: {run}/metrics.jsonl: 5 damaged lines left out\n" in said.err
    found = json.loads((tmp_path / "out" / "report.json").read_text(), parse_constant=pytest.fail)[str(run)]
    assert found == {"steps": 60, "tokens_per_second": 300, "train_loss": "nan"}


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty: no update"), (b"\xff\n{", "all 2 lines are damaged")])
def test_a_run_without_a_whole_line_is_named(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(data)
    with pytest.raises(InputError, match=rf"metrics\.jsonl: {reason}"):
        report.main([str(tmp_path), "--output", str(tmp_path / "out")])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing/metrics\.jsonl: no such file"):
        report.main([str(tmp_path / "nothing"), "--output", str(tmp_path)])
    with pytest.raises(UsageError, match="required: RUNS"):
        report.main(["--output", str(tmp_path)])


def test_a_run_that_was_rolled_back_has_the_figures_of_all_its_lines(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    steps = [*range(1, 400), *range(200, 901, 7), *range(300, 503)]  # two returns to an earlier checkpoint
    train = [
        {"step": step, "split": "train", "loss": float(loss), "tokens_per_second": float(speed)}
        for step, loss, speed in zip(steps, random.random(len(steps)), random.random(len(steps)) * 1e6, strict=True)
    ]
    train[5]["tokens_per_second"] = math.inf
    heldout: list[dict[str, Any]] = [
        {"step": step, "split": "heldout", "loss": step / 7, "mlm_accuracy": 100 / step, "scale": 100}
        for step in (301, 895, 450)
    ]
    del heldout[1]["scale"]  # as earlier versions wrote a line
    heldout[1]["mlm_accuracy"] /= 100
    fed = {"step": 502, "split": "fed", "samples": 31}
    lines = [*train[:300], heldout[0], *train[300:600], heldout[1], {"step": 5000, "split": "other"}, *train[600:]]
    text = "".join(json.dumps(line).replace("Infinity", '"inf"') + "\n" for line in [*lines, heldout[2], fed])
    (tmp_path / "metrics.jsonl").write_text(text)
    speeds = np.sort([line["tokens_per_second"] for line in train])[: len(train) - 1]  # without the infinite one
    metrics = report.read_metrics(tmp_path)
    assert metrics.figures() == {
        "steps": 900 - (900 - 200) % 7,
        "tokens_per_second": round(speeds[len(speeds) // 2]),
        "train_loss": train[-1]["loss"],
        "mlm_accuracy": 100 / 450,
        "heldout_loss": 450 / 7,
        "fed_samples": 31,
    }
    assert metrics.last_step == 502
    assert metrics.loss.points() == [(line["step"], line["loss"]) for line in train]
    assert metrics.accuracy.points() == [(301, 100 / 301), (895, 100 / 895), (450, 100 / 450)]


def test_the_curve_is_of_the_accuracy_also_beside_a_metric_whose_name_ends_so() -> None:
    metrics = report.Metrics()
    for step in (3, 7):
        metrics.add({"step": step, "split": "heldout", "accuracy": 10.0 * step, "balanced_accuracy": 1.0})
    assert metrics.accuracy.points() == [(3, 30.0), (7, 70.0)]


@pytest.mark.parametrize("count", [8191, 100_003])
def test_a_thinned_curve_has_few_points_and_the_same_outline(count: int) -> None:
    values = np.random.default_rng(3).standard_normal(count).cumsum()
    values[count // 3] += 1e4  # one peak
    curve = report.Curve()
    for step, value in enumerate(values.tolist()):
        curve.add(step, value)
    points = curve.points()
    assert len(points) <= min(count, 4 * report.GROUPS + report.OPEN_POINTS)
    assert (points[0], points[-1]) == ((0, values[0]), (count - 1, values[-1]))
    steps, kept = np.array(points).T
    assert np.array_equal(kept, values[steps.astype(int)]) and np.all(np.diff(steps) > 0)
    column = np.arange(count) * 500 // count  # of pixels; a column is wider than a group
    for sign in (1, -1):
        whole, thinned = np.full(500, -np.inf), np.full(502, -np.inf)
        np.maximum.at(whole, column, sign * values)
        np.maximum.at(thinned, column[steps.astype(int)] + 1, sign * kept)
        beside = np.maximum(np.maximum(thinned[:-2], thinned[2:]), thinned[1:-1])
        assert np.all(thinned[1:-1] <= whole) and np.all(whole <= beside)


def test_a_curve_that_diverges_ends_in_a_gap_however_long_it_is() -> None:
    curve = report.Curve()
    for step in range(50_001):
        curve.add(step, math.nan if step > 25_000 else 1.5)
    finite = [step for step, value in curve.points() if not math.isnan(value)]
    assert 25_000 - 50_001 * 2 / report.GROUPS <= finite[-1] <= 25_000 and len(curve.points()) < 4 * report.GROUPS
