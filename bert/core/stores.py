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
    """If `path` is the local copy of a URL, give it the URL's present content. One process of a machine does this.

    Raise UsageError for missing or refused credentials, InputError if there is nothing or the store does not answer,
    IntegrityError if a file differs from its manifest, ResourceError if the disk has too little space.
    """
    if url_of(path) is not None:
        STORES["fetch"](path)


def check_output(path: Path, stage: str) -> None:
    """Raise UsageError if `path` is the copy of a URL that holds something that this stage did not make."""
    if url_of(path) is not None:
        STORES["check_output"](path, stage)


def send(path: Path) -> None:
    """If the finished folder `path` is the local copy of a URL, send it there. Raise as `fetch` does."""
    if url_of(path) is not None:
        STORES["send"](path)


def read(url: str, name: str) -> bytes | None:
    """Return the content of a small object in a folder of a store, or None if there is none. Raise as `fetch` does."""
    content: bytes | None = STORES["read"](url, name)
    return content


def fetch_run(run: Path) -> None:
    """If `run` is an older local copy of a URL, fetch the run's files and the checkpoint to use.

    Raise UsageError if `run` holds another run, InputError if the store has no run, and as `fetch` does.
    """
    if url_of(run) is not None:
        STORES["fetch_run"](run)


def send_run(run: Path) -> bool:
    """Send the files beside the checkpoints of a run that is not being trained; return whether it has a URL."""
    if url_of(run) is None:
        return False
    STORES["send_run"](run)
    return True
