"""The comparison of the planner with measurements on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plan_check
from benchmarks.slow_network.__main__ import MODELS
from bert.errors import InputError, UsageError
from bert.plan import model_cost

MICRO_BATCH, OPTIMIZER = 0.7, 6 * 4 / 8e9  # seconds; and of a parameter
PARAMETERS = model_cost.parameters(MODELS["small"])


def row(accumulation: int, megabits: float, way: str = "summed") -> dict[str, Any]:
    """What a machine would measure that does as the formula says."""
    compute = accumulation * MICRO_BATCH + OPTIMIZER * PARAMETERS
    sent = 4 * PARAMETERS / (0.951 * megabits * 1e6 / 8)
    facts = {"model": "small", "sequences": 5, "tokens": 64, "ranks": 2, "megabits": megabits, "way": way}
    return facts | {"accumulation": accumulation, "compute": compute, "update": compute + sent}


ROWS = [row(accumulation, megabits) for megabits in (1000.0, 100.0) for accumulation in (1, 7)]


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "updates.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [{"cpu": "any"}, {"link": {}}, *rows]))
    return path


def test_one_row_predicts_the_others(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS)
    found = list(plan_check.from_updates(plan_check.read(path), plan_check.Options(updates=path)))
    assert len(found) == len(ROWS) + len(ROWS) - 1  # exchanged, and alone but for the one that gives the rate
    assert sum("one rank" in one.name for one in found) == len(ROWS) - 1
    assert all(abs(one.error) < 0.005 for one in found)


def test_a_miss_is_counted_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ROWS[-1] | {"update": 2 * ROWS[-1]["update"]}
    with pytest.raises(SystemExit) as ended:
        plan_check.main(["--updates", str(write(tmp_path, [*ROWS[:-1], wrong]))])
    assert ended.value.code == 1 and "6 of 7 within 10%" in capsys.readouterr().out
    plan_check.main(["--updates", str(write(tmp_path, ROWS))])


def test_mistakes_end_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        plan_check.main([])
    with pytest.raises(UsageError, match="FOLDER=RANKS"):
        plan_check.main(["--runs", "somewhere"])
    with pytest.raises(InputError, match="no such file"):
        plan_check.main(["--updates", str(tmp_path / "none")])
    (tmp_path / "bad").write_text("{")
    with pytest.raises(InputError, match="not lines of JSON"):
        plan_check.main(["--updates", str(tmp_path / "bad")])
