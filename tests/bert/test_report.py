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
