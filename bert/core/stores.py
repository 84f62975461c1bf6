"""What is asked of object stores. Of a path that is no copy of a URL (`object_urls`) nothing is: it is as it is.

`extensions/stores` knows the stores. It is imported when the first path is the copy of a URL.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert.core.object_urls import url_of
from bert.core.rows import Rows

STORES: Mapping[str, Callable[..., Any]] = Rows(
    {
        "fetch": "extensions.stores.object_store:fetch",
        "check_output": "extensions.stores.object_store:check_output",
        "send": "extensions.stores.object_store:send",
        "read": "extensions.stores.object_store:read",
        "fetch_run": "extensions.stores.mirror:fetch",
        "take_up": "extensions.stores.mirror:take_up",
        "mirrored": "extensions.stores.mirror:mirrored",
        "send_run": "extensions.stores.mirror:send",
    }
)
"""each takes a path that is the copy of a URL, or what has one; the functions here, and those of
`bert.training.stored_runs`, say the types"""


def fetch(path: Path) -> None:
    """Make `path` the present content of its URL, if it is the copy of one; one process of a machine does it.

    Raise UsageError for credentials, InputError if there is nothing or the store does not answer, IntegrityError if a
    file is not as its manifest says, ResourceError if the disk has too little room.
    """
    if url_of(path) is not None:
        STORES["fetch"](path)


def check_output(path: Path, stage: str) -> None:
    """Raise UsageError if the URL that `path` is the copy of holds something that this stage did not make."""
    if url_of(path) is not None:
        STORES["check_output"](path, stage)


def send(path: Path) -> None:
    """Send the finished folder `path` to its URL, if it is the copy of one. Raise as `fetch` does."""
    if url_of(path) is not None:
        STORES["send"](path)


def read(url: str, name: str) -> bytes | None:
    """Return the content of a small object of a folder in a store, or None if there is none. Raise as `fetch` does."""
    content: bytes | None = STORES["read"](url, name)
    return content


def fetch_run(run: Path) -> None:
    """Bring a run from its URL to `run`, if that is a copy of one and older: its files, and the checkpoint to use.

    Raise UsageError if what is here is of another run, InputError if the store has no run, and as `fetch` does.
    """
    if url_of(run) is not None:
        STORES["fetch_run"](run)


def send_run(run: Path) -> bool:
    """Send the files beside the checkpoints of a run that is not trained now; return whether it has a URL."""
    if url_of(run) is None:
        return False
    STORES["send_run"](run)
    return True
