"""Two ranks that train under faults, and end with the variables and metrics of an undisturbed run."""

import contextlib
import dataclasses
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests import training
from tests.soak.attempts import Attempt, kill, working_in
from tests.soak.faults import Disk, Disturbance, flip, flipped
from tests.soak.journal import NONE, Journal

STEPS, RANKS = 60, 2
FLAGS = ["--run.steps", str(STEPS), "--run.save_every", "7", "--run.keep", "3"]
KILLED, STOPPED, FULL, DAMAGED = 128 + signal.SIGKILL, 75, 5, 4


@dataclasses.dataclass(frozen=True)
class Ending:
    """A fault that ends a run: how it is caused in a running attempt, and the exit codes that are documented for it."""

    strike: Callable[["Rounds", Attempt, Random], str]
    codes: tuple[int, ...]
    early: bool = False  # may come before the first update


def _kill_rank(_: "Rounds", attempt: Attempt, draw: Random) -> str:
    number = draw.randrange(RANKS)
    if rank := attempt.rank(number):
        kill([rank])
    return f"rank {number}"


def _kill_launcher(_: "Rounds", attempt: Attempt, draw: Random) -> str:
    attempt.process.kill()
    return "the launcher alone"


def _kill_group(_: "Rounds", attempt: Attempt, draw: Random) -> str:
    kill(working_in(attempt.at))
    return "launcher and ranks at once"


def _terminate(_: "Rounds", attempt: Attempt, draw: Random) -> str:
    attempt.process.send_signal(signal.SIGTERM)
    return "SIGTERM to the launcher"


def _signal_rank(_: "Rounds", attempt: Attempt, draw: Random) -> str:
    number = draw.randrange(RANKS)
    if rank := attempt.rank(number):
        rank.send_signal(signal.SIGUSR1)
    return f"SIGUSR1 to rank {number}"


def _limit_files(rounds: "Rounds", attempt: Attempt, draw: Random) -> str:
    size = draw.randint(1, 50_000)
    rounds.disk.limit([rank for number in range(RANKS) if (rank := attempt.rank(number))], size)
    return f"files of at most {size} bytes"


ENDINGS = {
    "kill": Ending(_kill_rank, (KILLED,)),
    "kill launcher": Ending(_kill_launcher, (-signal.SIGKILL,), early=True),
    "kill all": Ending(_kill_group, (-signal.SIGKILL,), early=True),
    "stop": Ending(_terminate, (STOPPED,)),
    "stop by a rank": Ending(_signal_rank, (STOPPED,)),
    "limit on file sizes": Ending(_limit_files, (FULL,)),
}


