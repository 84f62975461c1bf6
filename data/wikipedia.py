"""Convert Wikipedia to documents of clean text, from an XML dump, the parts of a dump, or wikiextractor's output.

    python -m data.wikipedia --source simplewiki-pages-articles.xml.bz2 --output workdir/corpus/wikipedia
    python -m data.wikipedia --source enwiki/ --output workdir/corpus/wikipedia

A folder of dump parts (`...-pages-articles-multistream1.xml-p1p41242.bz2`, ...) is read several parts at a time. The
text of a dump is extracted by wikiextractor, which runs as a separate program. Templates are not expanded. The
remnants of templates ("()", ", ,") and of other markup are removed. Section headings are removed too, as for the
original BERT. Of a dump's lists, the items that read as sentences stay (--lists).

The manifest counts every page: articles, redirects, pages of other namespaces, pages without text, and rejected pages,
which are listed with the reason. It counts the characters of the articles, of their text, and of what was left out by
reason, and the templates that took most.
"""

import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from bert.core import cli, files, outputs
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range
from data.pipeline import languages, parts, sources, tasks
from data.splitting.sentences import SENTENCE_END
from data.wiki import dump, extractor, references, wikitext

# wikiextractor writes a heading as a line with a full stop. Most headings are shorter than this; few paragraphs are. Of
# a dump they are removed before (data/wiki/wikitext.py).
HEADING_WORDS, HEADING_CHARACTERS = 5, 50

