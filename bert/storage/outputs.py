"""The atomic build of a stage's output folder.

A stage is a function of (inputs, parameters). `build` runs it into a hidden folder beside the target, hashes what it
wrote, writes `manifest.json` last, and renames the folder to its final name. `data.pipeline.tasks` does the same in
several processes, with the parts of `build`.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from bert.errors import UsageError
from bert.storage import files, manifest
from bert.storage.manifest import NAME, Manifest, content_hash, load

TOOLS = ("tensorflow", "tensorflow-text", "nltk", "wikiextractor", "tokenizers", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageResult:
    """What a stage reports about the files that it wrote."""

    counts: dict[str, Any]
    records: dict[str, int] = dataclasses.field(default_factory=dict)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


def build(
    folder: Path,
    *,
    stage: str,
    parameters: dict[str, Any],
    inputs: Sequence[Path],
    make: Callable[[Path], StageResult],
) -> Manifest:
    """Make `folder` by calling `make(partial_folder)`, unless it already is the output of the same inputs.

    Raise UsageError if `folder` holds something that this stage did not make, ResourceError if the disk is full.
    """
    with lock(folder):
        key = build_key(folder, stage=stage, parameters=parameters, inputs=inputs)
        if existing := current(folder, key):
            return existing
        partial = folder.with_name(f".{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with files.room(folder):
                partial.mkdir()
                return complete(partial, folder, key, make(partial))
        finally:
            shutil.rmtree(partial, ignore_errors=True)


class BuildKey(NamedTuple):
    """What determines the output of a stage."""

    stage: str
    parameters: dict[str, Any]
    inputs: dict[str, str]  # name -> content hash

    def digest(self) -> str:
        """Return a short hash, which tells outputs for the same folder apart."""
        return hashlib.sha256(json.dumps(self, sort_keys=True).encode()).hexdigest()[:12]


def build_key(folder: Path, *, stage: str, parameters: dict[str, Any], inputs: Sequence[Path]) -> BuildKey:
    """Hash the inputs. Raise UsageError if `folder` holds something that this stage did not make."""
    _check_ours(folder, stage)
    as_read_back = json.loads(json.dumps(parameters, default=str))
    return BuildKey(stage, as_read_back, {_input_name(path, inputs): content_hash(path) for path in inputs})


def current(folder: Path, key: BuildKey) -> Manifest | None:
    """Return the folder's manifest if the folder is the output for this key, else None."""
    if (folder / NAME).exists():
        existing = load(folder)
        if (existing.stage, existing.parameters, existing.inputs) == key:
            print(f"{key.stage}: {folder} is up to date", file=sys.stderr)
            return existing
    return None


def complete(
    partial: Path, folder: Path, key: BuildKey, result: StageResult, hashes: Mapping[str, str] | None = None
) -> Manifest:
    """Write the manifest of the files in `partial`, and rename `partial` to `folder`.

    hashes: by name, of files that are already on the disk and need no hashing.
    """
    _write(partial, key, result, hashes or {})
    _swap(partial, folder)
    return load(folder)


def _input_name(path: Path, inputs: Sequence[Path]) -> str:
    names = [other.name for other in inputs]
    return path.name if names.count(path.name) == 1 else f"{list(inputs).index(path)}:{path.name}"


def _check_ours(folder: Path, stage: str) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: the output must be a folder, and this is a file; choose another path")
    if manifest.is_finished(folder):
        made_by = manifest.read(folder).stage
        if made_by != stage:
            raise UsageError(f"{folder}: holds the output of stage {made_by!r}; choose another output folder")
    elif any(folder.iterdir()):
        raise UsageError(f"{folder}: not empty and not made by this program; choose another output folder")


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the lock for building `folder` while the block runs; wait until no other process holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(f".{folder.name}.lock")
    while True:
        with open(path, "w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if not _is_at(path, stream.fileno()):
                continue  # the process that held the lock has removed the file
            try:
                yield
            finally:
                path.unlink()
            return


def _is_at(path: Path, descriptor: int) -> bool:
    return path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino


def _write(partial: Path, key: BuildKey, result: StageResult, hashes: Mapping[str, str]) -> None:
    names = sorted(str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file())
    facts: dict[str, dict[str, Any]] = {}
    for name in names:
        if name not in hashes:
            files.flush(partial / name)
        sha256 = hashes.get(name) or files.sha256(partial / name)
        facts[name] = {"bytes": (partial / name).stat().st_size, "sha256": sha256}
        if name in result.records:
            facts[name]["records"] = result.records[name]
    content = {
        **key._asdict(),
        "versions": versions(),
        "files": facts,
        "counts": result.counts,
        "extra": result.extra,
    }
    manifest.write(partial, content)


def _swap(partial: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(partial, folder)
    shutil.rmtree(old, ignore_errors=True)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the tools that the output of stages depends on."""
    numbers = {"python": platform.python_version()}
    for tool in TOOLS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            numbers[tool] = metadata.version(tool)
    return numbers
