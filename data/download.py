"""Fetches a source of the recipe by name, checks it, and leaves a finished folder like any other stage.

    python -m data.download wikipedia --wiki simple --output workdir/corpus/dump
    python -m data.download pg19 --books 100 --output workdir/corpus/pg19
    python -m data.download squad1 --output workdir/squad/data

The files gather in a folder beside the output, OUTPUT.incoming, which outlives a failure: the same command goes on
where the last one ended, and does not fetch again what is whole. (What `manifest.build` calls its partial folder does
not outlive one, and may not: a stage starts from nothing.) When all are there, the output appears, with its manifest
of sources and hashes, and OUTPUT.incoming goes. A machine without a network is told which files to put into
OUTPUT.incoming by hand; they are checked like those that came over the wire.
"""

import dataclasses
import os
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import requests

from bert import cli, paths
from bert.errors import IntegrityError, UsageError
from bert.storage import files, manifest
from data.fetch import archives, catalog, wikimedia
from data.fetch.connection import Patience, Unavailable
from data.fetch.download_dir import Incoming, link
from data.fetch.transfer import Client, File

PATIENCE = Patience()
CONTACT = set(string.ascii_letters + string.digits + " !#$%&'*+-./:=?@^_~<>,;")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.download NAME`, whatever the name."""

    output: Path
    """folder to write"""
    contact: str | None = None
    """mail or web address told to the servers, so that they can reach you; none is $BERT_CONTACT"""
    connections: int = 2
    """files to fetch at once, 1 or 2"""

    def __post_init__(self) -> None:
        if self.connections not in (1, 2):
            raise UsageError(f"--connections {self.connections}: 1 or 2; more than two are impolite, and refused")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wikipedia(Options):
    """Flags of `python -m data.download wikipedia`."""

    wiki: str = "en"
    """language: en, de, simple (a small one), ..."""
    date: str | None = None
    """day of the dump, YYYYMMDD; none is the newest that is done"""
    dumps_url: str = wikimedia.DUMPS
    """where dates, sizes and SHA-1 come from"""
    mirror: tuple[str, ...] = wikimedia.MIRRORS
    """where the bytes come from, in this order"""

    def __post_init__(self) -> None:
        super().__post_init__()
        wikimedia.database(self.wiki)
        if self.date:
            wikimedia.check_date(self.date)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pg19(Options):
    """Flags of `python -m data.download pg19`."""

    books: int | None = None
    """only the first so many of each split, to try it out; none is all"""
    splits: tuple[Literal["train", "validation", "test"], ...] = ("train",)
    """PG-19's own; models are compared on its validation and test books: leave them out of a corpus"""
    lists_url: str = catalog.PG19_LISTS
    """where the lists of books come from"""
    books_url: str = catalog.PG19
    """where the books come from"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.books is not None and self.books < 1:
            raise UsageError(f"--books {self.books}: at least 1 is needed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed(Options):
    """Flags of `python -m data.download` for a set of known files."""

    mirror: tuple[str, ...] = ()
    """folders on servers that have copies of the same files, in the order to try; none is the publisher's own"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What is to be fetched: `plan` gives the files, and may itself fetch lists of them."""

    parameters: dict[str, Any]
    licence: str
    plan: Callable[[], list[File]]
    members: Mapping[str, str | None] = dataclasses.field(default_factory=dict)  # of the archive, if the file is one


def _agent(contact: str | None) -> str:
    contact = contact or os.environ.get("BERT_CONTACT", "")
    if any(character not in CONTACT for character in contact):
        raise UsageError(f"--contact {contact!r}: has characters that cannot be sent; give a mail or web address")
    return f"bert-recipe/1.0 (BERT pretraining data; {contact or 'no contact given'}) requests/{requests.__version__}"


def wikipedia(options: Wikipedia, incoming: Incoming) -> Source:
    """A dump of the date asked for, or that the output holds, or else of the newest."""
    wiki = wikimedia.database(options.wiki)

    def find(date: str | None) -> tuple[str, dict[str, Any]]:
        try:
            return wikimedia.find(incoming.client, options.dumps_url, wiki, date, incoming.folder)
        except Unavailable:
            url = f"{options.dumps_url}/{wiki}/{date or 'DATE'}/{wikimedia.STATUS}"
            incoming.say_what_to_carry([File(name=wikimedia.STATUS, url=url)])
            raise

    date = options.date or _date_of(options.output, wiki) or find(None)[0]
    return Source(
        parameters={"name": "wikipedia", "wiki": wiki, "date": date},
        licence=wikimedia.LICENCE,
        plan=lambda: wikimedia.parts(wiki, date, find(date)[1], options.mirror),
    )


def _date_of(output: Path, wiki: str) -> str | None:
    if not (output / manifest.NAME).exists():
        return None
    parameters = manifest.load(output).parameters
    return str(parameters["date"]) if parameters.get("wiki") == wiki else None


def pg19(options: Pg19, incoming: Incoming) -> Source:
    """The lists of the splits, and the books on them."""

    def plan() -> list[File]:
        lists = catalog.pg19_lists(options.splits, options.lists_url)
        incoming.fetch(lists)
        wanted = lists
        for split, listed in zip(options.splits, lists, strict=True):
            books = catalog.pg19_books(split, incoming.folder / listed.name, options.books_url)
            wanted = wanted + books[: options.books]
        return wanted

    splits = sorted(options.splits)
    return Source(
        parameters={"name": "pg19", "books": options.books, "splits": splits},
        licence=catalog.PG19_LICENCE,
        plan=plan,
    )


def fixed(name: str, options: Fixed) -> Source:
    """A set of the catalogue."""
    found = catalog.SETS[name]

    def from_mirrors(file: File) -> File:
        return dataclasses.replace(file, mirrors=tuple(f"{url.rstrip('/')}/{file.name}" for url in options.mirror))

    return Source(
        parameters={"name": name},
        licence=found.licence,
        plan=lambda: [from_mirrors(file) for file in found.files],
        members=found.members,
    )


def make(source: Source, incoming: Incoming, partial: Path) -> manifest.StageResult:
    """Fetches everything, then fills the partial folder with it."""
    wanted = source.plan()
    incoming.fetch(wanted)
    for file in wanted:
        if source.members:
            _unpack(file.name, source.members, incoming, partial)
        else:
            link(incoming.folder / file.name, partial / file.name)
    size = sum(facts["bytes"] for facts in incoming.sources.values())
    incoming.client.progress.done(f"{len(wanted):,} files of {size / 1e6:,.1f} MB are there and checked")
    return manifest.StageResult(
        counts={"files": len(wanted), "bytes": size},
        extra={"licence": source.licence, "sources": incoming.sources},
    )


def _unpack(name: str, members: Mapping[str, str | None], incoming: Incoming, partial: Path) -> None:
    archive = incoming.folder / name
    try:
        found = archives.unpack(archive, partial)
        for member, digest in members.items():
            if member not in found:
                raise IntegrityError(f"{archive}: no {member} in it; fetch it again")
            if digest and (actual := files.sha256(partial / member)) != digest:
                raise IntegrityError(f"{archive}: {member} has sha256 {actual}, not {digest}; fetch it again")
    except IntegrityError as error:
        raise IntegrityError(f"{error} (kept as {incoming.reject(name).name})") from error


def _choices() -> dict[str, Callable[[], Options]]:
    def choice(name: str, kind: type[Options], about: str) -> Callable[[], Options]:
        def defaults() -> Options:
            return kind(output=paths.workdir() / "download" / name)

        defaults.__doc__ = about
        return defaults

    return {
        "wikipedia": choice("wikipedia", Wikipedia, "a dump of Wikipedia in any language"),
        "pg19": choice("pg19", Pg19, "PG-19, 28,752 books published before 1919"),
        **{name: choice(name, Fixed, found.about) for name, found in catalog.SETS.items()},
    }


def main(argv: list[str]) -> None:
    name, options = cli.choose(argv, _choices(), prog="python -m data.download", description=__doc__)
    client = Client(_agent(options.contact), options.connections, PATIENCE)
    incoming = Incoming(options.output, client)
    if isinstance(options, Wikipedia):
        source = wikipedia(options, incoming)
    elif isinstance(options, Pg19):
        source = pg19(options, incoming)
    else:
        assert isinstance(options, Fixed)
        source = fixed(name, options)
    found = manifest.build(
        options.output,
        stage="download",
        parameters=source.parameters,
        inputs=[],
        make=lambda partial: make(source, incoming, partial),
    )
    incoming.remove([*found.extra["sources"], wikimedia.STATUS])


if __name__ == "__main__":
    cli.main(main)