class Rounds:
    """Runs of the same length on the same data, each from its start to its end through several faults."""

    def __init__(self, folder: Path, disk: Disk, disturbance: Disturbance, journal: Journal) -> None:
        self.at, self.disk, self.disturbance, self.journal = folder, disk, disturbance, journal
        self.dataset = training.write_dataset(folder / "dataset")
        self.run = folder / "run"
        self._bag: list[str] = []
        began = time.monotonic()
        attempt = self._start(folder / "reference")
        if attempt.end():
            raise RuntimeError("\n".join(["the undisturbed run failed:", *attempt.lines[-20:]]))
        self.seconds = time.monotonic() - began
        journal.say(f"training: {STEPS} updates on {RANKS} ranks, undisturbed: {self.seconds:.0f} seconds")
        self._wanted = training.weights(folder / "reference", STEPS), training.measured(folder / "reference")

    def _start(self, run: Path) -> Attempt:
        line = training.command(self.dataset, run, *FLAGS, ranks=RANKS)
        at = line.index("--") + 1
        return Attempt([*line[:at], *self.disturbance.prefix, *line[at:]], self.at, {})

    def round(self, draw: Random, faults: int) -> None:
        """Train through `faults` faults, then to the end; compare the result."""
        shutil.rmtree(self.run, ignore_errors=True)
        code = -1
        while faults and code and self.journal.left() > 3 * self.seconds:
            faults -= 1
            if (done := self._fault(draw)) is None:
                return
            code = done
        if code and not self._finish():
            return
        self.disturbance.end()
        self.journal.rounds["training"] += 1
        self._compare()

    def _next_fault(self, draw: Random) -> str:
        """Return a fault; each comes once before one comes again."""
        if not self._bag:
            full = ["full disk"] if self.disk.own else []
            self._bag = [*ENDINGS, *full, "flip in a checkpoint", "flip in the data"]
            draw.shuffle(self._bag)
        return self._bag.pop()

    def _fault(self, draw: Random) -> int | None:
        """Cause one fault; return the command's exit code, or None if that was not one documented for the fault."""
        fault = self._next_fault(draw)
        with contextlib.ExitStack() as stack:
            if fault == "flip in a checkpoint":
                place, expected = self._flip_checkpoint(draw, stack)
            elif fault == "flip in the data":
                path = self.dataset / draw.choice(["vocab.txt", "train-00000.tfrecord", "train-00001.tfrecord"])
                place, expected = f"bit {stack.enter_context(flipped(path, draw))} of {path.name}", (DAMAGED,)
            attempt = self._start(self.run)
            place_and_codes = (
                (place, expected) if fault.startswith("flip") else self._strike(fault, attempt, draw, stack)
            )
            return self._ended(fault, *place_and_codes, attempt)

    def _strike(
        self, fault: str, attempt: Attempt, draw: Random, stack: contextlib.ExitStack
    ) -> tuple[str, tuple[int, ...]]:
        early = fault in ENDINGS and ENDINGS[fault].early and draw.random() < 0.3
        updates, seconds = draw.randint(1, 12), draw.uniform(0, self.seconds)
        alive = attempt.after_seconds(seconds) if early else attempt.after_updates(updates)
        after = f"after {seconds:.1f} s" if early else f"after {updates} updates"
        disturbed = self._disturb(attempt, draw) if not early else ""
        time.sleep(draw.uniform(0, 0.05))  # within an update, a save, an evaluation
        if not alive:
            return f"{after}, when the run had ended", (0,)
        if fault == "full disk":
            free = draw.choice([0, 0, 4096, 20_000, 50_000])
            stack.enter_context(self.disk.full(free))
            return f"{free} bytes left {after}{disturbed}", (FULL,)
        place = ENDINGS[fault].strike(self, attempt, draw)
        return f"{place} {after}{disturbed}", ENDINGS[fault].codes

    def _disturb(self, attempt: Attempt, draw: Random) -> str:
        """Do something that must have no effect, or nothing; return words for it."""
        kind = draw.choice(["nothing", "freeze", *(["clock", "slow"] if self.disturbance.works else [])])
        if kind in ("clock", "slow"):
            return self.disturbance.begin(kind, draw, slowest=5000)
        if kind == "freeze" and (rank := attempt.rank(draw.randrange(RANKS))):
            with contextlib.suppress(Exception):
                rank.suspend()
                time.sleep(draw.uniform(0.2, 2))
                rank.resume()
            return ", a rank frozen before"
        return ""

    def _flip_checkpoint(self, draw: Random, stack: contextlib.ExitStack) -> tuple[str, tuple[int, ...]]:
        folders = sorted((self.run / "checkpoints").glob("step-*"))
        if not folders:
            return "there is none", (0,)
        path = draw.choice(sorted(path for path in folders[-1].iterdir()))
        if len(folders) == 1:  # all are damaged: the run must not begin anew
            bit = stack.enter_context(flipped(path, draw))
            return f"bit {bit} of {path.name} of the only one", (DAMAGED,)
        bit = draw.randrange(8 * path.stat().st_size)
        flip(path, bit)
        return f"bit {bit} of {path.name} of {folders[-1].name}", (0,)

    def _ended(self, fault: str, place: str, codes: tuple[int, ...], attempt: Attempt) -> int | None:
        try:
            return self.journal.end("training", fault, place, codes, attempt)
        finally:
            self.disturbance.slow_reads(0)

    def _finish(self) -> bool:
        attempt = self._start(self.run)
        return self._ended(NONE, "to the end", (), attempt) is not None

    def _compare(self) -> None:
        weights, metrics = self._wanted
        try:
            training.same_bits(training.weights(self.run, STEPS), weights)
            assert training.measured(self.run) == metrics, "metrics.jsonl"
        except (AssertionError, OSError, ValueError) as error:
            self.journal.fail(f"training: the result differs from the undisturbed run's: {error}")
        else:
            self.journal.say("training: round ended with the bits of the undisturbed run")