# Remnants of markup in the output of old and new versions of wikiextractor, in the order of their removal.
REMNANTS = [
    (re.compile(r"\[\s?\[(?:update|citation needed)\]\]"), ""),  # "as of 2014[ [update]]"
    (re.compile(r"</?[A-Za-z][^<>\n]*>"), " "),  # <br>, </dl>; "a < b" stays
    # __NOTOC__, in any language: letters with their signs, none of them a to z
    (re.compile(r"__[^\s!-@\[-\x7f]+(?:_[^\s!-@\[-\x7f]+)*__"), ""),
    (re.compile(r"formula_\d+"), "formula"),  # numbered in place of a formula or piece of code that was cut out
    (re.compile(r"codice_\d+"), "code"),
    (re.compile(r"\((?:[\s,;:.\]]++|\bor\b|\band\b)*+\)"), ""),  # parentheses that held only a template
    (re.compile(r"\([\s,;:\]]+"), "("),
    (re.compile(r"([,;])(?:[ \xa0]*[,;])+"), r"\1"),
    (re.compile(r"^[ \xa0]*[*:;\u2022]+", re.M), ""),  # list markers
]
HIDDEN = {"H", "T", "D", "N", "-", "+"}  # flags of a language variant that shows nothing, or not its text
VARIANTS = re.compile(r"-\{([^{}\n]{0,500})\}-")
OPENING, TITLE = '<doc id="', ' title="'  # of an article in wikiextractor's format without --json
DEBRIS = ("{{", "}}", "{|", "|}", "[[", "]]")  # a line with one of these is a table, template, file or category
CHARACTERS, TEMPLATE = "characters ", "template "  # beginnings of the names of counts
KEPT_TEMPLATES, MOST_TEMPLATES = 500, 40  # of one task; of all
DEBRIS_STARTS = ("|", "!", "#if", "#switch", "#expr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.TextOptions):
    """Flags of `python -m data.wikipedia`."""

    source: cli.Stored[Path]
    """XML dump (.xml, also .bz2 .gz .xz), folder of dump parts, or folder of wikiextractor output (wiki_00, ...)"""
    lists: wikitext.Lists = "prose"
    """items of a dump's lists: keep all, those that read as sentences (prose), or drop all"""
    page_seconds: Annotated[float, Range(0.001, 1e6)] = 120.0
    """seconds that wikiextractor may spend on one page; after that the page is rejected"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.source.exists() and re.fullmatch(r"[a-z]{2,3}|simple", str(self.source)):
            remedy = f"fetch it with python -m data.download wikipedia --wiki {self.source}, or give the path of a dump"
            raise UsageError(f"--source {self.source}: no such file or folder; {remedy}")


def clean(title: str, text: str, headings: bool, counts: Counter[str] | None = None) -> str:
    """Return the paragraphs of an article, one a line, from wikiextractor's text.

    The title, HTML entities, remnants of markup and control characters are removed. headings: whether there are some;
    they are lines that end with a full stop and are short, as a few paragraphs are, too. The characters of short lines
    that are removed are added to `counts`.
    """
    text, _ = sources.without_controls(references.unescape(text).replace(wikitext.MARKER, ""))
    text = VARIANTS.sub(_variant, text)
    for pattern, replacement in REMNANTS:
        text = pattern.sub(replacement, text)
    lines = [line for line in map(str.strip, text.splitlines()) if line and not _is_debris(line)]
    if lines and lines[0] == title:
        del lines[0]
    leaves = _is_heading if headings else _is_remnant
    kept_lines = [line for number, line in enumerate(lines) if number == 0 or not (_is_short(line) and leaves(line))]
    if counts is not None:
        counts["short lines"] += sum(map(len, lines)) - sum(map(len, kept_lines))
    return "\n".join(kept_lines)


def _variant(match: re.Match[str]) -> str:
    """Return the text of a language variant, -{zh-hans:A; zh-hant:B}-: the first one; "" for one that is not shown."""
    flags, bar, content = match[1].rpartition("|")
    if bar and HIDDEN & set(re.split(r"[;\s]+", flags)):
        return ""
    first, _, _ = content.partition(";")
    name, colon, value = first.partition(":")
    return (value if colon and re.fullmatch(r"\s*[a-z]{2,3}(?:-[a-z]{2,8})*\s*", name) else content).strip()


def _is_debris(line: str) -> bool:
    if line[0] == "!" and not _is_short(line) and SENTENCE_END.search(line):
        return False  # "!Kung is a language.", and no row of names of a table
    return line.startswith(DEBRIS_STARTS) or any(mark in line for mark in DEBRIS)


def _is_short(line: str) -> bool:
    return len(line) <= HEADING_CHARACTERS and len(line.split()) <= HEADING_WORDS


def _is_heading(line: str) -> bool:
    """Return whether a short line may be a heading of wikiextractor's; other short lines without a stop are labels."""
    return line.endswith(".") or _is_label(line)


def _is_label(line: str) -> bool:
    """Return whether a short line is a word above a list, a formula alone, and the like, and no sentence.

    Scripts that have capitals end their sentences with a mark; Thai, for example, has neither.
    """
    return line in ("formula", "formula.") or (not SENTENCE_END.search(line) and line.lower() != line.upper())


def _is_remnant(line: str) -> bool:
    """Return whether a short line of a dump is a label. One above a list whose items stay is none."""
    return not line.endswith(wikitext.COLONS) and _is_label(line)


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
        identifier, title, url = _opening(line, path)
        body, size = [], 0
        while (line := next(rest, "")) and line.rstrip() != "</doc>":
            body.append(line)
            size += len(line)
            if size > files.MAX_LINE:
                raise InputError(f"{path}: article {identifier[:40]} has no </doc>, or is too long; extract again")
        if not line:
            raise InputError(f"{path}: the file ends inside article {identifier[:40]} (no </doc>); extract again")
        yield extractor.Article(identifier, references.unescape(title), "".join(body), extractor.host(url))
        while (line := next(rest, "")).isspace():
            pass


def _opening(line: str, path: Path) -> tuple[str, str, str]:
    """Return the id, the title, still escaped, and the address of the line `<doc id="..." url="..." title="...">`."""
    id_end = line.find('"', len(OPENING)) if line.startswith(OPENING) else -1
    tag_end = line.rfind('">')
    title = line.rfind(TITLE, id_end + 1, max(0, tag_end)) + len(TITLE)  # the last one; a url may have one too
    if id_end < 0 or title < len(TITLE):
        raise InputError(f"{path}: {line.strip()[:40]!r} instead of <doc id=...>; give wikiextractor's output")
    url = line[id_end:title].partition('url="')[2].partition('"')[0]
    return line[len(OPENING) : id_end], line[title : line.index('">', title)], url


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
    lists: wikitext.Lists
    processes: int  # of wikiextractor
    page_seconds: float


class WikipediaStage(sources.SourceStage):
    """Wikipedia to documents."""

    name = "wikipedia"
    is_dump = False  # whether the source has lists, which wikiextractor drops

    def __init__(self, options: Options) -> None:
        source = Source.at(options.source)
        if not source.is_dump and options.lists == "keep":
            raise UsageError(f"--lists keep: wikiextractor has dropped the lists of {options.source}; give the dump")
        processes = max(1, options.workers // len(source.groups))
        super().__init__(
            options, source.groups, Settings(source.is_dump, options.lists, processes, options.page_seconds)
        )
        self.missing, self.is_dump = source.missing, source.is_dump
        if source.is_dump:
            codes = {path: dump.language(path) for group in source.groups for path in group}
            self.language = languages.agreed(options.language, {path: code for path, code in codes.items() if code})

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the articles of a dump, of one part of a dump, or of some of wikiextractor's files."""
        settings: Settings = task.settings
        if not settings.is_dump:
            return write_articles(task.target, extracted_articles(task.files), headings=True)
        reader = dump.Reader(task.files[0])
        articles = extractor.extract(reader, settings.processes, settings.page_seconds, settings.lists)
        result = write_articles(task.target, articles, headings=False)
        counts = Counter({**reader.counts, **result.counts})  # "articles" are those with text
        return result._replace(counts=counts, refused=reader.rejected)

    def parameters(self) -> dict[str, Any]:
        without_effect = ["page_seconds", *(() if self.is_dump else ("lists",))]
        return tasks.parameters(self.options, without_effect, newer=["language"])

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        source = self.options.source
        pages, characters, templates = _divided(result.counts)
        if not pages["articles"]:
            raise InputError(f"{source}: no article with text in it ({json.dumps(pages)}); give another dump")
        result = dataclasses.replace(result, counts=pages)
        print(sources.summary(self.name, result), file=sys.stderr)
        shares = ", ".join(
            f"{n / max(1, characters['in']):.1%} {name}" for name, n in characters.items() if name != "in"
        )
        print(f"wikipedia: of {characters['in']:,} characters: {shares}", file=sys.stderr)
        if self.missing:
            ranges = ", ".join(self.missing)
            print(f"wikipedia: {source}: no part has the pages {ranges}; they are left out", file=sys.stderr)
        extra = {
            "rejected": result.extra["refused"],
            "missing_pages": self.missing,
            "characters": characters,
            "templates": templates,
        }
        return dataclasses.replace(result, extra=extra)


def _divided(counts: dict[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the counts of pages, those of characters, and the characters of the templates that took most."""
    pages: dict[str, int] = {}
    characters: dict[str, int] = {}
    templates = Counter[str]()
    for name, number in counts.items():
        if name.startswith(CHARACTERS):
            characters[name.removeprefix(CHARACTERS)] = number
        elif name.startswith(TEMPLATE):
            templates[name.removeprefix(TEMPLATE)] = number
        else:
            pages[name] = number
    return pages, characters, dict(templates.most_common(MOST_TEMPLATES))


def write_articles(folder: Path, articles: Iterable[extractor.Article], headings: bool) -> sources.ReadResult:
    """Clean the articles and write those with text as parts into `folder`. headings: as in `clean`."""
    counts = Counter(articles=0, empty=0)
    characters, templates = Counter[str](), Counter[str]()
    size = 0
    with parts.Writer(folder) as writer:
        for article in articles:
            of_article = Counter(article.counts or {"in": len(article.text)})
            body, halves = sources.without_surrogates(article.text)
            if halves:
                counts[sources.HALF_PAIRS] += halves
            text = clean(article.title, body, headings, of_article)
            name = f"wikipedia:{article.wiki}:{article.id}" if article.wiki else f"wikipedia:{article.id}"
            for number, piece in enumerate(sources.pieces(text) if text else ()):
                size += writer.write({"id": sources.piece_id(name, number), "text": piece})
            counts["articles" if text else "empty"] += 1
            of_article["text"] = len(text)
            for key, number in of_article.items():
                (templates if key.startswith(TEMPLATE) else characters)[key] += number
    characters["other markup"] = 2 * characters["in"] - characters.total()
    counts.update({CHARACTERS + name: characters[name] for name in ("in", *sorted(set(characters) - {"in"}))})
    counts.update(dict(templates.most_common(KEPT_TEMPLATES)))
    return sources.ReadResult(counts, writer.records, {}, counts["articles"], size)


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.wikipedia", description=__doc__)
    tasks.build(WikipediaStage(options), options.output, options)


if __name__ == "__main__":
    from data import wikipedia  # a Dask worker can load a task of this module, not one of __main__

    cli.main(wikipedia.main)
