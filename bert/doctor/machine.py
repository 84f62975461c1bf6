"""What is looked at, and how a finding is said."""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bert import paths

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    An error keeps the machine from training, or from training on its GPUs. With a warning it trains, but slower, less
    safely or not on several nodes. A note is something to know.
    """

    subject: str
    level: Level
    found: str
    remedy: str = ""

    def line(self, width: int) -> str:
        """The finding on one line, its subject padded to `width` columns."""
        said = f"{self.found}; {self.remedy}" if self.remedy else self.found
        return f"{self.level:<8} {self.subject:<{width}}  {' '.join(said.split())}"


def space(folder: Path) -> tuple[int, int]:
    """Bytes of a file system: all, and those that are free."""
    usage = shutil.disk_usage(folder)
    return usage.total, usage.free


def soft_limit(which: int) -> int:
    """A limit of this process (`resource.RLIMIT_...`), -1 if there is none."""
    limit = resource.getrlimit(which)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where to look; the tests give a machine that does not exist."""

    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    workdir: Path = field(default_factory=paths.workdir)
    requirements: Path = ROOT / "requirements.txt"
    probe: tuple[str, ...] = (sys.executable, "-P", "-m", "bert.doctor.probe")
    """command that imports TensorFlow and Horovod in a process of its own"""
    patience: float = 30.0
    """seconds for that"""
    space: Callable[[Path], tuple[int, int]] = space
    soft_limit: Callable[[int], int] = soft_limit
    cores: Callable[[], int] = lambda: len(os.sched_getaffinity(0))

    def read(self, path: Path) -> str:
        """The text of a file of /proc or /sys; empty if it cannot be read."""
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""


def careful(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; one that fails becomes a warning itself."""
    try:
        yield from check()
    except Exception as error:  # a check meets machines that nobody has seen; the others are to go on
        what = f"{type(error).__name__}: {error}"
        yield Finding(subject, "warning", f"this check failed ({what})", "report this line; the other checks are valid")


def numbered(count: int, what: str) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
