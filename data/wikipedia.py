"""Convert Wikipedia to documents of clean text, from an XML dump or its parts, a snapshot, or wikiextractor's output.

    python -m data.wikipedia --source simplewiki-pages-articles.xml.bz2 --output workdir/corpus/wikipedia
    python -m data.wikipedia --source enwiki/ --output workdir/corpus/wikipedia
    python -m data.wikipedia --source dewiki_namespace_0.tar.gz --output workdir/corpus/wikipedia

A folder of dump parts (`...-pages-articles-multistream1.xml-p1p41242.bz2`, ...) is read several parts at a time. A
snapshot of Wikimedia Enterprise (JSON lines with article_body.wikitext, also in .tar.gz) is read as a dump is. The text
of both is extracted by wikiextractor, which runs as a separate program. Templates show the text that the table
data/wiki/templates.tsv gives; a sentence with another template as one of its words is left out, and counted. The
remnants of templates ("()", ", ,") and of other markup are removed. Section headings are removed too, as for the
original BERT. Of a dump's lists, the items that read as sentences stay (--lists).

The manifest counts every page: articles, redirects, pages of other namespaces, pages without text, and rejected pages,
which are listed with the reason. It counts the characters of the articles, of their text, and of what was left out by
reason, the templates that took most, and those for which most sentences were left out, which --lost lists.
"""

import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from bert.core import cli, files, manifest, outputs, rows
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range
from data.pipeline import document_files, languages, sources, tasks
from data.splitting.sentences import SENTENCE_END
from data.wiki import dump, extractor, literals, references, templates, wikitext

