"""Faults of the machine: a full disk, a flipped bit, a wall clock that jumps, a disk that is slow to read."""

import contextlib
import mmap
import os
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import psutil

SOURCE = Path(__file__).with_name("disturb.c")
CLOCK, READS = slice(0, 8), slice(8, 16)  # in the file that the preloaded library maps


class Disk:
    """The disk of the soak: one of its own, which can really be filled, or else limits on the sizes of files."""

    def __init__(self, folder: Path, own: bool) -> None:
        self.own = own
        self._ballast = folder / "ballast"

    @contextlib.contextmanager
    def full(self, free: int) -> Iterator[None]:
        """Leave `free` bytes on the disk while the block runs."""
        try:
            with open(self._ballast, "wb") as stream:
                while True:
                    facts = os.statvfs(self._ballast)
                    with contextlib.suppress(OSError):  # others write at the same time
                        os.posix_fallocate(stream.fileno(), 0, max(1, facts.f_bavail * facts.f_frsize - free))
                        break
            yield
        finally:
            self._ballast.unlink()

    @staticmethod
    def limit(processes: Sequence[psutil.Process], size: int) -> None:
        """Allow these processes files of `size` bytes at most, from now on."""
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, size))


@contextlib.contextmanager
def flipped(path: Path, draw: Random) -> Iterator[int]:
    """Flip one bit of a file while the block runs, then restore the file if it is there; yield the bit's number."""
    content = path.read_bytes()
    bit = draw.randrange(8 * len(content))
    flip(path, bit)
    try:
        yield bit
    finally:
        if path.exists():
            path.write_bytes(content)


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    with open(path, "r+b") as stream:
        stream.seek(bit // 8)
        [byte] = stream.read(1)
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ (1 << bit % 8)]))


class Disturbance:
    """The library in `disturb.c`, which the commands preload, and the two numbers that it reads."""

    def __init__(self, folder: Path) -> None:
        """Compile the library into `folder`; without a compiler there are no jumps and no slow reads."""
        control, library = folder / "disturb", folder / "disturb.so"
        control.write_bytes(bytes(16))
        with open(control, "r+b") as stream:
            self._numbers = mmap.mmap(stream.fileno(), 16)
        compiler = shutil.which("gcc") or shutil.which("cc")
        command = [compiler or "", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-ldl"]
        self.works = bool(compiler) and subprocess.run(command, capture_output=True).returncode == 0
        self.environment = {"LD_PRELOAD": str(library), "DISTURB": str(control)} if self.works else {}
        self.prefix = ["env", *(f"{name}={value}" for name, value in self.environment.items())] if self.works else []

    def move_clock(self, seconds: int) -> None:
        """Have the wall clock differ from the true time by this many seconds."""
        self._numbers[CLOCK] = struct.pack("<q", seconds)

    def slow_reads(self, microseconds: int) -> None:
        """Have every read of a regular file wait so long."""
        self._numbers[READS] = struct.pack("<q", microseconds)

    def begin(self, kind: str, draw: Random, slowest: int) -> str:
        """Begin what `kind` says, "clock" or "slow"; return words for it. slowest: microseconds of a read at most."""
        if kind == "clock":
            hours = draw.choice([-30, -3, -1, 1, 5, 24 * 400])
            self.move_clock(3600 * hours)
            return f", clock off by {hours} hours"
        self.slow_reads(draw.randint(slowest // 10, slowest))
        return ", slow reads"

    def end(self) -> None:
        """Set both back."""
        self.move_clock(0)
        self.slow_reads(0)
