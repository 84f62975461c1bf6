"""What the soak did, one printed line for each fault, and what did not end as documented."""

import time
from collections import Counter
from collections.abc import Collection

from tests.soak.attempts import Attempt, Hang, kill_all

NONE = "no fault"


class Journal:
    """Lines as they happen, counts of faults, and failures."""

    def __init__(self, seconds: float) -> None:
        self._begun = time.monotonic()
        self._end = self._begun + seconds
        self.faults: Counter[str] = Counter()
        self.rounds: Counter[str] = Counter()
        self.failures: list[str] = []

    def left(self) -> float:
        """Return the seconds until the soak should end."""
        return self._end - time.monotonic()

    def say(self, line: str) -> None:
        """Print a line with the time since the start."""
        print(f"{time.monotonic() - self._begun:7.1f} s  {line}", flush=True)

    def fault(self, where: str, fault: str, place: str, code: int, expected: Collection[int]) -> bool:
        """Note a fault, or "no fault", and the exit code after it; return whether that code is documented for it."""
        self.faults[f"{where}: {fault}"] += fault != NONE
        right = code in expected
        wanted = " or ".join(map(str, sorted(expected)))
        self.say(f"{where}: {fault}, {place}: exit {code}" + ("" if right else f", but {wanted} is documented"))
        return right

    def end(self, where: str, fault: str, place: str, codes: Collection[int], attempt: Attempt) -> int | None:
        """Wait for the end of an attempt; return its exit code, or None if it is not one documented for the fault.

        0 is always right: what ends with it must have the right bits, which are compared afterwards.
        """
        try:
            code = attempt.end()
        except Hang as hang:
            self.fail(f"{where}: {fault}, {place}: {hang}", attempt.lines)
            kill_all(attempt.at)
            return None
        right = self.fault(where, fault, place, code, {*codes, 0})
        if not right or "Traceback (most recent call last):" in attempt.lines:
            self.fail(f"{where}: {fault}, {place}: exit {code}", attempt.lines)
            return None
        return code

    def fail(self, message: str, said: Collection[str] = ()) -> None:
        """Note a failure, with what the command said last."""
        self.failures.append(message)
        self.say(f"FAILED {message}")
        for line in list(said)[-30:]:
            print(f"           | {line}", flush=True)

    def summary(self) -> list[str]:
        """Return the lines to end with."""
        rounds = ", ".join(f"{count} of {name}" for name, count in self.rounds.items()) or "none"
        lines = [f"{count:4d}  {fault}" for fault, count in sorted(self.faults.items()) if count]
        return [
            *lines,
            f"{sum(self.faults.values())} faults in {time.monotonic() - self._begun:.0f} seconds; rounds: {rounds}",
            *(f"FAILED {failure}" for failure in self.failures),
        ]
