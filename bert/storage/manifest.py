"""Manifests of finished folders: what a folder holds, what made it, and whether it still is as it was written.

A folder with a `manifest.json` is complete; `bert.storage.outputs` writes it last. The manifest contains no time and no
absolute path: equal inputs and parameters give equal bytes.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from bert.errors import InputError, IntegrityError
from bert.storage import files

NAME = "manifest.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `manifest.json` and the folder it describes."""

    path: Path
    stage: str
    parameters: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str]
    files: dict[str, dict[str, Any]]
    counts: dict[str, Any]
    extra: dict[str, Any]


def load(folder: Path, stage: str | None = None) -> Manifest:
    """Read a folder's manifest, and check that every listed file exists and has the listed size.

    Raise InputError if the folder is not the finished output of a stage, IntegrityError if a file is missing or has
    another size.
    """
    try:
        fields = json.loads((folder / NAME).read_text(encoding="utf-8"))
        content = Manifest(path=folder, **fields)
    except FileNotFoundError as error:
        reason = f"no {NAME}: the stage that makes it has not finished" if folder.exists() else "no such folder"
        remedy = f"run python -m data.{stage}" if stage else "run the stage that makes it"
        raise InputError(f"{folder}: {reason}; {remedy}") from error
    except (ValueError, TypeError, NotADirectoryError) as error:
        raise IntegrityError(f"{folder / NAME}: not a manifest of ours ({error}); build the folder again") from error
    if stage and content.stage != stage:
        raise InputError(f"{folder}: made by stage {content.stage!r}, but stage {stage!r} is needed; check the path")
    for name, facts in content.files.items():
        size = (folder / name).stat().st_size if (folder / name).exists() else None
        if size is None or size != facts.get("bytes"):
            state = "is missing" if size is None else f"has {size} bytes, not {facts.get('bytes')}"
            raise IntegrityError(f"{folder / name}: the file {state}; remove the folder and build it again")
    return content


def verify(content: Manifest) -> None:
    """Hash every file that the manifest lists; raise IntegrityError, naming the first whose content has changed."""
    for name, facts in content.files.items():
        if files.sha256(content.path / name) != facts.get("sha256"):
            raise IntegrityError(f"{content.path / name}: the content has changed since it was written; build it again")


def content_hash(path: Path) -> str:
    """Return the hash of a file, of a finished folder's manifest, or of the names and contents of another folder."""
    if not path.is_dir():
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; check the path")
        return files.sha256(path)
    if (path / NAME).exists():
        return files.sha256(path / NAME)
    names = sorted(file for file in path.rglob("*") if file.is_file())
    return _combine([(str(file.relative_to(path)), files.sha256(file)) for file in names])


def _combine(pairs: list[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
