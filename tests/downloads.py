"""A file and a dump to download from a test server, and what is expected of them."""

import hashlib
import json
import random
from pathlib import Path

from urllib3.util import Retry

from data.fetch import transfer
from data.fetch.connection import RetryPolicy
from tests.hostile import Site

BODY = random.Random(7).randbytes(300_007)


SHA256 = hashlib.sha256(BODY).hexdigest()


def policy(retries: int = 5, pause: float = 0.002, **times: float) -> RetryPolicy:
    return RetryPolicy(retries=Retry(retries, backoff_factor=pause), **times)


QUICK = policy(longest_wait=30)


def file(site: Site, **changes: object) -> transfer.File:
    fields = {"name": "a.bin", "url": f"{site.url}/a.bin", "limit": 1 << 20, "digests": {"sha256": SHA256}} | changes
    return transfer.File(**fields)  # type: ignore[arg-type]


def fetch(folder: Path, wanted: transfer.File, retries: RetryPolicy = QUICK) -> transfer.FetchedFile:
    return transfer.Client("test/1 (nobody@example.org)", policy=retries).fetch(wanted, folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def whole(folder: Path) -> bool:
    """The file is there, and nothing beside it."""
    return names(folder) == ["a.bin"] and (folder / "a.bin").read_bytes() == BODY


PART = "enwiki-{}-pages-articles-multistream{}.xml-{}.bz2"


def dump(site: Site, day: str, state: str = "done", wiki: str = "enwiki") -> dict[str, bytes]:
    """Publishes a dump of three parts with their index files, and another job's file; returns the parts."""
    parts = {
        PART.format(day, number, pages).replace("enwiki", wiki): random.Random(day + pages).randbytes(20_000 + number)
        for number, pages in [(2, "p1001p9000"), (10, "p9001p12345"), (1, "p1p1000")]
    }
    index = {name.replace("multistream", "multistream-index").replace(".xml", ".txt"): b"index" for name in parts}
    facts = {
        name: {"size": len(body), "sha1": hashlib.sha1(body).hexdigest(), "md5": "", "url": f"/{wiki}/{day}/{name}"}
        for name, body in (parts | index).items()
    }
    jobs = {"articlesmultistreamdump": {"status": state, "files": facts}, "metahistory": {"status": "waiting"}}
    site.files[f"/{wiki}/{day}/dumpstatus.json"] = json.dumps({"version": "0.8", "jobs": jobs}).encode()
    site.files |= {f"/mirror/{wiki}/{day}/{name}": body for name, body in (parts | index).items()}
    site.files[f"/{wiki}/"] = site.files.get(f"/{wiki}/", b'<a href="../">../</a><a href="latest/">latest/</a>')
    site.files[f"/{wiki}/"] += f'<a href="{day}/">{day}/</a>\n'.encode()
    return parts
