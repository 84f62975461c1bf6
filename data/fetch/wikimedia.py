"""Which files a Wikipedia dump is made of, by the publisher's own word: `dumpstatus.json` of the wiki and date.

Wikimedia writes dumps over days. One is used only when its job says "done"; then its list has each file's size and
SHA-1. The bytes may come from a mirror: the list never does.
"""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from bert.errors import InputError, IntegrityError, UsageError
from bert.storage import files
from data.fetch.connection import Missing
from data.fetch.transfer import Client, File

DUMPS = "https://dumps.wikimedia.org"
MIRRORS = ("https://mirror.accum.se/mirror/wikimedia.org/dumps", "https://dumps.wikimedia.your.org", DUMPS)
LICENCE = "text CC BY-SA 4.0 (until 2023, 3.0) and GFDL; its authors are named in the articles' histories"
JOB = "articlesmultistreamdump"
STATUS = "dumpstatus.json"
PAGE_BYTES = 16 << 20
DATE = r"20\d{6}"


def database(wiki: str) -> str:
    """The name that a wiki's folder has: "en" is "enwiki", "be-tarask" "be_taraskwiki"; UsageError if there is none."""
    name = wiki.replace("-", "_")
    name = name if name.endswith("wiki") else f"{name}wiki"
    if not re.fullmatch(r"[a-z][a-z0-9_]*wiki", name):
        raise UsageError(f"--wiki {wiki!r}: no language of Wikipedia; give its code, as en, de or simple")
    return name


def check_date(date: str) -> None:
    """Raises UsageError unless `date` is a day as YYYYMMDD."""
    try:
        datetime.strptime(date, "%Y%m%d")
        assert re.fullmatch(DATE, date)
    except (ValueError, AssertionError):
        raise UsageError(f"--date {date!r}: not a date; give the day of a dump as YYYYMMDD, as 20261101") from None


def find(client: Client, dumps: str, wiki: str, date: str | None, kept: Path) -> tuple[str, dict[str, Any]]:
    """The date of the newest dump that is done, or of the one asked for, and its job's files.

    What the publisher said is kept as `kept`/dumpstatus.json until the download is whole, so that one that was stopped
    goes on with the same dump; a file put there by hand stands in for the network. Raises InputError if none is done.
    """
    path, dumps = kept / STATUS, dumps.rstrip("/")
    if path.exists():
        job = _job(path.read_bytes(), str(path))
        known = _date(job, wiki)
        if known and date in (None, known):
            return known, _files(job, str(path))
    dates = [date] if date else _dates(client, f"{dumps}/{wiki}/")
    states = []
    for day in dates:
        url = f"{dumps}/{wiki}/{day}/{STATUS}"
        try:
            content = client.read(url, PAGE_BYTES)
        except Missing:
            states.append(f"{day} not begun")
            continue
        job = _job(content, url)
        if job.get("status") == "done":
            found = _files(job, url)
            kept.mkdir(parents=True, exist_ok=True)
            with files.atomic_write(path, "wb") as stream:
                stream.write(content)
            return day, found
        states.append(f"{day} {job.get('status', 'not begun')}")
    which = f"the dump of {date} is not done" if date else "no dump is done"
    raise InputError(f"{dumps}/{wiki}/: {which} ({', '.join(states)}); wait some days, or give an earlier --date")


def parts(wiki: str, date: str, found: dict[str, Any], mirrors: tuple[str, ...]) -> list[File]:
    """The files of articles among a job's files, in the order of their pages; an index of them is none.

    Raises IntegrityError if the list has none, or lacks a size or a SHA-1.
    """
    name = re.compile(rf"{wiki}-{date}-pages-articles-multistream(\d*)\.xml(?:-p(\d+)p(\d+))?\.bz2")
    matches = [match for match in map(name.fullmatch, found) if match]
    matches = [match for match in matches if match[2]] or matches  # parts, where the whole is offered beside them
    if not matches:
        raise IntegrityError(f"{wiki} {date}: {STATUS} lists no file of articles; try another --date")
    chosen = []
    for match in sorted(matches, key=lambda match: (int(match[2] or 0), int(match[1] or 0))):
        facts = found[match[0]]
        size, sha1 = facts.get("size"), facts.get("sha1", "")
        if not isinstance(size, int) or size <= 0 or not re.fullmatch(r"[0-9a-f]{40}", sha1):
            raise IntegrityError(f"{wiki} {date}: {STATUS} has no size or SHA-1 of {match[0]}; try another --date")
        path = f"{wiki}/{date}/{match[0]}"
        chosen.append(
            File(
                name=match[0],
                url=f"{DUMPS}/{path}",
                mirrors=tuple(f"{mirror.rstrip('/')}/{path}" for mirror in mirrors),
                size=size,
                digests={"sha1": sha1},
                trust=f"by {STATUS}",
            )
        )
    return chosen


def _dates(client: Client, url: str) -> list[str]:
    page = client.read(url, PAGE_BYTES).decode("utf-8", "replace")
    found = sorted(set(re.findall(rf'href="(?:\./)?({DATE})/?"', page)), reverse=True)
    if not found:
        raise InputError(f"{url}: the page names no date of a dump; is the wiki right?")
    return found


def _job(content: bytes, where: str) -> dict[str, Any]:
    try:
        job = json.loads(content)["jobs"].get(JOB, {})
        assert isinstance(job, dict)
        return job
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise IntegrityError(f"{where}: not a list of Wikimedia's jobs; fetch it again") from error


def _files(job: dict[str, Any], where: str) -> dict[str, Any]:
    found = job.get("files")
    if job.get("status") != "done" or not isinstance(found, dict) or not all(map(_is_dict, found.values())):
        raise IntegrityError(f"{where}: job {JOB} is not done or lists no files; fetch it again")
    return found


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _date(job: dict[str, Any], wiki: str) -> str | None:
    dates = {match[1] for name in job.get("files", {}) if (match := re.match(rf"{wiki}-({DATE})-", name))}
    return dates.pop() if len(dates) == 1 else None
