"""The budget and the state of a day: what is measured is written down at once, what fails is passed over."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contender import ROOT
from benchmarks.gpu_day import inputs
from benchmarks.gpu_day.measurements import Measurement
from bert.storage import files

STATE = "state.json"
ATTEMPTS = 2  # of one that was cut short, with all the rest, by the end of the machine
GRACE = 5.0  # seconds between asking a process to end and ending it

Command = Callable[[Measurement], list[str]]
Result = dict[str, Any]


@dataclass
class State:
    """Results so far, over all sessions."""

    spent: float = 0.0
    """seconds of measuring so far"""
    results: dict[str, Result] = field(default_factory=dict)
    """by name: status (done, failed, skipped), seconds, and what was found or why not"""
    running: str = ""
    """the measurement that was begun last, if its end was never seen"""
    attempts: dict[str, int] = field(default_factory=dict)
    """how often one was begun"""
    scale: str = ""
    """full or smoke"""

    @classmethod
    def load(cls, output: Path) -> "State":
        """The state of a folder, or a new one."""
        path = output / STATE
        return cls(**inputs.read(path)) if path.exists() else cls()

    def save(self, output: Path) -> None:
        """Writes it, whole or not at all."""
        files.write_json(output / STATE, vars(self))


class Interrupted(Exception):
    """Someone asked for the end."""


@dataclass
class Day:
    """Takes measurements until all are taken or the time is over."""

    chosen: Sequence[Measurement]
    output: Path
    command: Command
    budget: float
    """seconds of measuring, over all sessions"""
    session: float = float("inf")
    """seconds of this one"""
    clock: Callable[[], float] = time.monotonic
    tell: Callable[[str], None] = lambda line: print(line, flush=True)

    def run(self, state: State) -> list[str]:
        """Measures what is missing; returns the names that there was no time for."""
        begun, left_out, taken = self.clock(), [], 0
        for one in self.chosen:
            if one.name in state.results:
                continue
            if self._gave_up(one, state):
                continue
            left = min(self.budget - state.spent, self.session - (self.clock() - begun))
            if left < one.least:
                left_out.append(one.name)
                continue
            # One that the end of the session cuts short is left for the next, unless it had the session to itself.
            whole = self.session - (self.clock() - begun) <= self.budget - state.spent and taken == 0
            if not self._take(one, state, left, final=whole or left >= one.limit):
                left_out.append(one.name)
            taken += 1
        return left_out

    def _gave_up(self, one: Measurement, state: State) -> bool:
        """Whether it was cut short too often to be begun once more."""
        if state.running != one.name or state.attempts.get(one.name, 0) < ATTEMPTS:
            return False
        why = f"cut short {ATTEMPTS} times together with this command"
        state.results[one.name] = {"status": "failed", "seconds": 0.0, "why": why}
        state.running = ""
        state.save(self.output)
        self.tell(f"{one.name}: {why}")
        return True

    def _take(self, one: Measurement, state: State, left: float, final: bool) -> bool:
        """Takes one; returns False if it was cut short and that is not `final`: it is as if it had not been begun."""
        state.running = one.name
        state.attempts[one.name] = state.attempts.get(one.name, 0) + 1
        state.save(self.output)
        begun, result = self.clock(), Result()
        try:
            result = self._outcome(one, min(one.limit, left))
            if result.pop("late", False) and not final:
                result = {}
        finally:  # the time is spent, whatever happened
            seconds = self.clock() - begun
            state.spent += seconds
            if result:
                state.results[one.name] = result | {"seconds": seconds}
            else:  # asked to stop, or no time: that was no attempt
                state.attempts[one.name] -= 1
            state.running = ""
            state.save(self.output)
        said = result.get("why") or ("done" if result else "cut short by the end of the time; it is left")
        self.tell(f"{one.name}: {said}; {seconds:.0f} s, {max(0.0, self.budget - state.spent) / 60:.1f} min left")
        return bool(result)

    def _outcome(self, one: Measurement, limit: float) -> Result:
        """Runs its process to its end, or to that of its time."""
        answer, log = self.output / "results" / f"{one.name}.json", self.output / "logs" / f"{one.name}.log"
        answer.parent.mkdir(parents=True, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        answer.unlink(missing_ok=True)
        with open(log, "wb") as stream:
            code = _execute(self.command(one), {**os.environ, **one.environment}, stream, limit)
        if code == 0 and answer.exists():
            result = inputs.read(answer)
            if "skipped" in result:
                return {"status": "skipped", "why": f"skipped: {result['skipped']}"}
            return {"status": "done", "found": result}
        last = _last_line(log)
        what = f"longer than {limit:.0f} s" if code is None else f"ended with code {code}"
        return {"status": "failed", "why": f"failed: {what}: {last}", **({"late": True} if code is None else {})}


def _execute(command: list[str], environment: dict[str, str], log: Any, limit: float) -> int | None:
    """The exit code; None if it took too long. It and what it started are gone afterwards."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    return (errors or lines or ["it printed nothing"])[-1][:300]


def command(output: Path, scale: str) -> Command:
    """The process of `benchmarks.gpu_day.measure`."""
    module = [sys.executable, "-m", "benchmarks.gpu_day.measure"]
    return lambda one: [*module, one.name, "--output", str(output.absolute()), "--scale", scale]


@contextlib.contextmanager
def stoppable() -> Any:
    """SIGTERM and SIGHUP raise Interrupted in the block, as ctrl-C does, so that the measurement's process is ended."""

    def stop(number: int, frame: Any) -> None:
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
