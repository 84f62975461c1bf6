"""Wikipedia to documents: an XML dump, or a folder that wikiextractor wrote, to parts of clean text.

    python -m data.wikipedia --source enwiki-latest-pages-articles.xml.bz2 --output workdir/corpus/wikipedia

A dump goes through wikiextractor, run as a program (see `data.dump`). Templates are not expanded: what they leave
behind ("()", ", ,") is removed here with the other remnants of markup. So are section headings, as for the original
BERT.
"""

import dataclasses
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

from bert import cli, files, manifest
from bert.errors import InputError, UsageError
from data import dump, parts, workers
from data.progress import Progress

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
class Options:
    """Flags of `python -m data.wikipedia`."""

    source: Path
    """XML dump (.xml, also .bz2 .gz .xz), or folder of wikiextractor output (wiki_00, ... as <doc> or --json)"""
    output: Path
    """folder to write"""
    workers: int = workers.available()
    """processes of wikiextractor"""
    stall_seconds: float = 600.0
    """give up when wikiextractor neither reads nor writes for so long"""

    def __post_init__(self) -> None:
        workers.check(self.workers)
        if not self.source.exists() and re.fullmatch(r"[a-z]{2,3}|simple", str(self.source)):
            raise UsageError(f"--source {self.source}: downloading is not there yet; give the path of a dump or folder")


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


def from_folder(folder: Path) -> Iterator[dump.Article]:
    """The articles in a tree of wikiextractor's files `wiki_*`, in the order of their paths.

    Raises InputError if there are none, or one is not of this format or cut.
    """
    found = sorted(path for path in folder.rglob("wiki_*") if path.is_file())
    if not found:
        raise InputError(f"{folder}: no wikiextractor output (wiki_00, ...) in it; give its -o folder, or a dump")
    for path in found:
        with files.open_text(path) as stream:
            first = stream.readline()
            if first.startswith("{"):
                yield from _from_json(path, first, stream)
            elif first:
                yield from _from_tags(path, first, stream)


def _from_json(path: Path, first: str, rest: Iterator[str]) -> Iterator[dump.Article]:
    number, line = 1, first
    while line:
        try:
            yield dump.article(line)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: line {number} is no article of wikiextractor --json; extract again") from error
        number, line = number + 1, next(rest, "")


def _from_tags(path: Path, first: str, rest: Iterator[str]) -> Iterator[dump.Article]:
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
        yield dump.Article(opening[1], html.unescape(opening[2]), "".join(body))
        while (line := next(rest, "")).isspace():
            pass


def make(options: Options, partial: Path) -> manifest.Made:
    """Writes the parts; counts pages by what became of them."""
    counts = {"articles": 0, "empty": 0}
    progress = Progress("wikipedia", "articles")
    if options.source.is_dir():
        articles = from_folder(options.source)
    else:
        articles = dump.extract(options.source, options.workers, options.stall_seconds, counts)
    with parts.Writer(partial) as writer:
        for article in articles:
            if text := clean(article.title, article.text):
                progress.add(1, writer.write({"id": f"wikipedia:{article.id}", "text": text}))
                counts["articles"] += 1
            else:
                counts["empty"] += 1
    if not counts["articles"]:
        raise InputError(f"{options.source}: no article with text in it ({json.dumps(counts)}); give another dump")
    progress.done(", ".join(f"{number:,} {key}" for key, number in counts.items() if key != "articles"))
    return manifest.Made(counts=counts, records=writer.records)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.wikipedia", description=__doc__)
    manifest.build(
        options.output,
        stage="wikipedia",
        parameters={},
        inputs=[options.source],
        make=lambda partial: make(options, partial),
    )


if __name__ == "__main__":
    cli.main(main)
