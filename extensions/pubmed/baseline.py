"""List the files of PubMed's yearly baseline, from NLM's page of its folder and the `.md5` file beside each of them.

NLM publishes a baseline each December and removes the one before. It holds every citation once; the daily updates,
which are not fetched here, go on from it.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from bert.core.errors import InputError, IntegrityError
from data.fetch.transfer import File

BASELINE = "https://ftp.ncbi.nlm.nih.gov/pubmed/baseline"
LICENCE = (
    "NLM's terms for PubMed data: name NLM as the source, and whether the data is current; publishers may hold the "
    "copyright of abstracts"
)
LISTING = "baseline.list"
LISTING_LIMIT = 16 << 20
DIGEST_LIMIT = 4096
FILE_LIMIT = 1 << 30
FILE_BYTES = 40_000_000  # estimate of the average, to check the disk space
NAME = re.compile(r"\b(pubmed([0-9]{2})n[0-9]{4}\.xml\.gz)\b(?!\.md5)")


def listing(url: str) -> File:
    """Return the page that lists the files. It is kept, so that a stopped download goes on with the same baseline."""
    return File(name=LISTING, url=f"{url.rstrip('/')}/", limit=LISTING_LIMIT)


def names(page: Path, year: int | None) -> list[str]:
    """Return the names of the files of a year, or of the newest one, that a page lists, in their order.

    Raise InputError if there are none.
    """
    years_of_names = {match[1]: 2000 + int(match[2]) for match in NAME.finditer(page.read_text("utf-8", "replace"))}
    if not years_of_names:
        raise InputError(f"{page}: lists no pubmed*.xml.gz; remove it, and check the address")
    years = sorted(set(years_of_names.values()))
    if year is not None and year not in years:
        there = ", ".join(map(str, years))
        raise InputError(f"{page}: the baseline of {year} is not there, but that of {there}; give --year {years[-1]}")
    return sorted(name for name, its_year in years_of_names.items() if its_year == (year or years[-1]))


def digests(names: Sequence[str], url: str) -> list[File]:
    """Return the files with the MD5 of each of these files."""
    return [File(name=f"{name}.md5", url=f"{url.rstrip('/')}/{name}.md5", limit=DIGEST_LIMIT) for name in names]


def citations(name: str, digest: Path, url: str) -> File:
    """Return a file of the baseline, to be checked with its fetched `.md5` file: `MD5(NAME)= ...`.

    Raise IntegrityError if that is for another file or holds no MD5.
    """
    text = digest.read_text("utf-8", "replace")
    match = re.fullmatch(rf"MD5\s*\({re.escape(name)}\)\s*=\s*([0-9a-fA-F]{{32}})", text.strip())
    if not match:
        raise IntegrityError(f"{digest}: {text[:60]!r} is not the MD5 of {name}; remove it and fetch it again")
    return File(
        name=name,
        url=f"{url.rstrip('/')}/{name}",
        limit=FILE_LIMIT,
        estimate=FILE_BYTES,
        digests={"md5": match[1].lower()},
        trust=f"by {digest.name}",
    )
