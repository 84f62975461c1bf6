"""A file to download from a test server, and what is expected of it."""

import hashlib
import random
from pathlib import Path

from data.fetch import transfer
from data.fetch.connection import RetryPolicy
from tests.hostile import Site

BODY = random.Random(7).randbytes(300_007)


SHA256 = hashlib.sha256(BODY).hexdigest()


QUICK = RetryPolicy(backoff=0.002, max_retry_after=30)


def file(site: Site, **changes: object) -> transfer.File:
    fields = {"name": "a.bin", "url": f"{site.url}/a.bin", "limit": 1 << 20, "digests": {"sha256": SHA256}} | changes
    return transfer.File(**fields)  # type: ignore[arg-type]


def fetch(folder: Path, wanted: transfer.File, policy: RetryPolicy = QUICK) -> transfer.FetchedFile:
    return transfer.Client("test/1 (nobody@example.org)", policy=policy).fetch(wanted, folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def whole(folder: Path) -> bool:
    """The file is there, and nothing beside it."""
    return names(folder) == ["a.bin"] and (folder / "a.bin").read_bytes() == BODY
