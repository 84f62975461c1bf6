"""The number of updates of a run that became longer than it began.

`run.steps` of a run may grow. `config.json` keeps the number that the run began with; `longer.json` beside it has what
it was changed to, and after which update. Learning rates follow the schedule of the new number from there on. Those of
the updates before were of a shorter run, so the result is that of a run of the new length from its beginning only if
the schedule does not depend on the length (`optimizer.decay_steps`).
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.core import checked_json, files
from bert.core.config import TrainConfig
from bert.training import schedule

NAME = "longer.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a run to a greater length."""

    after: int
    """update that was the newest one"""
    steps: int
    """number of updates from there on"""
    end: int
    """end of the samples before, where a pool of `batch.bucket_by_length` ends"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """The content of `longer.json`."""

    growth: list[Change]


def changes(run: Path) -> list[Change]:
    """Return the changes of a run. Raise IntegrityError if the file is damaged."""
    if not (run / NAME).exists():
        return []
    remedy = f"put that file back: without it the run has another number of updates than config.json of {run} says"
    read: Changes = checked_json.read(run / NAME, Changes, what="the record of a longer run", remedy=remedy)
    return read.growth


def _kept(run: Path, step: int) -> list[Change]:
    """Return the changes before update `step`. The checkpoint of that update was made with these only."""
    return [change for change in changes(run) if change.after < step]


def steps(run: Path, settings: Mapping[str, Any], step: int) -> Any:
    """Return the planned number of updates of a run that has saved update `step`.

    settings: `config` of its config.json.
    """
    kept = _kept(run, step)
    return kept[-1].steps if kept else settings.get("run.steps")


def record(run: Path, step: int, before: int, now: int, end: int) -> None:
    """Record that a run that goes on after update `step` has `now` updates instead of `before`. end: as in `Change`.

    If the numbers are equal, only remove changes from update `step` on.
    """
    kept = _kept(run, step) + ([Change(after=step, steps=now, end=end)] if now != before else [])
    if kept:
        checked_json.write(run / NAME, dataclasses.asdict(Changes(growth=kept)))
    elif (run / NAME).exists():
        (run / NAME).unlink()
        files.flush_folder(run)


def describe(config: TrainConfig, step: int, before: int) -> str:
    """Return one line about a run that has made `step` of `before` updates and goes on to `config.run.steps`.

    It says whether a run of this length would have had the same learning rates from its beginning.
    """
    run, optimizer = config.run, config.optimizer
    grown = f"{run.path}: run.steps was {before}, now {run.steps}"
    if config.budget.hours:
        return f"{grown}; the learning rate follows budget.hours"

    def rate(done: int, total: int) -> float:
        return schedule.learning_rate(done, optimizer, total)

    if all(rate(done, before) == rate(done, run.steps) for done in range(before)):
        return f"{grown}; the learning rates so far are those of a run of this length"
    return (
        f"{grown}; update {step + 1} has learning rate {rate(step, run.steps):.4g}, by the schedule of {run.steps} "
        f"updates (update {step} had {rate(max(step - 1, 0), before):.4g}, by that of {before}); the result is not "
        f"that of a run of {run.steps} updates from its beginning"
    )
