"""Generate a synthetic corpus: a Wikipedia dump, books, and SQuAD questions, in the formats of the real ones.

    python -m data.synthetic --output workdir/synthetic --seed 7

`make demo` and many tests use it. It can have any size. The facts are made by `data.synthetic.grammar`. The names in
dev.json occur in no other file, so its questions can only be answered by reading the passages. The same seed and sizes
give the same bytes.
"""

import bz2
import dataclasses
import functools
import hashlib
import textwrap
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated, Any, Protocol
from xml.sax.saxutils import escape

from bert.core import cli, ending, files, outputs, ranges
from bert.core.ranges import Range, Seed
from data.pipeline import tasks
from data.synthetic import grammar
from data.synthetic.grammar import Fact, Split

PARAGRAPHS = 6  # per article, and per chapter of a book
CHAPTERS = 4
SCENES = ((1, 3), (1, 4), (2, 2))  # (things, relations per thing) of the corpus; each fits a short training sample
PASSAGES = ((2, 2), (2, 3))  # the same for the passages with questions
TWIN = 0.15  # fraction of scenes with two things of the same kind
QUESTIONS = 4  # per passage
PASSAGES_PER_TITLE = 5
WRAP = 72  # columns of a book's lines

HEADER = """\
<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <sitename>Inventia</sitename>
    <dbname>inventiawiki</dbname>
    <base>https://inventia.example/wiki/Main_Page</base>
    <generator>data.synthetic</generator>
    <case>first-letter</case>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Talk</namespace>
      <namespace key="10" case="first-letter">Template</namespace>
      <namespace key="14" case="first-letter">Category</namespace>
    </namespaces>
  </siteinfo>
"""
PAGE = """\
  <page>
    <title>{title}</title>
    <ns>{namespace}</ns>
    <id>{id}</id>
{redirect}    <revision>
      <id>{revision}</id>
      <timestamp>2026-01-01T00:00:00Z</timestamp>
      <contributor>
        <username>Grammar</username>
        <id>1</id>
      </contributor>
      <model>wikitext</model>
      <format>text/x-wiki</format>
      <text bytes="{bytes}" xml:space="preserve">{text}</text>
    </revision>
  </page>
"""


