"""What rounds of training and rounds of the chain have in common."""

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from random import Random
from typing import ClassVar

from tests.soak.attempts import Attempt
from tests.soak.faults import Disk, Disturbance
from tests.soak.journal import NONE, Journal


class Rounds:
    """Rounds through faults; `at` is the current folder of the commands."""

    faults: ClassVar[Mapping[str, tuple[int, ...]]]  # with the exit codes that are documented for them

    def __init__(self, folder: Path, disk: Disk, disturbance: Disturbance, journal: Journal) -> None:
        self.folder, self.disk, self.disturbance, self.journal = folder, disk, disturbance, journal
        self.at = folder
        self._bag: list[str] = []

    def next_fault(self, draw: Random, impossible: Collection[str] = ()) -> str:
        """Return a fault that is possible; each comes once before one comes again."""
        impossible = {*impossible, *([] if self.disk.own else ["full disk"])}
        if not set(self._bag) - impossible:
            more = list(self.faults)
            draw.shuffle(more)
            self._bag += more
        fault = next(fault for fault in self._bag if fault not in impossible)
        self._bag.remove(fault)
        return fault

    def undisturbed(self, attempt: Attempt) -> float:
        """Return the seconds that an attempt takes. Raise RuntimeError if it fails."""
        began = time.monotonic()
        if attempt.end():
            raise RuntimeError("\n".join(["failed undisturbed:", *attempt.lines[-20:]]))
        return time.monotonic() - began

    def ended(self, where: str, fault: str, place: str, codes: Collection[int], attempt: Attempt) -> int | None:
        """Wait for the end; return the exit code, or None if it was not one documented for the fault."""
        try:
            return self.journal.end(where, fault, place, codes, attempt)
        finally:
            self.disturbance.slow_reads(0)

    def through(
        self, where: str, faults: int, seconds: float, cause: Callable[[], int | None], start: Callable[[], Attempt]
    ) -> bool:
        """Cause this many faults while enough seconds are left, then let an attempt end; return whether all ended well.

        cause: begins an attempt, disturbs it, and returns what `ended` does.
        """
        code: int | None = -1
        while faults and code and self.journal.left() > seconds:
            faults -= 1
            code = cause()
            if code is None:
                return False
        return not code or self.ended(where, NONE, "to the end", (), start()) is not None
