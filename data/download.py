"""Download a data set by name and check it.

    python -m data.download wikipedia --wiki simple --output workdir/corpus/dump
    python -m data.download pg19 --books 100 --output workdir/corpus/pg19
    python -m data.download pubmed --files 20 --output workdir/corpus/pubmed-files
    python -m data.download squad1 --output workdir/squad/data

The files are first written to a folder beside the output, OUTPUT.incoming. This folder is kept after a failure: repeat
the same command to resume the download; complete files are not fetched again. When all files are there, they are moved
to the output, with a manifest of addresses and hashes, and OUTPUT.incoming is removed.

Without a network, the command lists which files to copy into OUTPUT.incoming by hand. They are checked like downloaded
files. docs/sources.md describes the data sets, their licences and the checks.
"""

import dataclasses
import os
import string
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import requests

from bert import __version__
from bert.core import cli, ending, files, manifest, outputs, paths, ranges
from bert.core.errors import IntegrityError, UsageError
from bert.core.ranges import Range
from bert.core.rows import Rows
from bert.core.workspace import Workspace
from data.fetch import archives, catalog, wikimedia
from data.fetch.connection import RetryPolicy, Unavailable, check_address
from data.fetch.download_dir import STAGE, DownloadDir, Downloaded, link
from data.fetch.transfer import Client, File