Size = Annotated[int, Range(1, 100_000_000)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.synthetic`."""

    output: Path
    """folder to write"""
    seed: Seed = 7
    """seed of all random choices"""
    articles: Size = 1500
    """number of articles in wiki.xml.bz2, not counting redirects and pages of other namespaces"""
    books: Size = 100
    """number of files in books/"""
    train_questions: Size = 4000
    """number of questions in train.json"""
    dev_questions: Size = 500
    """number of questions in dev.json"""

    def __post_init__(self) -> None:
        ranges.check(self)


class Writable(Protocol):
    """A stream that text is written to."""

    def write(self, text: str, /) -> Any: ...


def write(folder: Path, options: Options) -> outputs.StageResult:
    """Write all files into `folder`. `options.output` is not used."""
    with bz2.open(folder / "wiki.xml.bz2", "wt", encoding="utf-8", newline="\n") as stream:
        pages = write_wiki(stream, Random(f"{options.seed} wiki"), options.articles)
    (folder / "books").mkdir()
    for number in range(1, options.books + 1):
        random = Random(f"{options.seed} book {number}")
        (folder / "books" / f"book-{number:05d}.txt").write_text(book(random, number), encoding="utf-8", newline="\n")
    splits: tuple[tuple[Split, int], ...] = (("train", options.train_questions), ("dev", options.dev_questions))
    for split, questions in splits:
        dataset = question_set(Random(f"{options.seed} {split}"), split, questions)
        files.write_json(folder / f"{split}.json", {"version": "1.1", "data": dataset})
    return outputs.StageResult(counts={**pages, **{name: getattr(options, name) for name in COUNTED}})


COUNTED = ("articles", "books", "train_questions", "dev_questions")


def write_wiki(stream: Writable, random: Random, articles: int) -> dict[str, int]:
    """Write a MediaWiki XML export, page by page. Return the numbers of pages that are not articles."""
    counts = {"redirects": 0, "other_pages": 0}
    page_id = 0

    def page(title: str, text: str, namespace: int = 0, redirect: str = "") -> None:
        nonlocal page_id
        page_id += 1
        target = f'    <redirect title="{redirect}" />\n' if redirect else ""
        fields = {"title": title, "namespace": namespace, "id": page_id, "revision": 1000 + page_id, "redirect": target}
        stream.write(PAGE.format(**fields, bytes=len(text.encode()), text=escape(text)))

    stream.write(HEADER)
    for kind in grammar.KINDS:
        page(f"Category:{kind.capitalize()}", f"Pages about {kind}.", namespace=14)
        page(f"Template:About {kind}", f"This page is about {kind}.", namespace=10)
        counts["other_pages"] += 2
    for number in range(1, articles + 1):
        title, text = article(random, number)
        page(title, text)
        if random.random() < 0.1:
            page(f"Article {number}", f"#REDIRECT [[{title}]]", redirect=title)
            counts["redirects"] += 1
        if random.random() < 0.05:
            page(f"Talk:{title}", f"Is ''{title}'' complete? [[User:Grammar|Grammar]]", namespace=1)
            counts["other_pages"] += 1
    stream.write("</mediawiki>\n")
    return counts


def article(random: Random, number: int) -> tuple[str, str]:
    """Return the title and the wikitext of an article. Each paragraph describes one scene."""
    paragraphs = []
    for _ in range(PARAGRAPHS):
        facts = grammar.scene(random, "train", *random.choice(SCENES), TWIN)
        paragraphs.append(_wikitext(random, facts, " ".join(grammar.paragraph(random, facts, asking=0.4))))
    kind = facts[0].relation.subject
    middle = len(paragraphs) // 2
    lead, rest = "\n\n".join(paragraphs[:middle]), "\n\n".join(paragraphs[middle:])
    text = f"{{{{About {kind}|page={number}}}}}\n{lead}\n\n== More ==\n{rest}\n\n[[Category:{kind.capitalize()}]]\n"
    return f"{facts[0].subject} ({kind} {number})", text


def _wikitext(random: Random, facts: list[Fact], text: str) -> str:
    """Add bold and link markup to the first mention of some names, and a reference at the end."""
    first, second = facts[0].subject, facts[-1].object
    text = text.replace(first, f"'''{first}'''", 1).replace(second, f"[[{second} (page)|{second}]]", 1)
    return text + f"<ref>Survey, page {random.randint(1, 999)}.</ref>"


def book(random: Random, number: int) -> str:
    """Return a hard-wrapped book. Its chapters have paragraphs in which many questions are asked and answered."""
    blocks = [f"The Book of Questions, Volume {number}"]
    for chapter in range(1, CHAPTERS + 1):
        blocks.append(f"Chapter {chapter}")
        for _ in range(PARAGRAPHS):
            facts = grammar.scene(random, "train", *random.choice(SCENES), TWIN)
            blocks.append(" ".join(grammar.paragraph(random, facts, asking=0.7)))
    return "\n\n".join(textwrap.fill(block, WRAP) for block in blocks) + "\n"


def question_set(random: Random, split: Split, questions: int) -> list[dict[str, Any]]:
    """Return the `data` field of a SQuAD v1.1 file: titles with passages with questions."""
    passages = list(_passages(random, split, questions))
    batches = range(0, len(passages), PASSAGES_PER_TITLE)
    return [
        {"title": f"Passages_{split}_{begin}", "paragraphs": passages[begin : begin + PASSAGES_PER_TITLE]}
        for begin in batches
    ]


def _passages(random: Random, split: Split, questions: int) -> Iterator[dict[str, Any]]:
    left = questions
    while left:
        context, pairs = passage(random, split)
        pairs = pairs[:left]
        left -= len(pairs)
        qas = []
        for question, answers in pairs:
            key = f"{split} {left} {question} {context}".encode()
            qas.append({"id": hashlib.sha256(key).hexdigest()[:24], "question": question, "answers": answers})
        yield {"context": context, "qas": qas}


def passage(random: Random, split: Split) -> tuple[str, list[tuple[str, list[dict[str, Any]]]]]:
    """Return a passage that states each fact of a scene once, and questions on some of the facts with gold answers.

    Every name belongs to one thing only, and two things of the same kind have the same relations. So each question has
    one right answer among several names of the same kind.
    """
    facts = grammar.scene(random, split, *random.choice(PASSAGES), TWIN)
    sentences = [fact.state(random) for fact in facts]
    context = " ".join(sentences)
    pairs = []
    for index in random.sample(range(len(facts)), min(QUESTIONS, len(facts))):
        question, kind, name = facts[index].ask(random)
        start = len(" ".join(sentences[:index])) + sentences[index].index(name)
        start += index > 0  # the space before the sentence
        golds = [{"answer_start": start, "text": name}]
        if split == "dev":  # as in SQuAD, dev questions have the answers of several annotators
            golds += [_with_article(context, start, kind, name)] * random.randint(0, 2)
        pairs.append((question, golds))
    return context, pairs


def _with_article(context: str, start: int, kind: str, name: str) -> dict[str, Any]:
    begin = start - len(grammar.ARTICLE.get(kind, ""))
    return {"answer_start": begin, "text": context[begin : start + len(name)]}


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.synthetic", description=__doc__)
    make = functools.partial(write, options=options)
    outputs.build(options.output, stage="synthetic", parameters=tasks.parameters(options), inputs=[], make=make)
    dump, articles = options.output / "wiki.xml.bz2", options.output.with_name("wikipedia")
    ending.print_next_command(
        options.output, "", "python", "-m", "data.wikipedia", "--source", dump, "--output", articles
    )


if __name__ == "__main__":
    cli.main(main)
