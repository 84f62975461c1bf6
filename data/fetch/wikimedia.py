"""List the files of a Wikipedia dump, from the publisher's `dumpstatus.json` of a wiki and date.

Wikimedia takes days to write a dump. A dump is used only when its job has the status "done"; then `dumpstatus.json` has
the size and SHA-1 of each file. The files may come from a mirror; this list always comes from Wikimedia.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import InputError, IntegrityError, UsageError
from data.fetch.connection import NotFound, shown
from data.fetch.transfer import Client, File

DUMPS = "https://dumps.wikimedia.org"
MIRRORS = ("https://mirror.accum.se/mirror/wikimedia.org/dumps", "https://dumps.wikimedia.your.org", DUMPS)
LICENCE = "text CC BY-SA 4.0 (until 2023, 3.0) and GFDL; its authors are named in the articles' histories"
JOB = "articlesmultistreamdump"
STATUS = "dumpstatus.json"
LONGEST_NAME = 255  # bytes of a file name
PAGE_BYTES = 16 << 20
DATE = r"20\d{6}"


def database(wiki: str) -> str:
    """Return the database name of a language: "en" gives "enwiki", "be-tarask" gives "be_taraskwiki".

    Raise UsageError if it cannot be a language code.
    """
    name = wiki.replace("-", "_")
    name = name if name.endswith("wiki") else f"{name}wiki"
    if not re.fullmatch(r"[a-z][a-z0-9_]*wiki", name):
        raise UsageError(f"--wiki {wiki!r}: not a language code of Wikipedia; give one such as en, de or simple")
    return name


def check_date(date: str) -> None:
    """Raise UsageError unless `date` is a day as YYYYMMDD."""
    try:
        datetime.strptime(date, "%Y%m%d")
        assert re.fullmatch(DATE, date)
    except (ValueError, AssertionError):
        raise UsageError(f"--date {date!r}: not a date; give the day of a dump as YYYYMMDD, such as 20261101") from None


def find_dump(client: Client, dumps: str, wiki: str, date: str | None, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the date and the files of the newest finished dump, or of the dump of `date`.

    The publisher's list is saved as dumpstatus.json in `folder` until the download is complete, so that an interrupted
    download resumes with the same dump. A file put there by hand is used instead of the network. Raise InputError if no
    dump is finished.
    """
    path, lists = folder / STATUS, f"{dumps.rstrip('/')}/{wiki}/"
    if path.exists():
        job = _job(path.read_bytes(), str(path))
        cached_date = _date(job, wiki)
        if cached_date and date in (None, cached_date):
            return cached_date, _files(job, str(path))
    dates = [date] if date else _dates(client, lists)
    states = []
    for day in dates:
        url = f"{lists}{day}/{STATUS}"
        try:
            content = client.read(url, PAGE_BYTES)
        except NotFound:
            states.append(f"{day} not begun")
            continue
        job = _job(content, shown(url))
        if job.get("status") == "done":
            listed = _files(job, shown(url))
            folder.mkdir(parents=True, exist_ok=True)
            with files.atomic_write(path, "wb") as stream:
                stream.write(content)
            return day, listed
        states.append(f"{day} {str(job.get('status', 'not begun'))[:40]}")
    which = f"the dump of {date} is not done" if date else "no dump is done"
    raise InputError(f"{shown(lists)}: {which} ({', '.join(states)}); wait some days, or give an earlier --date")


def article_files(wiki: str, date: str, listed: dict[str, Any], mirrors: tuple[str, ...]) -> list[File]:
    """Return the files with articles among a job's files, without index files, in the order of their pages.

    Raise IntegrityError if there are none, or if one has no size or SHA-1.
    """
    name = re.compile(rf"{wiki}-{date}-pages-articles-multistream(\d*)\.xml(?:-p(\d+)p(\d+))?\.bz2")
    matches = [match for match in map(name.fullmatch, listed) if match and len(match[0]) <= LONGEST_NAME]
    matches = [match for match in matches if match[2]] or matches  # parts are preferred to one file with everything
    if not matches:
        raise IntegrityError(f"{wiki} {date}: {STATUS} lists no file of articles; try another --date")
    chosen = []
    for match in sorted(matches, key=lambda match: (int(match[2] or 0), int(match[1] or 0))):
        entry = listed[match[0]]
        size, sha1 = entry.get("size"), entry.get("sha1", "")
        if type(size) is not int or size <= 0 or not re.fullmatch("[0-9a-f]{40}", str(sha1)):
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
    dates = sorted(set(re.findall(rf'href="(?:\./)?({DATE})/?"', page)), reverse=True)
    if not dates:
        raise InputError(f"{shown(url)}: the page lists no dates of dumps; check the name of the wiki")
    return dates


def _job(content: bytes, where: str) -> dict[str, Any]:
    try:
        job = files.parse_json(content)["jobs"].get(JOB, {})
        assert isinstance(job, dict) and isinstance(job.get("files", {}), dict)
        return job
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise IntegrityError(f"{where}: not a dumpstatus.json of Wikimedia; download it again") from error


def _files(job: dict[str, Any], where: str) -> dict[str, Any]:
    listed: dict[str, Any] = job.get("files", {})
    if job.get("status") != "done" or not listed or not all(isinstance(entry, dict) for entry in listed.values()):
        raise IntegrityError(f"{where}: job {JOB} is not done or lists no files; download it again")
    return listed


def _date(job: dict[str, Any], wiki: str) -> str | None:
    dates = {match[1] for name in job.get("files", {}) if (match := re.match(rf"{wiki}-({DATE})-", name))}
    return dates.pop() if len(dates) == 1 else None
