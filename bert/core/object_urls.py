"""URLs of object stores, and where on this machine their copies are.

A flag that takes a URL has a local path as its value: that of `s3://BUCKET/KEY` is
`$BERT_WORKDIR/stores/s3/BUCKET/KEY`. The URL of a path below that folder follows from the path, so nothing else has to
carry it.
"""

import os
import re
from pathlib import Path

from bert.core import paths
from bert.core.errors import UsageError

FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
SWALLOWED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")  # what `Path` makes of a URL
STORES = ("s3", "gs", "az")
KINDS = ", ".join(f"{store}://" for store in STORES)


def path(place: str | Path) -> Path:
    """Return a caller's path or, for a URL, the path of its local copy. Raise UsageError for an unsupported URL."""
    if isinstance(place, str) and is_url(place):
        return local(place)
    if match := SWALLOWED.match(str(place)):
        raise UsageError(f"{match[1]}://{str(place)[match.end() :]}: give a URL as a string: Path takes a slash away")
    return Path(place)


def is_url(text: str) -> bool:
    """Return whether a text has the form of a URL of any kind."""
    return FORM.fullmatch(text) is not None


def local(url: str) -> Path:
    """Return the path of the local copy of a URL. Raise UsageError unless it names a folder or file in a store."""
    match = FORM.fullmatch(url)
    assert match, f"{url}: not a URL"
    scheme, (bucket, *key) = match[1], match[2].rstrip("/").split("/")
    if scheme not in STORES:
        raise UsageError(f"{url}: {scheme}:// is not read or written here; give {KINDS} or a local path")
    if not bucket or not key:
        raise UsageError(f"{url}: names no folder; give {scheme}://BUCKET/FOLDER")
    if any(part in ("", ".", "..") or part[0] == "." or not part.isprintable() for part in (bucket, *key)):
        raise UsageError(f"{url}: a part of it is empty, hidden or not printable; give {scheme}://BUCKET/FOLDER")
    if re.search(r"[?#*\\\[]", match[2]):
        raise UsageError(f"{url}: has one of ? # * [ \\, which names here do not have; rename the folder")
    return _root() / scheme / bucket / "/".join(key)


def url_of(path: Path) -> str | None:
    """Return the URL that this path is the local copy of; None for any other path."""
    try:
        parts = Path(os.path.realpath(path)).relative_to(os.path.realpath(_root())).parts
    except (ValueError, OSError):
        return None
    return f"{parts[0]}://{'/'.join(parts[1:])}" if len(parts) > 2 and parts[0] in STORES else None


def _root() -> Path:
    return paths.workdir() / "stores"
