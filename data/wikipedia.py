"""Convert Wikipedia to documents of clean text, from an XML dump, the parts of a dump, or wikiextractor's output.

    python -m data.wikipedia --source simplewiki-pages-articles.xml.bz2 --output workdir/corpus/wikipedia
    python -m data.wikipedia --source enwiki/ --output workdir/corpus/wikipedia

A folder of dump parts (`...-pages-articles-multistream1.xml-p1p41242.bz2`, ...) is read several parts at a time. The
text of a dump is extracted by wikiextractor, which runs as a separate program. Templates are not expanded. The
remnants of templates ("()", ", ,") and of other markup are removed. Section headings are removed too, as for the
original BERT.

The manifest counts every page: articles, redirects, pages of other namespaces, pages without text, and rejected pages,
which are listed with the reason.
"""

import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from bert import cli
from bert.errors import InputError, UsageError
from bert.ranges import Range
from bert.storage import files, outputs
from data.pipeline import parts, sources, tasks
from data.wiki import dump, extractor, references

# wikiextractor writes a heading as a line with a full stop. Most headings are shorter than this; few paragraphs are.
HEADING_WORDS, HEADING_CHARACTERS = 5, 50

# Remnants of markup in the output of old and new versions of wikiextractor, in the order of their removal.
REMNANTS = [
    (re.compile(r"\[\s?\[(?:update|citation needed)\]\]"), ""),  # "as of 2014[ [update]]"
    (re.compile(r"</?[A-Za-z][^<>\n]*>"), " "),  # <br>, </dl>; "a < b" stays
    (re.compile(r"__[A-Z]{3,}__"), ""),  # __NOTOC__
    (re.compile(r"formula_\d+"), "formula"),  # numbered in place of a formula or piece of code that was cut out
    (re.compile(r"codice_\d+"), "code"),
    (re.compile(r"\((?:[\s,;:.\]]++|\bor\b|\band\b)*+\)"), ""),  # parentheses that held only a template
    (re.compile(r"\([\s,;:\]]+"), "("),
    (re.compile(r"([,;])(?:[ \xa0]*[,;])+"), r"\1"),
    (re.compile(r"^[ \xa0]*[*:;\u2022]+", re.M), ""),  # list markers
]
OPENING, TITLE = '<doc id="', ' title="'  # of an article in wikiextractor's format without --json
DEBRIS = ("{{", "}}", "{|", "|}", "[[", "]]")  # a line with one of these is a table, template, file or category
DEBRIS_STARTS = ("|", "!", "#if", "#switch", "#expr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.wikipedia`."""

    source: Path
    """XML dump (.xml, also .bz2 .gz .xz), folder of dump parts, or folder of wikiextractor output (wiki_00, ...)"""
    page_seconds: Annotated[float, Range(0.001, 1e6)] = 120.0
    """seconds that wikiextractor may spend on one page; after that the page is rejected"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.source.exists() and re.fullmatch(r"[a-z]{2,3}|simple", str(self.source)):
            remedy = f"fetch it with python -m data.download wikipedia --wiki {self.source}, or give the path of a dump"
            raise UsageError(f"--source {self.source}: no such file or folder; {remedy}")


def clean(title: str, text: str) -> str:
    """Return the paragraphs of an article, one a line, from wikiextractor's text.

    The title, headings, HTML entities, remnants of markup and control characters are removed.
    """
    text, _ = sources.without_controls(references.unescape(text))
    for pattern, replacement in REMNANTS:
        text = pattern.sub(replacement, text)
    lines = [line for line in map(str.strip, text.splitlines()) if line and not _is_debris(line)]
    if lines and lines[0] == title:
        del lines[0]
    return "\n".join(line for number, line in enumerate(lines) if number == 0 or not _is_heading(line))


def _is_debris(line: str) -> bool:
    return line.startswith(DEBRIS_STARTS) or any(mark in line for mark in DEBRIS)


def _is_heading(line: str) -> bool:
    return len(line) <= HEADING_CHARACTERS and len(line.split()) <= HEADING_WORDS


def extracted_articles(paths: Iterable[Path]) -> Iterator[extractor.Article]:
    """Yield the articles in wikiextractor's files. Raise InputError if a file is cut or not of this format."""
    for path in paths:
        with files.open_text(path) as stream:
            lines = files.read_lines(stream, path)
            first = next(lines, "")
            if first.startswith("{"):
                yield from _from_json(path, first, lines)
            elif first:
                yield from _from_tags(path, first, lines)


def _from_json(path: Path, first: str, rest: Iterator[str]) -> Iterator[extractor.Article]:
    number, line = 1, first
    while line:
        try:
            yield extractor.article(line)
        except ValueError as error:
            raise InputError(f"{path}: line {number} is not from wikiextractor --json; extract again") from error
        number, line = number + 1, next(rest, "")


def _from_tags(path: Path, first: str, rest: Iterator[str]) -> Iterator[extractor.Article]:
    line = first
    while line:
        identifier, title = _opening(line, path)
        body, size = [], 0
        while (line := next(rest, "")) and line.rstrip() != "</doc>":
            body.append(line)
            size += len(line)
            if size > files.MAX_LINE:
                raise InputError(f"{path}: article {identifier[:40]} has no </doc>, or is too long; extract again")
        if not line:
            raise InputError(f"{path}: the file ends inside article {identifier[:40]} (no </doc>); extract again")
        yield extractor.Article(identifier, references.unescape(title), "".join(body))
        while (line := next(rest, "")).isspace():
            pass


def _opening(line: str, path: Path) -> tuple[str, str]:
    """Return the id and the title, still escaped, of the line `<doc id="..." url="..." title="...">`."""
    id_end = line.find('"', len(OPENING)) if line.startswith(OPENING) else -1
    tag_end = line.rfind('">')
    title = line.rfind(TITLE, id_end + 1, max(0, tag_end)) + len(TITLE)  # the last one; a url may have one too
    if id_end < 0 or title < len(TITLE):
        raise InputError(f"{path}: {line.strip()[:40]!r} instead of <doc id=...>; give wikiextractor's output")
    return line[len(OPENING) : id_end], line[title : line.index('">', title)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """The files of a source, and whether they are a dump or wikiextractor's output."""

    is_dump: bool
    groups: list[tuple[Path, ...]]  # the files of each task
    missing: list[str] = dataclasses.field(default_factory=list)  # ranges of pages that are in no part

    @classmethod
    def at(cls, path: Path) -> "Source":
        """Raise InputError if a folder holds neither parts of a dump nor wikiextractor's output."""
        if not path.is_dir():
            return cls(is_dump=True, groups=[(path,)])
        if dumps := dump.parts_of(path):
            return cls(is_dump=True, groups=[(part,) for part in dumps], missing=dump.missing_pages(dumps))
        if extracted := sources.find_files(path, lambda name: name.startswith("wiki_")):
            return cls(is_dump=False, groups=sources.group_files(extracted))
        expected = "neither parts of a dump (*-pages-articles*.xml*) nor wikiextractor output (wiki_00, ...)"
        raise InputError(f"{path}: {expected} in it; give one of the two, or a dump")


class Settings(NamedTuple):
    """What a task needs of the options."""

    is_dump: bool
    processes: int  # of wikiextractor
    page_seconds: float


class WikipediaStage(sources.SourceStage):
    """Wikipedia to documents."""

    name = "wikipedia"
    not_parameters = ("page_seconds",)

    def __init__(self, options: Options) -> None:
        source = Source.at(options.source)
        processes = max(1, options.workers // len(source.groups))
        super().__init__(options, source.groups, Settings(source.is_dump, processes, options.page_seconds))
        self.missing = source.missing

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the articles of a dump, of one part of a dump, or of some of wikiextractor's files."""
        settings: Settings = task.settings
        if not settings.is_dump:
            return write_articles(task.target, extracted_articles(task.files))
        reader = dump.Reader(task.files[0])
        result = write_articles(task.target, extractor.extract(reader, settings.processes, settings.page_seconds))
        counts = Counter({**reader.counts, **result.counts})  # "articles" are those with text
        return result._replace(counts=counts, refused=reader.rejected)

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        source = self.options.source
        if not result.counts["articles"]:
            counts = json.dumps(result.counts)
            raise InputError(f"{source}: no article with text in it ({counts}); give another dump")
        print(sources.summary(self.name, result), file=sys.stderr)
        if self.missing:
            pages = ", ".join(self.missing)
            print(f"wikipedia: {source}: no part has the pages {pages}; they are left out", file=sys.stderr)
        return dataclasses.replace(result, extra={"rejected": result.extra["refused"], "missing_pages": self.missing})


def write_articles(folder: Path, articles: Iterable[extractor.Article]) -> sources.ReadResult:
    """Clean the articles and write those with text as parts into `folder`."""
    counts = Counter(articles=0, empty=0)
    size = 0
    with parts.Writer(folder) as writer:
        for article in articles:
            if text := clean(article.title, article.text):
                size += writer.write({"id": f"wikipedia:{article.id}", "text": text})
                counts["articles"] += 1
            else:
                counts["empty"] += 1
    return sources.ReadResult(counts, writer.records, {}, counts["articles"], size)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.wikipedia", description=__doc__)
    tasks.build(WikipediaStage(options), options.output, options)


if __name__ == "__main__":
    from data import wikipedia  # a Dask worker can load a task of this module, not one of __main__

    cli.main(wikipedia.main)
