"""The stages from books to records under faults: they end with the bytes of undisturbed ones."""

import contextlib
import functools
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import ClassVar

from tests.soak import rounds
from tests.soak.attempts import Attempt, kill, working_in
from tests.soak.faults import Disk, Disturbance, flipped
from tests.soak.journal import Journal

SOURCE = "data.synthetic --articles 2 --books 60 --train_questions 9 --dev_questions 9 --output source"
STAGES = {  # output -> the command that makes it, and the folders of earlier stages that it reads
    "books": ("data.books --source source/books --workers 2", []),
    "documents": ("data.documents --source books --workers 2", ["books"]),
    "shards": ("data.shards --source documents --shards 3", ["documents"]),
    "vocab": ("data.vocab --source shards --size 700", ["shards"]),
    "instances": (
        "data.tfrecords --source shards --vocab vocab/vocab.txt --max_seq_length 64 --dupe_factor 4 --workers 2",
        ["shards", "vocab"],
    ),
}
FULL, DAMAGED = 5, 4


class Rounds(rounds.Rounds):
    """The chain of stages, each time from its beginning through several faults."""

    faults: ClassVar[Mapping[str, tuple[int, ...]]] = {
        "kill": (-signal.SIGKILL,),
        "kill a worker": (FULL,),
        "kill all": (-signal.SIGKILL,),
        "stop": (-signal.SIGTERM,),
        "limit on file sizes": (FULL,),
        "full disk": (FULL,),
        "flip in an input": (DAMAGED,),
    }

    def __init__(self, folder: Path, disk: Disk, disturbance: Disturbance, journal: Journal) -> None:
        super().__init__(folder, disk, disturbance, journal)
        self.undisturbed(self._start(SOURCE))
        self.seconds = {name: self.undisturbed(self._stage(name)) for name in STAGES}
        self._wanted = {name: contents(folder / name) for name in STAGES}
        times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        journal.say(f"chain: undisturbed, seconds: {times}")

    def _start(self, words: str) -> Attempt:
        return Attempt([sys.executable, "-m", *words.split()], self.at, self.disturbance.environment)

    def _stage(self, name: str) -> Attempt:
        return self._start(f"{STAGES[name][0]} --output {name}")

    def round(self, draw: Random, faults: int) -> None:
        """Make all outputs anew through about `faults` faults; compare them."""
        self.at = self.folder / "round"
        shutil.rmtree(self.at, ignore_errors=True)
        self.at.mkdir()
        (self.at / "source").symlink_to(self.folder / "source")
        places = draw.choices(list(STAGES), weights=list(self.seconds.values()), k=faults)
        for name in STAGES:
            cause, start = functools.partial(self._fault, name, draw), functools.partial(self._stage, name)
            if not self.through(f"chain: {name}", places.count(name), 2 * sum(self.seconds.values()), cause, start):
                return
            if (made := contents(self.at / name)) != self._wanted[name]:
                wanted = self._wanted[name]
                wrong = sorted(file for file in made.keys() | wanted.keys() if made.get(file) != wanted.get(file))
                return self.journal.fail(f"chain: {name} differs from the undisturbed one in {' '.join(wrong)}")
        if left := sorted(path.name for path in self.at.iterdir() if path.name not in {*STAGES, "source"}):
            return self.journal.fail(f"chain: left behind: {' '.join(left)}")
        self.disturbance.end()
        self.journal.rounds["chain"] += 1
        self.journal.say("chain: round ended with the bytes of the undisturbed stages")

    def _fault(self, name: str, draw: Random) -> int | None:
        """Cause one fault in a stage; return the exit code, or None if it was not one documented for the fault."""
        impossible = [
            *(["flip in an input"] if not STAGES[name][1] else []),
            *(["kill a worker"] if "--workers" not in STAGES[name][0] else []),
        ]
        fault = self.next_fault(draw, impossible)
        with contextlib.ExitStack() as stack:
            if fault == "flip in an input":
                folder = self.at / draw.choice(STAGES[name][1])
                path = draw.choice(sorted(path for path in folder.iterdir() if path.name != "manifest.json"))
                place = f"bit {stack.enter_context(flipped(path, draw))} of {folder.name}/{path.name}"
                attempt = self._stage(name)
            else:
                attempt = self._stage(name)
                place = self._strike(name, fault, attempt, draw, stack)
            return self.ended(f"chain: {name}", fault, place, self.faults[fault], attempt)

    def _strike(self, name: str, fault: str, attempt: Attempt, draw: Random, stack: contextlib.ExitStack) -> str:
        seconds = draw.uniform(0, self.seconds[name])
        disturbed = self._disturb(draw)
        if not attempt.after_seconds(seconds):
            return f"after {seconds:.1f} s, when it had ended"
        after = f"after {seconds:.1f} s{disturbed}"
        if fault == "kill":
            attempt.process.kill()
        elif fault == "kill all":
            kill(working_in(self.at))
        elif fault == "stop":
            attempt.process.terminate()
        elif fault == "kill a worker":
            while not (workers := attempt.workers()) and attempt.process.poll() is None:
                time.sleep(0.05)
            kill(workers[:1])
        elif fault == "full disk":
            stack.enter_context(self.disk.full(free := draw.choice([0, 4096, 50_000])))
            return f"{free} bytes left {after}"
        elif fault == "limit on file sizes":
            self.disk.limit(working_in(self.at), limit := draw.randint(1, 4000))
            return f"files of at most {limit} bytes {after}"
        return after

    def _disturb(self, draw: Random) -> str:
        kind = draw.choice(["nothing", *(["clock", "slow"] if self.disturbance.works else [])])
        if kind in ("clock", "slow"):
            return self.disturbance.begin(kind, draw, slowest=500)
        return ""


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
