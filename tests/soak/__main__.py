"""Train on two ranks and prepare data for some minutes under random faults, and compare with undisturbed results.

The faults are kills of ranks, launchers, workers and of all at once, requests to stop, full disks, limits on file
sizes, frozen processes, slow reads, jumps of the wall clock, and flipped bits in checkpoints and inputs. What they hit
and when is drawn from the seed. Each is printed with the exit code that followed. The soak ends with 0 if every round
ended with the bits of the undisturbed run and every fault with its documented exit code, else with 1.
"""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import NoReturn

from bert.core import cli
from bert.core.errors import UsageError
from tests.soak.faults import Disk, Disturbance
from tests.soak.journal import Journal

OWN_DISK, DISK_BYTES = "SOAK_OWN_DISK", 192 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the soak."""

    minutes: float = 20.0
    """time after which no fault is begun; the round that runs is brought to its end in the last of it"""
    rounds: int = 1000
    """number of rounds after which it ends, of training and of the chain of stages in turn"""
    faults: int = 4
    """number of faults in a round"""
    seed: int = 0
    """seed of what is hit and when"""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.faults < 0:
            raise UsageError("--rounds must be at least 1, --faults at least 0")
        if not 0 < self.minutes <= 600:
            raise UsageError(f"--minutes {self.minutes}: must be above 0 and at most 600")


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m tests.soak", description=__doc__)
    if OWN_DISK not in os.environ:
        on_own_disk(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(os.environ[OWN_DISK] or tempfile.mkdtemp(prefix="soak-"))
    try:
        journal = soak(options, folder, bool(os.environ[OWN_DISK]))
    finally:
        from tests.soak.attempts import kill_all

        for work in (folder / "training", folder / "chain", folder / "chain" / "round"):
            kill_all(work)
        if os.environ[OWN_DISK]:
            subprocess.run(["umount", "--lazy", folder])
            folder.rmdir()
        else:
            shutil.rmtree(folder)
    print(*journal.summary(), sep="\n")
    if journal.failures:
        sys.exit(1)


def on_own_disk(argv: list[str]) -> NoReturn:
    """Start again with a small disk in memory that no other process sees, or without one where that is not allowed."""
    folder = tempfile.mkdtemp(prefix="soak-")
    mount = f'mount -t tmpfs -o size={DISK_BYTES} soak "$1" && shift && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", folder]
    allowed = shutil.which("unshare") and os.spawnvp(os.P_WAIT, "unshare", [*unshare, "true"]) == 0
    os.environ[OWN_DISK] = folder if allowed else ""
    if not allowed:
        os.rmdir(folder)
    command = [*(unshare if allowed else []), sys.executable, "-m", "tests.soak", *argv]
    os.execvp(command[0], command)


def soak(options: Options, folder: Path, own_disk: bool) -> Journal:
    """Run rounds until the time is over; return what happened."""
    from tests.soak import chain_rounds, training_rounds  # they import TensorFlow

    journal = Journal(60 * options.minutes)
    journal.say(f"seed {options.seed}, {options.minutes:g} minutes, disk of its own: {'yes' if own_disk else 'no'}")
    disk, disturbance = Disk(folder, own_disk), Disturbance(folder)
    if not disturbance.works:
        journal.say("no C compiler: no clock jumps and no slow reads")
    rounds: list[training_rounds.Rounds | chain_rounds.Rounds] = []
    for kind in (training_rounds.Rounds, chain_rounds.Rounds):
        work = folder / kind.__module__.split(".")[-1].removesuffix("_rounds")
        work.mkdir()
        rounds.append(kind(work, disk, disturbance, journal))
    number = 0
    while journal.left() > 0 and number < options.rounds and len(journal.failures) < 5:
        rounds[number % 2].round(Random(f"{options.seed}:{number}"), options.faults)
        number += 1
    return journal


if __name__ == "__main__":
    cli.main(main)
