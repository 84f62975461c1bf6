"""The best checkpoint is that with the highest score, and a resumed run takes the same decisions."""

import json
from pathlib import Path

import pytest

from bert.core import checked_json, journal
from bert.training import selection
from bert.training.selection import Selection

SCORES = [50.0, float("nan"), 70.0, 70.0, 60.0, 90.0, 80.0]  # after updates 10, 20, ...


def taken(chosen: Selection, scores: list[float]) -> list[bool]:
    return [chosen.add(10 * number, score) for number, score in enumerate(scores, 1)]


def test_the_best_is_the_highest_and_the_first_of_equal_ones() -> None:
    chosen = Selection("f1", patience=0)
    assert taken(chosen, SCORES) == [True, False, True, False, False, True, False]
    assert chosen.best == selection.Best(step=60, measure="f1", value=90.0, scale=100) and chosen.since == 1


@pytest.mark.parametrize(("patience", "over"), [(2, [False, False, False, False, True]), (0, [False] * 5)])
def test_a_run_is_over_after_as_many_evaluations_without_improvement(patience: int, over: list[bool]) -> None:
    chosen, found = Selection("f1", patience), []
    for number, score in enumerate(SCORES[:5], 1):
        chosen.add(10 * number, score)
        found.append(chosen.is_over())
    assert found == over


def test_what_was_measured_before_a_stop_counts_up_to_the_step_that_is_resumed(tmp_path: Path) -> None:
    lines = [
        {"step": 10 * number, "split": "heldout"} | ({"f1": score, "scale": 100} if number > 4 else {"f1": score / 100})
        for number, score in enumerate(SCORES, 1)
    ]  # the first four are of an earlier version
    others = [{"step": 10, "split": "train", "f1": 7.0}, {"step": 10, "split": "heldout", "loss": 7.0}]
    text = "\n".join(json.dumps(line) for line in [*others, *lines]).replace("NaN", '"nan"')
    (tmp_path / journal.NAME).write_text(text + '\n{"step": 80, "split": "hel')
    for count in range(8):
        straight, resumed = (Selection("f1", patience=3) for _ in range(2))
        taken(straight, SCORES[:count])
        resumed.add(99, 99.9)  # is forgotten
        resumed.replay(tmp_path, 10 * count)
        assert (resumed.best, resumed.since) == (straight.best, straight.since)


def test_the_best_of_an_earlier_version_is_read_in_percent(tmp_path: Path) -> None:
    checked_json.write(tmp_path / selection.BEST, {"step": 7, "measure": "f1", "value": 0.625})
    best = selection.Best(step=7, measure="f1", value=62.5, scale=100)
    assert selection.read(tmp_path) == best
    selection.write(tmp_path, best)
    assert selection.read(tmp_path) == best
