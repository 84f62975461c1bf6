"""Which checkpoint is the best on a development set, and when a run has stopped to become better.

`best.json` in the run directory names the best checkpoint so far. What was measured before a run was stopped is read
from `metrics.jsonl`, so a resumed run takes the same decisions as one that was never stopped.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from bert.core import checked_json, journal
from bert.core.journal import SCALE

BEST, SPLIT = "best.json", "heldout"


@dataclass(frozen=True, kw_only=True)
class Best:
    """The content of `best.json`."""

    step: int
    """update of the checkpoint"""
    measure: str
    """what is compared; greater is better"""
    value: float
    scale: Literal[1, 100] = 1
    """the value of a perfect score; earlier versions wrote shares, without this entry"""


def read(run: Path) -> Best | None:
    """Return the content of a run's `best.json`; None if there is none. Raise IntegrityError if it is damaged."""
    if not (run / BEST).exists():
        return None
    remedy = "remove it to use the newest checkpoint"
    best: Best = checked_json.read(run / BEST, Best, what="the record of the best checkpoint", remedy=remedy)
    return best if best.scale == SCALE else replace(best, value=SCALE * best.value, scale=SCALE)


def write(run: Path, best: Best) -> None:
    """Write `best.json`."""
    checked_json.write(run / BEST, asdict(best))


class Selection:
    """The best evaluation of a run so far, and the number of evaluations since."""

    def __init__(self, measure: str, patience: int) -> None:
        """patience: number of evaluations without improvement after which the run ends; 0: it does not end early."""
        self.measure, self.patience = measure, patience
        self.best: Best | None = None
        self.since = 0

    def add(self, step: int, value: float) -> bool:
        """Count the evaluation after update `step`; return whether it is the best so far. NaN never is."""
        if math.isfinite(value) and (self.best is None or value > self.best.value):
            self.best, self.since = Best(step=step, measure=self.measure, value=value, scale=SCALE), 0
            return True
        self.since += 1
        return False

    def is_over(self) -> bool:
        """Return whether the last `patience` evaluations brought no improvement."""
        return 0 < self.patience <= self.since

    def replay(self, run: Path, step: int) -> None:
        """Count anew, from `metrics.jsonl`, the run's evaluations up to update `step`."""
        self.best, self.since = None, 0
        if not (run / journal.NAME).exists():
            return
        for line in journal.intact(run / journal.NAME):
            if line["split"] == SPLIT and line["step"] <= step and self.measure in line:
                self.add(line["step"], line[self.measure])
