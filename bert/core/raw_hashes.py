"""The hashes of raw files, remembered so that an unchanged file is not read again.

A file that no stage wrote has no recorded hash, and a terabyte takes minutes to hash. So the hashes are kept beside the
output of a stage, in the hidden file `.NAME.inputs`. A hash counts as long as device, inode, size, time of modification
(mtime) and time of change (ctime) of its file are the same. Programs can set the mtime, but not the ctime, so a file
that is changed in place is noticed, also if its mtime is put back.

Where one of these numbers is not stable, as an inode on some network disks, the file is only hashed again. So it is on
a copy of the files, and without this memory, which may be removed at any time.
"""

import contextlib
import dataclasses
import os
import re
import time
from pathlib import Path

from bert.core import checked_json, files
from bert.core.errors import IntegrityError, UsageError

MARKER = re.compile(r"\.+[^/]+\.inputs(?:\.partial)?", re.DOTALL)  # names of these files, also unfinished
WORTH_KEEPING = 64_000_000  # bytes of all raw files: fewer are hashed in the time that a few small files take
SMALLEST_FILE = 1_000_000  # bytes; smaller files are hashed each time
SETTLED = 2_000_000_000  # nanoseconds; times of files on some disks have steps of one or two seconds
# Beginnings of the kinds of file systems whose ctime changes with the content. That of sshfs or FAT, for example, is
# the mtime, which programs set.
WITH_CTIME = (
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "overlay", "virtiofs"),
    *("nfs", "lustre", "gpfs", "beegfs", "ceph"),
)
ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Content:
    hashes: dict[str, str]
    """SHA-256 by the state of the file"""


class RawHashes:
    """SHA-256 of raw files. output: the folder of a stage; the remembered hashes are stored beside it."""

    def __init__(self, output: Path) -> None:
        self._marker = output.with_name(f".{output.name}.inputs")
        self._before = self._read()
        self._now: dict[str, str] = {}
        self._bytes = 0
        self._trusted: dict[int, bool] = {}  # by device

    def sha256(self, path: Path) -> str:
        """Return the SHA-256 of a file, the remembered one if the file is unchanged. Raise as `files.sha256` does."""
        with files.open_regular(path) as stream:  # on NFS, opening asks the server for the present times
            state = _state(stream.fileno())
        self._bytes += state.size
        name = state.name()
        if state.size < SMALLEST_FILE or not self._has_ctime(path, state.device):
            return files.sha256(path)
        if recorded := self._before.get(name):
            self._now[name] = recorded
            return recorded
        with contextlib.suppress(OSError):  # a later write through a memory map then gets a new ctime
            files.flush(path)
        begin = time.time_ns()
        sha256 = files.sha256(path)
        with files.open_regular(path) as stream:
            unchanged = _state(stream.fileno()) == state
        if unchanged and max(state.mtime, state.ctime) < begin - SETTLED:
            self._now[name] = sha256
        return sha256

    def save(self) -> None:
        """Store the hashes if the files are large enough together. Ignore a full disk: the hashes only save time."""
        with contextlib.suppress(OSError, UsageError):
            if self._bytes < WORTH_KEEPING or not self._now:
                self._marker.unlink(missing_ok=True)
            elif self._now != self._before:
                checked_json.write(self._marker, {"hashes": self._now})

    def _has_ctime(self, path: Path, device: int) -> bool:
        """Return whether the ctime of a file is reliable; False if its file system is not known."""
        if device not in self._trusted:
            real = os.path.realpath(path)
            kinds = (kind for point, kind in _mounts() if point == "/" or f"{real}/".startswith(f"{point}/"))
            self._trusted[device] = next(kinds, "").startswith(WITH_CTIME)
        return self._trusted[device]

    def _read(self) -> dict[str, str]:
        try:
            content = checked_json.read(self._marker, _Content, what="", remedy="")
        except (OSError, IntegrityError):
            return {}
        return {state: sha256 for state, sha256 in content.hashes.items() if re.fullmatch("[0-9a-f]{64}", sha256)}


@dataclasses.dataclass(frozen=True)
class _State:
    """What distinguishes all versions of all files on a machine."""

    device: int
    inode: int
    size: int
    mtime: int
    ctime: int

    def name(self) -> str:
        return " ".join(map(str, dataclasses.astuple(self)))


def _state(descriptor: int) -> _State:
    status = os.fstat(descriptor)
    return _State(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _mounts() -> list[tuple[str, str]]:
    """Return the mount points and the kinds of their file systems: longest first, of equal ones the latest first."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    points = [
        (ESCAPED.sub(lambda code: chr(int(code[1], 8)), line.split(" ")[4]), line.partition(" - ")[2].split(" ")[0])
        for line in lines
    ]
    return sorted(reversed(points), key=lambda mount: len(mount[0]), reverse=True)