# of files of Wikimedia Enterprise in a folder
SNAPSHOT = re.compile(r"\.(?:ndjson(?:\.(?:gz|bz2|xz|zst))?|tar(?:\.(?:gz|bz2|xz|zst))?)$", re.I)
SNAPSHOT_READER = "data.wiki.enterprise:Reader"  # imported only for a snapshot
SNAPSHOT_LANGUAGE = "data.wiki.enterprise:language"

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
    (re.compile(r"\uff08[\s,;:.\u3000-\u3002\uff0c\uff1a\uff1b]*+\uff09"), ""),  # the same in Chinese and Japanese
    (re.compile(r"\uff08[\s,;:\u3000-\u3002\uff0c\uff1a\uff1b]+"), "\uff08"),
    (re.compile(r"([,;])(?:[ \xa0]*[,;])+"), r"\1"),
    (re.compile(r"^[ \xa0]*[*:;\u2022]+", re.M), ""),  # list markers
]
HIDDEN = {"H", "T", "D", "N", "-", "+"}  # flags of a language variant that shows nothing, or not its text
VARIANTS = re.compile(r"-\{([^{}\n]{0,500})\}-")
OPENING, TITLE = '<doc id="', ' title="'  # of an article in wikiextractor's format without --json
DEBRIS = ("{{", "}}", "{|", "|}", "[[", "]]")  # a line with these is a table, template, file or category
CHARACTERS, TEMPLATE, LOST = "characters ", "template ", "lost "  # beginnings of the names of counts
UNKNOWN = "sentences with unknown templates"
KEPT_TEMPLATES, MOST_TEMPLATES, MOST_LOST = 500, 40, 300  # of one task; of all
WIKI = re.compile(r"([a-z]{2,3}(?:[-_][a-z]{2,8}){0,2}|simple)wiki(?![a-z])")  # at the begin of the name of a dump
DEBRIS_STARTS = ("|", "!", "#if", "#switch", "#expr")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.TextOptions):
    """Flags of `python -m data.wikipedia`."""

    source: cli.Stored[Path]
    """XML dump (.xml, also .bz2 .gz .xz), folder of dump parts, snapshot of Wikimedia Enterprise (.tar.gz, .ndjson, or
    folder of them), or folder of wikiextractor output (wiki_00, ...)"""
    lists: wikitext.Lists = "prose"
    """items of a dump's lists: keep all, those that read as sentences (prose), or drop all"""
    templates: cli.Stored[Path | None] = None
    """table of templates that goes before data/wiki/templates.tsv and has its form: names, languages, text"""
    lost: cli.Switch = False
    """list the templates for which most sentences were left out, with their number, on standard output"""
    page_seconds: Annotated[float, Range(0.001, 1e6)] = 120.0
    """seconds that wikiextractor may spend on one page; after that the page is rejected"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.source.exists() and re.fullmatch(r"[a-z]{2,3}|simple", str(self.source)):
            remedy = f"fetch it with python -m data.download wikipedia --wiki {self.source}, or give the path of a dump"
            raise UsageError(f"--source {self.source}: no such file or folder; {remedy}")


def clean(title: str, text: str, headings: bool, counts: Counter[str] | None = None) -> str:
    """Return the paragraphs of an article, one a line, from wikiextractor's text.

    The title, HTML entities, remnants of markup and control characters are removed. headings: whether the text has
    headings, which are short lines with a full stop at the end; a few paragraphs look the same. The characters of short
    lines that are removed are added to `counts`.
    """
    text, _ = sources.without_controls(references.unescape(text).replace(literals.MARKER, ""))
    text = VARIANTS.sub(_variant, text)
    for pattern, replacement in REMNANTS:
        text = pattern.sub(replacement, text)
    lines, debris = [], 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if _is_debris(line):
            debris += len(line)
        else:
            lines.append(line if headings else literals.show(line))
    if templates.HOLE in text:
        lines = list(_without_holes(lines, Counter() if counts is None else counts))
    if lines and lines[0] == title:
        del lines[0]
    leaves = _is_heading if headings else _is_remnant
    kept_lines = [line for number, line in enumerate(lines) if number == 0 or not (_is_short(line) and leaves(line))]
    if counts is not None:
        if debris:
            counts["unclosed markup"] += debris
        counts["short lines"] += sum(map(len, lines)) - sum(map(len, kept_lines))
    return "\n".join(kept_lines)


def _without_holes(lines: list[str], counts: Counter[str]) -> Iterator[str]:
    """Yield the lines without the sentences in which an unknown template stands for a word. Count what is left out."""
    for line in lines:
        kept = line
        if templates.HOLE in line:
            kept, names = templates.without_holes(line)
            counts[UNKNOWN] += len(templates.HOLES.sub("", line)) - len(kept)
            counts.update(LOST + name for name in names)
        if kept:
            yield kept


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
    if line.startswith(DEBRIS_STARTS):
        return True
    marks = sum(map(line.count, DEBRIS)) if any(mark in line for mark in DEBRIS) else 0
    return marks > 1 or (marks == 1 and (line.startswith(DEBRIS) or not SENTENCE_END.search(line)))  # one is a stray


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
    """Return whether a short line of a dump is a label. A line above a list whose items stay is no label."""
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
    """The files of a source, and whether they are a dump or a snapshot, or wikiextractor's output."""

    is_dump: bool
    is_snapshot: bool = False  # of Wikimedia Enterprise; one task, because copies of an article may be in several files
    groups: list[tuple[Path, ...]]  # the files of each task
    missing: list[str] = dataclasses.field(default_factory=list)  # ranges of pages that are in no part

    @classmethod
    def at(cls, path: Path) -> "Source":
        """Return the source at a path. Raise InputError if a folder holds no parts, extracted files or snapshot."""
        if not path.is_dir():
            head = b"" if dump.COMPRESSED.search(path.name) else dump.first_bytes(path)
            return cls(is_dump=True, is_snapshot=_is_snapshot(head), groups=[(path,)])
        if dumps := dump.parts_of(path):
            return cls(is_dump=True, groups=[(part,) for part in dumps], missing=dump.missing_pages(dumps))
        if extracted := sources.find_files(path, lambda name: name.startswith("wiki_")):
            return cls(is_dump=False, groups=sources.group_files(extracted))
        if snapshots := sources.find_files(path, lambda name: bool(SNAPSHOT.search(name))):
            return cls(is_dump=True, is_snapshot=True, groups=[tuple(snapshots)])
        for archive in sources.find_files(path, lambda name: name.lower().endswith((".7z", ".zip"))):
            dump.first_bytes(archive)
        expected = "neither parts of a dump (*-pages-articles*.xml*) nor wikiextractor output (wiki_00, ...)"
        raise InputError(f"{path}: {expected} in it; give one of the two, or a dump")


