"""The report of runs has what their files say, and draws runs with and without held-out figures."""

import json
from pathlib import Path

import pytest

from bert import report
from bert.errors import InputError, UsageError


def write(run: Path, steps: int, held_out: bool) -> Path:
    run.mkdir()
    lines = [
        {"step": step, "split": "train", "loss": 100 / step, "mlm_accuracy": 0.1, "tokens_per_second": 10.0 * step}
        for step in range(10, steps + 1, 10)
    ]
    if held_out:
        lines.append({"step": steps, "split": "heldout", "loss": 1.5, "mlm_accuracy": 0.25})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write(tmp_path / "one", 50, held_out=True), write(tmp_path / "two", 30, held_out=False)
    report.main([str(one), str(two), "--output", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert found[str(one)] == {
        "steps": 50,
        "tokens_per_second": 300,
        "train_loss": 2.0,
        "mlm_accuracy": 0.25,
        "heldout_loss": 1.5,
    }
    assert found[str(two)]["steps"] == 30 and "heldout_loss" not in found[str(two)]
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].split() == [str(one), "50", "300", "2", "0.25", "1.5"]
    assert rows[2].split() == [str(two), "30", "200", "3.33333"]


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing/metrics\.jsonl: no such file"):
        report.main([str(tmp_path / "nothing"), "--output", str(tmp_path)])
    with pytest.raises(UsageError, match="required: RUNS"):
        report.main(["--output", str(tmp_path)])
