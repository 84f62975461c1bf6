"""Several seeds: mean and deviation of what each run scored."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert import spread
from bert.core.errors import InputError, UsageError


def test_mean_and_deviation_of_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    f1s = [90.9, 91.2, 90.1, 90.95]
    files = []
    for number, f1 in enumerate(f1s):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps({"exact_match": 80 + number, "f1": f1, "total": 10570, "HasAns_total": 5}))
    spread.main([str(path) for path in files])
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == {"runs", "exact_match", "f1"} and found["runs"] == 4
    assert (found["f1"]["lowest"], found["f1"]["highest"]) == (90.1, 91.2)
    assert found["f1"]["mean"] == pytest.approx(np.mean(f1s))
    assert found["f1"]["deviation"] == pytest.approx(np.std(f1s, ddof=1))


def test_a_picture_is_drawn_of_what_all_runs_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(json.dumps({"examples": 277, "accuracy": 60 + number, "a$b$": 1}))
    names = [str(tmp_path / f"{number}.json") for number in range(3)]
    spread.main([*names, "--picture", str(tmp_path / "spread.png")])
    assert (tmp_path / "spread.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(capsys.readouterr().out).keys() == {"runs", "accuracy", "a$b$"}
    (tmp_path / "0.json").write_text('{"f1": 1}')
    with pytest.raises(InputError, match="no score that all runs have"):
        spread.main([*names, "--picture", str(tmp_path / "none.png")])
    assert not (tmp_path / "none.png").exists()


def test_one_run_has_no_deviation() -> None:
    assert spread.spread([{"f1": 3.0}]) == {
        "runs": 1,
        "f1": {"mean": 3.0, "deviation": 0.0, "lowest": 3.0, "highest": 3.0},
    }


def test_without_scores_it_is_refused() -> None:
    with pytest.raises(UsageError, match="required: SCORES"):
        spread.main([])