RETRY_POLICY = RetryPolicy()
CONTACT = set(string.ascii_letters + string.digits + " !#$%&'*+-./:=?@^_~<>,;")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.download NAME` for every name."""

    output: Path
    """folder to write"""
    contact: str | None = None
    """your mail or web address, sent to the servers; the default is the variable BERT_CONTACT"""
    connections: Annotated[int, Range(1, 2)] = 2
    """number of files to fetch at the same time; the servers refuse more than 2"""

    def __post_init__(self) -> None:
        ranges.check(self)
        for name, value in vars(self).items():
            for url in [value] if name.endswith("_url") else value if name == "mirror" else []:
                check_address(url, f"--{name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wikipedia(Options):
    """Flags of `python -m data.download wikipedia`."""

    wiki: str = "en"
    """language code: en, de, simple (a small Wikipedia), ..."""
    date: str | None = None
    """day of the dump, YYYYMMDD; the default is the newest finished dump"""
    dumps_url: str = wikimedia.DUMPS
    """address of the lists of dates, sizes and SHA-1"""
    mirror: tuple[str, ...] = wikimedia.MIRRORS
    """addresses to fetch the files from, in the order to try"""

    def __post_init__(self) -> None:
        super().__post_init__()
        wikimedia.database(self.wiki)
        if self.date:
            wikimedia.check_date(self.date)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pg19(Options):
    """Flags of `python -m data.download pg19`."""

    books: Annotated[int, Range(1, 10**9)] | None = None
    """fetch only the first N books of each split, for a trial; the default is all"""
    splits: tuple[Literal["train", "validation", "test"], ...] = ("train",)
    """splits of PG-19; validation and test serve to compare language models, so leave them out of a corpus"""
    lists_url: str = catalog.PG19_LISTS
    """address of the lists of books"""
    books_url: str = catalog.PG19
    """address of the books"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed(Options):
    """Flags of `python -m data.download` for a fixed set of files."""

    mirror: tuple[str, ...] = ()
    """addresses of folders with copies of the files, in the order to try; the default is the publisher's"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What to fetch. `plan` returns the files; for that it may fetch lists of them."""

    parameters: dict[str, Any]
    licence: str
    plan: Callable[[], list[File]]
    members: Mapping[str, str | None] = dataclasses.field(default_factory=dict)  # required in the file, if an archive


class Download(NamedTuple):
    """A download that an extension has."""

    options: type[Options]
    """flags of the command for it"""
    source: Callable[[Any, DownloadDir], Source]
    """what to fetch, of these flags"""


DOWNLOADS: Rows[Download] = Rows({"pubmed": "extensions.pubmed.download:PUBMED"})
READERS = {"wikipedia": "wikipedia", "pg19": "books", "pubmed": "pubmed"}  # of what is fetched, by its name


def _agent(contact: str | None) -> str:
    contact = contact or os.environ.get("BERT_CONTACT", "")
    if any(character not in CONTACT for character in contact):
        raise UsageError(f"--contact {contact!r}: has characters that cannot be sent; give a mail or web address")
    who = f"BERT pretraining data; {contact or 'no contact given'}"
    return f"bert-recipe/{__version__} ({who}) requests/{requests.__version__}"


def wikipedia(options: Wikipedia, download_dir: DownloadDir) -> Source:
    """Return the dump of the given date, or the dump that the output already holds, or the newest dump."""
    wiki = wikimedia.database(options.wiki)

    def find_dump(date: str | None) -> tuple[str, dict[str, Any]]:
        try:
            return wikimedia.find_dump(download_dir.client, options.dumps_url, wiki, date, download_dir.folder)
        except Unavailable:
            url = f"{options.dumps_url}/{wiki}/{date or 'DATE'}/{wikimedia.STATUS}"
            download_dir.list_missing([File(name=wikimedia.STATUS, url=url)])
            raise

    date = options.date or _downloaded_date(options.output, wiki) or find_dump(None)[0]
    return Source(
        parameters={"name": "wikipedia", "wiki": wiki, "date": date},
        licence=wikimedia.LICENCE,
        plan=lambda: wikimedia.article_files(wiki, date, find_dump(date)[1], options.mirror),
    )


def _downloaded_date(output: Path, wiki: str) -> str | None:
    if not manifest.is_finished(output):
        return None
    parameters = manifest.load(output).parameters
    date = parameters.get("date")
    if parameters.get("wiki") != wiki or not isinstance(date, str):
        return None
    wikimedia.check_date(date)
    return date


def pg19(options: Pg19, download_dir: DownloadDir) -> Source:
    """Return the lists of the splits, and the books on the lists."""

    def plan() -> list[File]:
        lists = catalog.pg19_lists(options.splits, options.lists_url)
        download_dir.fetch(lists)
        planned = lists
        for split, book_list in zip(options.splits, lists, strict=True):
            books = catalog.pg19_books(split, download_dir.folder / book_list.name, options.books_url)
            planned = planned + books[: options.books]
        return planned

    splits = sorted(options.splits)
    return Source(
        parameters={"name": "pg19", "books": options.books, "splits": splits},
        licence=catalog.PG19_LICENCE,
        plan=plan,
    )


def fixed(name: str, options: Fixed) -> Source:
    """Return a set of the catalogue."""
    dataset = catalog.SETS[name]

    def from_mirrors(file: File) -> File:
        return dataclasses.replace(file, mirrors=tuple(f"{url.rstrip('/')}/{file.name}" for url in options.mirror))

    return Source(
        parameters={"name": name},
        licence=dataset.licence,
        plan=lambda: [from_mirrors(file) for file in dataset.files],
        members=dataset.members,
    )


def make(source: Source, download_dir: DownloadDir, partial: Path) -> outputs.StageResult:
    """Fetch all files, then link or unpack them into the partial folder."""
    planned = source.plan()
    download_dir.fetch(planned)
    for file in planned:
        if source.members:
            _unpack(file.name, source.members, download_dir, partial)
        else:
            link(download_dir.folder / file.name, partial / file.name)
    size = sum(entry["bytes"] for entry in download_dir.sources.values())
    print(f"download: {len(planned):,} files of {size / 1e6:,.1f} MB are complete and checked", file=sys.stderr)
    return outputs.StageResult(
        counts={"files": len(planned), "bytes": size},
        extra={"licence": source.licence, "sources": download_dir.sources},
    )


def _unpack(name: str, members: Mapping[str, str | None], download_dir: DownloadDir, partial: Path) -> None:
    archive = download_dir.folder / name
    try:
        unpacked = archives.unpack(archive, partial)
        for member, digest in members.items():
            if member not in unpacked:
                raise IntegrityError(f"{archive}: no {member} in it; download it again")
            if digest and (actual := files.sha256(partial / member)) != digest:
                raise IntegrityError(f"{archive}: {member} has sha256 {actual}, not {digest}; download it again")
    except IntegrityError as error:
        raise IntegrityError(f"{error} (kept as {download_dir.reject(name).name})") from error


def _choices() -> dict[str, Callable[[], Options]]:
    """Return for each name a function that gives the default options. Its docstring is the name's help."""

    def choice(name: str, kind: type[Options], about: str) -> Callable[[], Options]:
        def defaults() -> Options:
            return kind(output=paths.workdir() / "download" / name)

        defaults.__doc__ = about
        return defaults

    def pubmed() -> Options:
        """PubMed, the abstracts of biomedical literature, as XML"""
        return choice("pubmed", DOWNLOADS["pubmed"].options, "")()

    return {
        "wikipedia": choice("wikipedia", Wikipedia, "a dump of Wikipedia in any language"),
        "pg19": choice("pg19", Pg19, "PG-19, 28,752 books published before 1919"),
        "pubmed": pubmed,
        **{name: choice(name, Fixed, dataset.about) for name, dataset in catalog.SETS.items()},
    }


def main(argv: list[str]) -> None:
    name, options = cli.choose(argv, _choices(), prog="python -m data.download", description=__doc__)
    client = Client(_agent(options.contact), options.connections, RETRY_POLICY)
    download_dir = DownloadDir(options.output, client)
    if isinstance(options, Wikipedia):
        source = wikipedia(options, download_dir)
    elif isinstance(options, Pg19):
        source = pg19(options, download_dir)
    elif name in DOWNLOADS:
        source = DOWNLOADS[name].source(options, download_dir)
    else:
        assert isinstance(options, Fixed)
        source = fixed(name, options)
    finished = outputs.build(
        options.output,
        stage=STAGE,
        parameters=source.parameters,
        inputs=[],
        make=lambda partial: make(source, download_dir, partial),
    )
    with Workspace(options.output).locked():  # while another command fetches to the same folder, it must not vanish
        download_dir.remove([*finished.extra_as(Downloaded).sources, wikimedia.STATUS])
    then: tuple[object, ...] = ()
    if reader := READERS.get(name):
        documents = options.output.with_name(f"{options.output.name}-documents")
        then = ("python", "-m", f"data.{reader}", "--source", options.output, "--output", documents)
    ending.print_next_command(options.output, "", *then)


if __name__ == "__main__":
    from data import download  # flags of an extension's download derive from this module, not from __main__

    cli.main(download.main)
