"""The machine to check, and a finding about it."""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bert.core import paths

ROOT = Path(__file__).resolve().parents[2]
IN_A_WHEEL = ROOT / "bert" / "requirements.txt"
GIB = 2**30

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    error: training, or training on the GPUs, is not possible. warning: training works, but slower, less reliably or not
    on several nodes. note: information.
    """

    subject: str
    level: Level
    message: str
    remedy: str = ""

    def line(self, width: int) -> str:
        """Return the finding as one line, with its subject padded to `width` columns."""
        text = f"{self.message}; {self.remedy}" if self.remedy else self.message
        return f"{self.level:<8} {self.subject:<{width}}  {' '.join(text.split())}"


def space(folder: Path) -> tuple[int, int]:
    """Return the total and the free bytes of a file system."""
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free


def soft_limit(which: int) -> int:
    """Return a limit of this process (`resource.RLIMIT_...`), -1 if unlimited."""
    limit = resource.getrlimit(which)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where the checks look; tests give an imaginary machine."""

    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    workdir: Path = field(default_factory=paths.workdir)
    requirements: Path = IN_A_WHEEL if IN_A_WHEEL.exists() else ROOT / "requirements.txt"
    probe: tuple[str, ...] = (sys.executable, "-P", "-m", "bert.doctor.probe")
    """command that imports TensorFlow and Horovod in a separate process"""
    patience: float = 30.0
    """time limit of the probe, in seconds"""
    space: Callable[[Path], tuple[int, int]] = space
    soft_limit: Callable[[int], int] = soft_limit
    cores: Callable[[], int] = lambda: len(os.sched_getaffinity(0))

    def read(self, path: Path) -> str:
        """Return the text of a file in /proc or /sys; empty if it cannot be read."""
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


def guarded(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; if it raises, yield a warning instead."""
    try:
        yield from check()
    except Exception as error:  # a bug met on an unknown machine must not hide the other checks
        message = f"this check failed ({type(error).__name__}: {error})"
        yield Finding(subject, "warning", message, "report this line; the other checks are valid")


def plural(count: int, noun: str) -> str:
    """Return `1 GPU` or `8 GPUs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