def _is_snapshot(head: bytes) -> bool:
    """Return whether a file with these first bytes, decompressed, is a snapshot of Wikimedia Enterprise."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or head[dump.TAR] == b"ustar"


def _snapshot_language(path: Path) -> str:
    language: Callable[[Sequence[Path]], str] = rows.load(SNAPSHOT_LANGUAGE)
    return language([path])


def _snapshot_reader(paths: Sequence[Path]) -> dump.Reader:
    reader: Callable[[Sequence[Path]], dump.Reader] = rows.load(SNAPSHOT_READER)
    return reader(paths)


class Settings(NamedTuple):
    """What a task needs of the options."""

    is_dump: bool
    is_snapshot: bool
    lists: wikitext.Lists
    processes: int  # of wikiextractor
    page_seconds: float
    templates: Path | None


class WikipediaStage(sources.SourceStage):
    """Wikipedia to documents."""

    name = "wikipedia"
    is_dump = False  # whether the source has lists, which wikiextractor drops

    def __init__(self, options: Options) -> None:
        source = Source.at(options.source)
        if not source.is_dump and options.lists == "keep":
            raise UsageError(f"--lists keep: wikiextractor has dropped the lists of {options.source}; give the dump")
        for flag, given in (("--templates", options.templates), ("--lost", options.lost)):
            if given and not source.is_dump:
                raise UsageError(f"{flag}: wikiextractor has dropped the templates of {options.source}; give the dump")
        if options.templates:
            templates.load(("en",), options.templates)  # to refuse one that is wrong before the work
        processes = max(1, options.workers // len(source.groups))
        settings = Settings(
            source.is_dump,
            source.is_snapshot,
            options.lists,
            processes,
            options.page_seconds,
            options.templates,
        )
        super().__init__(options, source.groups, settings)
        self.missing, self.is_dump = source.missing, source.is_dump
        if source.is_dump:
            of_files = _snapshot_language if source.is_snapshot else dump.language
            codes = {path: of_files(path) for group in source.groups for path in group}
            self.language = languages.agreed(options.language, {path: code for path, code in codes.items() if code})

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the articles of a dump, of one part of a dump, or of some of wikiextractor's files."""
        settings: Settings = task.settings
        if not settings.is_dump:
            return write_articles(task.target, extracted_articles(task.files), headings=True)
        reader = _snapshot_reader(task.files) if settings.is_snapshot else dump.Reader(task.files[0])
        table = templates.load(_languages(task.files[0]), settings.templates)
        articles = extractor.extract(reader, settings.processes, settings.page_seconds, settings.lists, table)
        result = write_articles(task.target, articles, headings=False)
        counts = Counter({**reader.counts, **result.counts})  # "articles" are those with text
        return result._replace(counts=counts, refused=reader.rejected)

    def parameters(self) -> dict[str, Any]:
        without_effect = ["page_seconds", "lost", *(() if self.is_dump else ("lists",))]
        return tasks.parameters(self.options, without_effect, newer=["language"])

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        source = self.options.source
        pages, characters, of_templates = _divided(result.counts)
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
            **of_templates,
        }
        return dataclasses.replace(result, extra=extra)


def _languages(path: Path) -> tuple[str, ...]:
    """Return the codes of a dump's language: in its name and at its beginning. In excerpts these often differ."""
    match = WIKI.match(path.name)
    named = "en" if match and match[1] == "simple" else match[1].replace("_", "-") if match else ""
    return tuple(dict.fromkeys(filter(None, (named, dump.language(path)))))


def _divided(counts: dict[str, int]) -> tuple[dict[str, int], dict[str, int], dict[str, dict[str, int]]]:
    """Return the counts of pages, the counts of characters, and the counts of templates.

    The counts of templates are `templates`, the characters of the templates that took most, and `lost`, how often a
    sentence was left out because of each template.
    """
    pages: dict[str, int] = {}
    characters: dict[str, int] = {}
    largest, lost = Counter[str](), Counter[str]()
    for name, number in counts.items():
        if name.startswith(CHARACTERS):
            characters[name.removeprefix(CHARACTERS)] = number
        elif name.startswith(TEMPLATE):
            largest[name.removeprefix(TEMPLATE)] = number
        elif name.startswith(LOST):
            lost[name.removeprefix(LOST)] = number
        else:
            pages[name] = number
    of_templates = {"templates": dict(largest.most_common(MOST_TEMPLATES)), "lost": dict(lost.most_common(MOST_LOST))}
    return pages, characters, of_templates


def write_articles(folder: Path, articles: Iterable[extractor.Article], headings: bool) -> sources.ReadResult:
    """Clean the articles and write those with text as parts into `folder`. headings: as in `clean`."""
    counts = Counter(articles=0, empty=0)
    characters, largest, lost = Counter[str](), Counter[str](), Counter[str]()
    size = 0
    with document_files.Writer(folder) as writer:
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
                (largest if key.startswith(TEMPLATE) else lost if key.startswith(LOST) else characters)[key] += number
    characters["other markup"] = 2 * characters["in"] - characters.total()
    counts.update({CHARACTERS + name: characters[name] for name in ("in", *sorted(set(characters) - {"in"}))})
    counts.update(dict(largest.most_common(KEPT_TEMPLATES)) | dict(lost.most_common(KEPT_TEMPLATES)))
    return sources.ReadResult(counts, writer.records, {}, counts["articles"], size)


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.wikipedia", description=__doc__)
    tasks.build(WikipediaStage(options), options.output, options)
    if options.lost and manifest.is_finished(options.output):
        for name, number in manifest.read(options.output).extra["lost"].items():
            print(f"{number}\t{name}")


if __name__ == "__main__":
    from data import wikipedia  # a Dask worker can load a task of this module, not one of __main__

    cli.main(wikipedia.main)
