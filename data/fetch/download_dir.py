"""The folder beside a download's output that holds the files until all are fetched, and the record of their hashes.

It is kept after a failure, unlike the partial folder of `outputs.build`, so that gigabytes are not fetched twice. A
file with its final name is complete and is only hashed again. `fetched.jsonl` records the SHA-256 of each file; if no
hash is published, a later download must have the recorded one.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bert.core import files, manifest
from bert.core.errors import UsageError
from bert.core.workspace import target
from data.fetch import transfer
from data.fetch.connection import Unavailable, shown
from data.fetch.transfer import Client, FetchedFile, File

STAGE = "download"
RECORD = "fetched.jsonl"
URL_LIST = "urls.txt"
SHOWN = 12  # addresses printed; all of them are written to the file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What the manifest of a download says about a fetched file."""

    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Downloaded:
    """What the manifest of a download says besides its files. The sources are the fetched files, by name."""

    sources: dict[str, Source]

    def __post_init__(self) -> None:
        for name in self.sources:
            manifest.check_name(name)


class DownloadDir:
    """The files of a download before they are moved to `output`. `sources` describes those that passed their checks."""

    def __init__(self, output: Path, client: Client) -> None:
        """Raise UsageError if `output` cannot be an output, or the folder beside it is one."""
        self.output, self.client = target(output), client
        self.folder = self.output.with_name(self.output.name + ".incoming")
        if (self.folder / manifest.NAME).exists():
            raise UsageError(f"{self.folder}: is a finished output, and its name is needed; choose another --output")
        self.sources: dict[str, dict[str, Any]] = {}
        self._hashes = _recorded(self.output, self.folder)

    def fetch(self, requested: Sequence[File]) -> None:
        """Fetch the files that are missing and check all. Record the address, size and hash of each."""
        self.folder.mkdir(parents=True, exist_ok=True)
        expected = [self._with_recorded_hash(file) for file in requested]
        for file in expected:
            self._reuse(file)
        self._check_space(expected)
        try:
            with open(self.folder / RECORD, "a", encoding="utf-8") as record:
                self.client.fetch_all(expected, self.folder, lambda file, fetched: self._record(file, fetched, record))
        except Unavailable:
            self.list_missing(expected)
            raise

    def _with_recorded_hash(self, file: File) -> File:
        """Add the hash that was recorded at the first download, if none is published."""
        sha256 = self._hashes.get(file.name)
        return dataclasses.replace(file, digests={"sha256": sha256}) if sha256 and not file.digests else file

    def _check_space(self, expected: Sequence[File]) -> None:
        need = 0
        for file in expected:
            path = self.folder / file.name
            if not path.exists():
                part = path.with_name(path.name + ".part")
                need += max(file.size or 0, file.estimate) - (part.stat().st_size if part.exists() else 0)
        transfer.check_space(self.folder, need)

    def _reuse(self, file: File) -> None:
        old, new = self.output / file.name, self.folder / file.name
        if file.name in self._hashes and old.is_file() and not new.exists():
            link(old, new)

    def _record(self, file: File, fetched: FetchedFile, record: Any) -> None:
        entry = {"url": shown(file.url), "bytes": fetched.bytes, "sha256": fetched.sha256, "trust": file.trust}
        self.sources[file.name] = entry
        if file.name not in self._hashes:
            self._hashes[file.name] = fetched.sha256
            record.write(_line(file.name, fetched.sha256))
            record.flush()

    def reject(self, name: str) -> Path:
        """Rename a file with wrong content to `NAME.bad` and remove its hash from the record."""
        bad = self.folder / f"{name}.bad"
        os.replace(self.folder / name, bad)
        del self._hashes[name], self.sources[name]
        with files.atomic_write(self.folder / RECORD) as record:
            record.writelines(_line(*entry) for entry in self._hashes.items())
        return bad

    def list_missing(self, expected: Sequence[File]) -> None:
        """List the files that are missing, with their addresses, on the terminal and in `urls.txt`."""
        missing = [file for file in expected if not (self.folder / file.name).exists()]
        lines = [f"{shown(file.url)}\t{self.folder / file.name}" for file in missing]
        with files.atomic_write(self.folder / URL_LIST) as stream:
            stream.write("\n".join(lines) + "\n")
        print("to copy the files by hand: from this address, to this file; then repeat the command:", file=sys.stderr)
        for line in lines[:SHOWN]:
            print(f"  {line}", file=sys.stderr)
        if len(lines) > SHOWN:
            print(f"  ... and {len(lines) - SHOWN:,} more, all in {self.folder / URL_LIST}", file=sys.stderr)

    def remove(self, fetched: Iterable[str]) -> None:
        """Remove the fetched files, which are in the output now, and the records. Keep any other files."""
        if not self.folder.is_dir():
            return
        names = [*fetched, RECORD, URL_LIST]
        manifest.check_inside(self.folder, names, links=True)  # a link itself is removed, not its target
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / f"{name}.bad").unlink(missing_ok=True)
        for folder in sorted({(self.folder / name).parent for name in names}, reverse=True):  # the deepest first
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _line(name: str, sha256: str) -> str:
    return json.dumps({"name": name, "sha256": sha256}) + "\n"


def _recorded(output: Path, folder: Path) -> dict[str, str]:
    """Return the SHA-256, by name, of the files in the finished folder and of those fetched since."""
    hashes = {}
    if manifest.is_finished(output):
        described = manifest.load(output)
        sources = described.extra_as(Downloaded).sources if described.stage == STAGE else {}
        hashes = {name: source.sha256 for name, source in sources.items()}
    if (folder / RECORD).exists():
        for line in (folder / RECORD).read_bytes().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # cut by a crash; the file is hashed again
                entry = files.parse_json(line)
                hashes[str(entry["name"])] = str(entry["sha256"])
    return hashes


def link(old: Path, new: Path) -> None:
    """Give a file a second name: a hard link if the file system has them, else a copy."""
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(os.path.realpath(old), new)  # of the file itself, if `old` is a symbolic link
    except OSError:  # a file system without hard links
        shutil.copyfile(old, new)
