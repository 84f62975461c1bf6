"""The folder in which fetched files gather beside a download's output, and what is recorded of them.

It outlives a failure, unlike the partial folder of `manifest.build`, so that gigabytes are not fetched twice: a file
with its final name is whole, and only hashed again. `fetched.jsonl` has the SHA-256 of each; where nobody publishes a
hash, the first one seen must stay the same.
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

from bert.storage import files, manifest
from data.fetch import transfer
from data.fetch.connection import Unavailable
from data.fetch.transfer import Client, File, Got

RECORD = "fetched.jsonl"
TO_CARRY = "urls.txt"
SHOWN = 12  # addresses on the terminal; the others only in the file


class Incoming:
    """Files on their way to `output`: `sources` says of each that is there and checked where it is from."""

    def __init__(self, output: Path, client: Client) -> None:
        self.output, self.client = output, client
        self.folder = output.with_name(output.name + ".incoming")
        self.sources: dict[str, dict[str, Any]] = {}
        self._known = _recorded(output, self.folder)

    def fetch(self, wanted: Sequence[File]) -> None:
        """Fetches the files that are not there yet, and checks all; records address, size and hash of each."""
        self.folder.mkdir(parents=True, exist_ok=True)
        marked = [self._marked(file) for file in wanted]
        for file in marked:
            self._reuse(file)
        self._check_space(marked)
        try:
            with open(self.folder / RECORD, "a", encoding="utf-8") as record:
                self.client.fetch_all(marked, self.folder, lambda file, got: self._note(file, got, record))
        except Unavailable:
            self.say_what_to_carry(marked)
            raise

    def _marked(self, file: File) -> File:
        """Adds the hash that was recorded when the file was fetched first."""
        known = self._known.get(file.name)
        return dataclasses.replace(file, digests={"sha256": known}) if known and not file.digests else file

    def _check_space(self, wanted: Sequence[File]) -> None:
        need = 0
        for file in wanted:
            path = self.folder / file.name
            if not path.exists():
                part = path.with_name(path.name + ".part")
                need += max(file.size or 0, file.estimate) - (part.stat().st_size if part.exists() else 0)
        transfer.check_space(self.folder, need)

    def _reuse(self, file: File) -> None:
        old, new = self.output / file.name, self.folder / file.name
        if file.name in self._known and old.is_file() and not new.exists():
            link(old, new)

    def _note(self, file: File, got: Got, record: Any) -> None:
        self.sources[file.name] = {"url": file.url, "bytes": got.bytes, "sha256": got.sha256, "trust": file.trust}
        if file.name not in self._known:
            self._known[file.name] = got.sha256
            record.write(_line(file.name, got.sha256))
            record.flush()

    def reject(self, name: str) -> Path:
        """Moves a file that turned out to be wrong to `NAME.bad` and forgets its hash: another one may come."""
        bad = self.folder / f"{name}.bad"
        os.replace(self.folder / name, bad)
        del self._known[name], self.sources[name]
        with files.atomic_write(self.folder / RECORD) as record:
            record.writelines(_line(*fact) for fact in self._known.items())
        return bad

    def say_what_to_carry(self, wanted: Sequence[File]) -> None:
        """Lists what is missing: on the terminal, and in a file."""
        missing = [file for file in wanted if not (self.folder / file.name).exists()]
        lines = [f"{file.url}\t{self.folder / file.name}" for file in missing]
        with files.atomic_write(self.folder / TO_CARRY) as stream:
            stream.write("\n".join(lines) + "\n")
        print("to carry over by hand, from this address to this file; then give the same command:", file=sys.stderr)
        for line in lines[:SHOWN]:
            print(f"  {line}", file=sys.stderr)
        if len(lines) > SHOWN:
            print(f"  ... and {len(lines) - SHOWN:,} more, all in {self.folder / TO_CARRY}", file=sys.stderr)

    def remove(self, fetched: Iterable[str]) -> None:
        """Removes what is in the output now, and our own notes; anything else that lies there stays."""
        if not self.folder.is_dir():
            return
        names = [*fetched, RECORD, TO_CARRY]
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / f"{name}.bad").unlink(missing_ok=True)
        for folder in sorted({(self.folder / name).parent for name in names}, reverse=True):  # the deepest first
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def _line(name: str, sha256: str) -> str:
    return json.dumps({"name": name, "sha256": sha256}) + "\n"


def _recorded(output: Path, incoming: Path) -> dict[str, str]:
    """SHA-256 by name of what the finished folder, and the attempts since, have fetched."""
    known = {}
    if (output / manifest.NAME).exists():
        sources = manifest.load(output).extra.get("sources", {})
        known = {name: facts["sha256"] for name, facts in sources.items()}
    if (incoming / RECORD).exists():
        for line in (incoming / RECORD).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # cut by a crash: the file will be hashed anew
                fact = json.loads(line)
                known[fact["name"]] = fact["sha256"]
    return known


def link(old: Path, new: Path) -> None:
    """Makes a file appear under a second name, without a copy where the file system can do that."""
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(old, new)
    except OSError:  # a file system without hard links
        shutil.copyfile(old, new)
