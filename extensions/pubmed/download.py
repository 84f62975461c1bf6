"""The download of PubMed's yearly baseline, as `python -m data.download pubmed`."""

import dataclasses
from typing import Annotated

from bert.core.ranges import Range
from data.download import Download, Options, Source
from data.fetch.download_dir import DownloadDir
from data.fetch.transfer import File
from extensions.pubmed import baseline


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pubmed(Options):
    """Flags of `python -m data.download pubmed`."""

    year: Annotated[int, Range(2000, 2099)] | None = None
    """year of the baseline; NLM keeps only the newest, which is the default"""
    files: Annotated[int, Range(1, 10_000)] | None = None
    """fetch only the last N files, which have the newest citations, for a trial; the default is all"""
    baseline_url: str = baseline.BASELINE
    """address of the folder of the baseline"""


def pubmed_baseline(options: Pubmed, download_dir: DownloadDir) -> Source:
    """Return the page that lists the baseline, its files, and the file with the MD5 of each."""

    def plan() -> list[File]:
        page, url = baseline.listing(options.baseline_url), options.baseline_url
        download_dir.fetch([page])
        names = baseline.names(download_dir.folder / page.name, options.year)
        names = names[-options.files :] if options.files else names
        digests = baseline.digests(names, url)
        download_dir.fetch(digests)
        citations = [
            baseline.citations(name, download_dir.folder / digest.name, url)
            for name, digest in zip(names, digests, strict=True)
        ]
        return [page, *digests, *citations]

    return Source(
        parameters={"name": "pubmed", "year": options.year, "files": options.files},
        licence=baseline.LICENCE,
        plan=plan,
    )


PUBMED = Download(Pubmed, pubmed_baseline)
