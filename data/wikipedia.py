"""Wikipedia to documents: an XML dump, its parts, or a folder that wikiextractor wrote, to parts of clean text.

    python -m data.wikipedia --source simplewiki-pages-articles.xml.bz2 --output workdir/corpus/wikipedia
    python -m data.wikipedia --source enwiki/ --output workdir/corpus/wikipedia

A folder of dump parts (`...-pages-articles-multistream1.xml-p1p41242.bz2`, ...) is read several parts at a time. A dump
goes through wikiextractor, run as a program (see `data.wiki.extractor`). Templates are not expanded: what they leave
behind ("()", ", ,") is removed here with the other remnants of markup. So are section headings, as for the original
BERT.
Every page is counted: an article, a redirect, of another namespace, without text, or rejected by name.
"""

import dataclasses
import html
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bert import cli
from bert.errors import InputError, UsageError
from bert.storage import files, manifest
from data.pipeline import parts, sources
from data.wiki import dump, extractor

# wikiextractor makes a heading a line with a full stop. Most have no more words than this; hardly a paragraph does.
HEADING_WORDS, HEADING_CHARACTERS = 5, 50

# Remnants in wikiextractor's output, old and new, in the order of their removal.
REMNANTS = [
    (re.compile(r"\[\s?\[(?:update|citation needed)\]\]"), ""),  # "as of 2014[ [update]]"
    (re.compile(r"</?[A-Za-z][^<>\n]*>"), " "),  # <br>, </dl>; "a < b" stays
    (re.compile(r"__[A-Z]{3,}__"), ""),  # __NOTOC__
    (re.compile(r"formula_\d+"), "formula"),  # the number of a formula or piece of code that was cut out says nothing
    (re.compile(r"codice_\d+"), "code"),
    (re.compile(r"\((?:[\s,;:.\]]|\bor\b|\band\b)*\)"), ""),  # parentheses whose content was a template
    (re.compile(r"\([\s,;:\]]+"), "("),
    (re.compile(r"([,;])(?:[ \xa0]*[,;])+"), r"\1"),
    (re.compile(r"^[ \xa0]*[*:;\u2022]+", re.M), ""),  # marks of lists
]
DEBRIS = ("{{", "}}", "{|", "|}", "[[", "]]")  # of tables, templates, files and categories: the line is no prose
DEBRIS_STARTS = ("|", "!", "#if", "#switch", "#expr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.wikipedia`."""

    source: Path
    """XML dump (.xml, also .bz2 .gz .xz), folder of its parts, or of wikiextractor output (wiki_00, ...)"""
    page_seconds: float = 120.0
    """reject a page for which wikiextractor has no answer in so long"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.page_seconds <= 0:
            raise UsageError(f"--page_seconds {self.page_seconds:g}: must be more than 0")
        if not self.source.exists() and re.fullmatch(r"[a-z]{2,3}|simple", str(self.source)):
            remedy = f"python -m data.download wikipedia --wiki {self.source} fetches it; or give the path of a dump"
            raise UsageError(f"--source {self.source}: no such file or folder; {remedy}")


def clean(title: str, text: str) -> str:
    """The paragraphs, one a line, of what wikiextractor makes of an article: no title, headings, entities, remnants."""
    text = html.unescape(text)
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


def from_files(found: Iterable[Path]) -> Iterator[extractor.Article]:
    """The articles in wikiextractor's files. Raises InputError if one is not of this format or cut."""
    for path in found:
        with files.open_text(path) as stream:
            first = stream.readline()
            if first.startswith("{"):
                yield from _from_json(path, first, stream)
            elif first:
                yield from _from_tags(path, first, stream)


def _from_json(path: Path, first: str, rest: Iterator[str]) -> Iterator[extractor.Article]:
    number, line = 1, first
    while line:
        try:
            yield extractor.article(line)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: line {number} is no article of wikiextractor --json; extract again") from error
        number, line = number + 1, next(rest, "")


def _from_tags(path: Path, first: str, rest: Iterator[str]) -> Iterator[extractor.Article]:
    line = first
    while line:
        opening = re.match(r'<doc id="([^"]*)".* title="(.*?)">', line)
        if not opening:
            raise InputError(f"{path}: {line.strip()[:40]!r} where <doc id=...> should be; give wikiextractor's output")
        body = []
        while (line := next(rest, "")) and line.rstrip() != "</doc>":
            body.append(line)
        if not line:
            raise InputError(f"{path}: the file ends inside article {opening[1]} (no </doc>); extract again")
        yield extractor.Article(opening[1], html.unescape(opening[2]), "".join(body))
        while (line := next(rest, "")).isspace():
            pass


def extract_dump(task: sources.Task) -> sources.Result:
    """Writes the articles of one dump, or part of one."""
    (path,), (processes, page_seconds) = task.files, task.options
    reader = dump.Reader(path)
    result = _write(task.target, extractor.extract(reader, processes, page_seconds))
    counts = Counter({**reader.counts, **result.counts})  # articles are those with text
    return result._replace(counts=counts, refused=reader.rejected)


def read_extracted(task: sources.Task) -> sources.Result:
    """Writes the articles of some of wikiextractor's files."""
    return _write(task.target, from_files(task.files))


def _write(folder: Path, articles: Iterable[extractor.Article]) -> sources.Result:
    counts = Counter(articles=0, empty=0)
    size = 0
    with parts.Writer(folder) as writer:
        for article in articles:
            if text := clean(article.title, article.text):
                size += writer.write({"id": f"wikipedia:{article.id}", "text": text})
                counts["articles"] += 1
            else:
                counts["empty"] += 1
    return sources.Result(counts, writer.records, {}, counts["articles"], size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What a source is made of, and the function for it."""

    function: Callable[[sources.Task], sources.Result]
    groups: list[tuple[Path, ...]]
    missing: list[str]  # ranges of pages that no part has

    @classmethod
    def of(cls, source: Path) -> "Work":
        """Raises InputError if a folder holds neither a dump's parts nor wikiextractor's output."""
        if not source.is_dir():
            return cls(function=extract_dump, groups=[(source,)], missing=[])
        if dumps := dump.parts_of(source):
            return cls(function=extract_dump, groups=[(p,) for p in dumps], missing=dump.missing_pages(dumps))
        if extracted := sources.find(source, lambda name: name.startswith("wiki_")):
            return cls(function=read_extracted, groups=sources.groups(extracted), missing=[])
        wanted = "neither parts of a dump (*-pages-articles*.xml*) nor wikiextractor output (wiki_00, ...)"
        raise InputError(f"{source}: {wanted} in it; give one of the two, or a dump")


def finish(options: Options, missing: list[str], made: manifest.StageResult) -> manifest.StageResult:
    """Says on the terminal what the manifest says."""
    if not made.counts["articles"]:
        counts = json.dumps(made.counts)
        raise InputError(f"{options.source}: no article with text in it ({counts}); give another dump")
    print(sources.summary("wikipedia", made), file=sys.stderr)
    if missing:
        note = f"{options.source}: no part has the pages {', '.join(missing)}; went on without them"
        print(f"wikipedia: {note}", file=sys.stderr)
    return dataclasses.replace(made, extra={"rejected": made.extra["refused"], "missing_pages": missing})


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.wikipedia", description=__doc__)
    work = Work.of(options.source)
    given = (max(1, options.workers // len(work.groups)), options.page_seconds)
    sources.build(
        "wikipedia", options, work.function, work.groups, lambda made: finish(options, work.missing, made), given
    )


if __name__ == "__main__":
    cli.main(main)
