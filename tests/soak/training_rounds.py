"""Two ranks that train under faults, and end with the variables and metrics of an undisturbed run."""

import contextlib
import functools
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import ClassVar

from tests import training
from tests.soak import rounds
from tests.soak.attempts import Attempt, kill, working_in
from tests.soak.faults import Disk, Disturbance, flip, flipped
from tests.soak.journal import Journal

STEPS, RANKS = 60, 2
FLAGS = ["--run.steps", str(STEPS), "--run.save_every", "7", "--run.keep", "3"]
KILLED, STOPPED, FULL, DAMAGED = 128 + signal.SIGKILL, 75, 5, 4


class Rounds(rounds.Rounds):
    """Runs of the same length on the same data, each from its start to its end through several faults."""

    faults: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "kill": (KILLED,),
        "kill launcher": (-signal.SIGKILL,),
        "kill all": (-signal.SIGKILL,),
        "stop": (STOPPED,),
        "stop by a rank": (STOPPED,),
        "limit on file sizes": (FULL,),
        "full disk": (FULL,),
        "flip in a checkpoint": (DAMAGED,),
        "flip in the data": (DAMAGED,),
    }

    def __init__(self, folder: Path, disk: Disk, disturbance: Disturbance, journal: Journal) -> None:
        super().__init__(folder, disk, disturbance, journal)
        self.dataset = training.write_dataset(folder / "dataset")
        self.run = folder / "run"
        self.seconds = self.undisturbed(self._start(folder / "reference"))
        journal.say(f"training: {STEPS} updates on {RANKS} ranks, undisturbed: {self.seconds:.0f} seconds")
        self._wanted = training.weights(folder / "reference", STEPS), training.measured(folder / "reference")

    def _start(self, run: Path) -> Attempt:
        line = training.command(self.dataset, run, *FLAGS, ranks=RANKS)
        at = line.index("--") + 1
        return Attempt([*line[:at], *self.disturbance.prefix, *line[at:]], self.at, {})

    def round(self, draw: Random, faults: int) -> None:
        """Train through `faults` faults, then to the end; compare the result."""
        shutil.rmtree(self.run, ignore_errors=True)
        cause, start = functools.partial(self._fault, draw), functools.partial(self._start, self.run)
        if self.through("training", faults, 3 * self.seconds, cause, start):
            self.disturbance.end()
            self.journal.rounds["training"] += 1
            self._compare()

    def _fault(self, draw: Random) -> int | None:
        """Cause one fault; return the command's exit code, or None if that was not one documented for the fault."""
        fault = self.next_fault(draw)
        codes = self.faults[fault]
        with contextlib.ExitStack() as stack:
            if fault == "flip in a checkpoint":
                place, codes = self._flip_checkpoint(draw, stack)
            elif fault == "flip in the data":
                path = self.dataset / draw.choice(["vocab.txt", "train-00000.tfrecord", "train-00001.tfrecord"])
                place = f"bit {stack.enter_context(flipped(path, draw))} of {path.name}"
            attempt = self._start(self.run)
            if not fault.startswith("flip"):
                place = self._wait_and_strike(fault, attempt, draw, stack)
            return self.ended("training", fault, place, codes, attempt)

    def _wait_and_strike(self, fault: str, attempt: Attempt, draw: Random, stack: contextlib.ExitStack) -> str:
        """Cause a fault after some updates or, of some kinds, before the first one; return words for it."""
        early = fault in ("kill launcher", "kill all") and draw.random() < 0.3
        updates, seconds = draw.randint(1, 12), draw.uniform(0, self.seconds)
        alive = attempt.after_seconds(seconds) if early else attempt.after_updates(updates)
        after = f"after {seconds:.1f} s" if early else f"after {updates} updates"
        disturbed = self._disturb(attempt, draw) if not early else ""
        time.sleep(draw.uniform(0, 0.05))  # within an update, a save, an evaluation
        if not alive:
            return f"{after}, when the run had ended"
        return f"{self._strike(fault, attempt, draw, stack)} {after}{disturbed}"

    def _strike(self, fault: str, attempt: Attempt, draw: Random, stack: contextlib.ExitStack) -> str:
        number = draw.randrange(RANKS)
        rank = attempt.rank(number)
        if fault == "kill":
            kill([rank] if rank else [])
            return f"rank {number}"
        if fault == "stop by a rank":
            if rank:
                rank.send_signal(signal.SIGUSR1)
            return f"SIGUSR1 to rank {number}"
        if fault == "limit on file sizes":
            size = draw.randint(1, 50_000)
            self.disk.limit([rank for number in range(RANKS) if (rank := attempt.rank(number))], size)
            return f"files of at most {size} bytes"
        if fault == "full disk":
            stack.enter_context(self.disk.full(free := draw.choice([0, 0, 4096, 20_000, 50_000])))
            return f"{free} bytes left"
        if fault == "kill all":
            kill(working_in(attempt.at))
            return "launcher and ranks at once"
        attempt.process.send_signal(signal.SIGKILL if fault == "kill launcher" else signal.SIGTERM)
        return "the launcher alone" if fault == "kill launcher" else "SIGTERM to the launcher"

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

    def _compare(self) -> None:
        weights, metrics = self._wanted
        try:
            training.same_bits(training.weights(self.run, STEPS), weights)
            assert training.measured(self.run) == metrics, "metrics.jsonl"
            kept = training.checkpoints(self.run)
            assert len(kept) == 3 and not [name for name in kept if name.startswith(".")], f"checkpoints {kept}"
        except (AssertionError, OSError, ValueError) as error:
            self.journal.fail(f"training: the result differs from the undisturbed run's: {error}")
        else:
            self.journal.say("training: round ended with the bits of the undisturbed run")
