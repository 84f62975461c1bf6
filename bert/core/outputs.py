"""The atomic build of a stage's output folder.

A stage is a function of (inputs, parameters). `build` runs it into a hidden folder beside the target
(`bert.core.workspace`), hashes what it wrote, writes `manifest.json` last, and renames the folder to its final name.
`data.pipeline.tasks` does the same in several processes, with the parts of `build`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from bert.core import files, manifest
from bert.core.errors import UsageError
from bert.core.manifest import NAME, Manifest, content_hash, load
from bert.core.raw_hashes import RawHashes
from bert.core.workspace import Work, Workspace

TOOLS = ("tensorflow", "tensorflow-text", "nltk", "wikiextractor", "tokenizers", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageResult:
    """What a stage reports about the files that it wrote."""

    counts: dict[str, Any]
    records: dict[str, int] = dataclasses.field(default_factory=dict)  # by the name of the file, as `sources`
    sources: dict[str, str | None] = dataclasses.field(default_factory=dict)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


def build(
    folder: Path,
    *,
    stage: str,
    parameters: dict[str, Any],
    inputs: Sequence[Path],
    make: Callable[[Path], StageResult],
) -> Manifest:
    """Make `folder` by calling `make(hidden_folder)`, unless it is already the output of the same inputs.

    Raise UsageError if `folder` holds something that this stage did not make, ResourceError if the disk is full.
    """
    space = Workspace(folder)
    with files.room(space.output), space.locked():
        try:
            key = build_key(space.output, stage=stage, parameters=parameters, inputs=inputs)
            if existing := current(space.output, key):
                return existing
            space.clear()  # nothing of an interrupted build is used
            with space.work(key.digest()) as work:
                return complete(space, work, key, make(work.output))
        finally:
            clear(space)


def clear(space: Workspace) -> None:
    """Remove everything hidden that a build left, except what other processes use."""
    with contextlib.suppress(UsageError):
        space.clear()


def remove(folder: Path) -> None:
    """Remove a finished folder. Rename it first, because a folder with this name must be complete."""
    space = Workspace(folder)
    with space.locked():
        space.discard()


class BuildKey(NamedTuple):
    """What determines the output of a stage."""

    stage: str
    parameters: dict[str, Any]
    inputs: dict[str, str]  # name -> content hash

    def digest(self) -> str:
        """Return a short hash of this key. It distinguishes builds of the same folder."""
        return hashlib.sha256(json.dumps(self, sort_keys=True).encode()).hexdigest()[:12]


def build_key(folder: Path, *, stage: str, parameters: dict[str, Any], inputs: Sequence[Path]) -> BuildKey:
    """Hash the inputs and return the key. The caller holds the lock.

    Raise UsageError if `folder` holds something that this stage did not make.
    """
    _check_ours(folder, stage)
    as_read_back = json.loads(json.dumps(parameters, default=str))
    raw = RawHashes(folder)
    hashes = {input_name(path, inputs): content_hash(path, raw.sha256) for path in inputs}
    raw.save()
    return BuildKey(stage, as_read_back, hashes)


def current(folder: Path, key: BuildKey) -> Manifest | None:
    """Return the folder's manifest if the folder is the output for this key, else None."""
    if (folder / NAME).exists():
        existing = load(folder)
        if (existing.stage, existing.parameters, existing.inputs) == key:
            print(f"{key.stage}: {folder} is up to date", file=sys.stderr)
            return existing
    return None


def complete(
    space: Workspace, work: Work, key: BuildKey, result: StageResult, hashes: Mapping[str, str] | None = None
) -> Manifest:
    """Write the manifest of the work folder, and give the folder its final name. The caller holds the lock.

    hashes: by name, hashes of files that are already flushed to the disk.
    """
    _write(work.output, key, result, hashes or {})
    space.publish(work.output)
    return load(space.output)


def input_name(path: Path, inputs: Sequence[Path]) -> str:
    """Return an input's name in the manifest: the name of the file or folder, after its number if names repeat."""
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


def _write(made: Path, key: BuildKey, result: StageResult, hashes: Mapping[str, str]) -> None:
    """Write the manifest of the files in `made`, and flush everything in that folder to the disk."""
    paths = [path for path in made.rglob("*") if path.is_file() and path != made / NAME]
    names = sorted(str(path.relative_to(made)) for path in paths)
    listed: dict[str, dict[str, Any]] = {}
    for name in names:
        if name not in hashes:
            files.flush(made / name)
        sha256 = hashes.get(name) or files.sha256(made / name)
        listed[name] = {"bytes": (made / name).stat().st_size, "sha256": sha256}
        if name in result.records:
            listed[name]["records"] = result.records[name]
        if source := result.sources.get(name):
            listed[name]["source"] = source
    content = {
        **key._asdict(),
        "versions": versions(),
        "files": listed,
        "counts": result.counts,
        "extra": result.extra,
    }
    manifest.write(made, content)
    for folder in [made, *(path for path in made.rglob("*") if path.is_dir())]:
        files.flush_folder(folder)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the tools that stages' outputs depend on."""
    numbers = {"python": platform.python_version()}
    for tool in TOOLS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            numbers[tool] = metadata.version(tool)
    return numbers
