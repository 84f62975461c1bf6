"""Hostile text costs as much time as other text: four times as much of it takes about four times as long."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from nltk.tokenize.punkt import PunktParameters

from bert.core import files
from data import books, documents, text, wikipedia
from data.pipeline import duplicates, sources
from data.pipeline.drop_counts import DropCounts
from data.splitting import punkt, sentences
from data.wiki import dump, references, wikitext
from extensions.pubmed import abstract
from extensions.pubmed.reader import Reader
from squad import examples
from tests.pubmed_xml import record as record_of
from tests.pubmed_xml import xml

SIZE = 50_000  # characters; four times as many took 13 s with an expression of quadratic time
START = "*** START OF THE PROJECT GUTENBERG EBOOK A ***\n"

# A beginning, what is repeated up to the size, and an end.
HOSTILE = {
    "a line below the credit": (f"{START}Produced by Jane\n", "x", ""),
    "spaces below the credit": (f"{START}Produced by Jane\n", " ", "x"),
    "a credit without an end": (f"{START}Produced by Jane", " by", ""),
    "blank lines": (START, "\n", "x"),
    "starts in a line": ("", START.strip(), ""),
    "starts": ("", START, ""),
    "starts and ends": ("", f"{START}End of Project Gutenberg\n", ""),
    "a start that does not end": ("*** START OF THE PROJECT", " \n", ""),
    "ends that do not end": ("", "End of Project \n", ""),
    "small print": ("", "*END*THE SMALL PRINT!\n", ""),
    "stars": ("***START", "*", ""),
    "stars and spaces": ("*END", "* ", ""),
    "parentheses": ("", "(", ""),
    "parentheses with spaces": ("", "( ", ""),
    "parentheses with words": ("(", " or", ""),
    "a parenthesis left open": ("(", " ", ""),
    "tags left open": ("", "<a ", ""),
    "a tag left open": ("<a", " ", ""),
    "a title left open": ('<doc id="1"', ' title="', ""),
    "documents left open": ("", '<doc id="', ""),
    "commas": ("", ", ", ""),
    "a comma far from the next": (",", " ", "x"),
    "capitals": ("__", "A", ""),
    "markers left open": ("", "__AAA", ""),
    "references": ("", "&", ""),
    "references to nothing": ("", f"&{'a' * 32}", ""),
    "a number of many digits": ("&#", "9", ";"),
    "numbers of many digits": ("", f"&#{'9' * 5000};", ""),
    "records left open": ("", "<PubmedArticle>", ""),
    "numbers left open": ("", "<MedlineCitation><PMID ", ""),
    "brackets": ("", "[", ""),
    "templates that are not known": ("x", " {{a}}", ""),
    "templates in templates": ("", "{{small|", "}}"),
    "sentences behind a hole": ("\ufdef", "Ab. ", ""),
    "full stops behind a hole": ("\ufdef", ".", ")x"),
    "braces": ("", '{"a":', ""),
    "list markers": ("", " *\n", ""),
    "full stops": ("", ".", ""),
    "abbreviations": ("", "a.", ""),
    "abbreviations apart": ("", "a. ", ""),
    "full stops before parentheses": ("", "a.)", ""),
    "full stops and spaces": ("", ".) ", ""),
    "a full stop far from the next word": ("." * 100, " ", "x"),
    "numbers": ("", "1,-.", ""),
    "closing quotes": ("a.", "\"'", ""),
    "hyphens": ("", "-", ""),
    "words divided at line ends": ("a-b ", "a-\n", ""),
    "a long word": ("", "x", ""),
    "words of 198 letters": ("", f"{'x' * 198} ", ""),
    "accents on one letter": ("a", "\u0301\u0316", ""),
    "carriage returns": ("", "\r", ""),
    "other line ends": ("", "a\u2028", ""),
    "other digits": ("", "\u0660.,", ""),
    "templates left open": ("", "{{nowrap|", ""),
    "templates": ("{{nowrap|" * 2_000, "{{nbsp}}", "}}" * 2_000),
    "tables left open": ("", "{|\n|\n", ""),
    "links to files left open": ("", "[[File:a|", ""),
    "comments left open": ("", "<!--", ""),
    "elements left open": ("", "<ref><gallery>", ""),
    "items": ("", "* [[a]] is a word of some length.\n", ""),
    "nowiki left open": ("", "<nowiki>", ""),
    "a tag of one letter": ("<b =", " ", ""),
    "signs in a tag": ("<b ", "=", ""),
    "slashes": ("[", "/", ""),
    "external links left open": ("", "[//a ", ""),
    "links in a label": ("[//a ", "[[b]] ", ""),
    "links left open": ("", "[[a|", ""),
    "braces without a partner": ("", "{{a}", ""),
    "parameters left open": ("", "{{{a|", ""),
    "tables that are sentences": ("", "{|.\n", ""),
    "control characters": ("", "\u0001a", ""),
}
SPLITTER = punkt.Splitter(PunktParameters())
ATTEMPTS = 3  # other processes of a busy machine add processor time; what is quadratic fails each time


def questions(content: str) -> str:
    """Return a question set whose answer differs in one letter from much of its passage."""
    wrong = f"{content[0]}~{content[: len(content) // 2]}"
    answer = {"text": wrong, "answer_start": len(content)}
    qa = {"id": "1", "question": "Who?", "answers": [answer]}
    return json.dumps({"data": [{"paragraphs": [{"context": content, "qas": [qa]}]}]})


def read_file(reader: Callable[[Path], object], name: str, folder: Path) -> Callable[[str], object]:
    """Return a function that writes a text to a file and reads that; it may be refused."""

    def run(content: str) -> object:
        path = folder / name
        path.write_text(content, encoding="utf-8", newline="")
        try:
            return reader(path)
        except ValueError:
            return None

    return run


def readers(folder: Path) -> dict[str, Callable[[str], object]]:
    def dumped(path: Path) -> object:
        return list(dump.Reader(path).pages())

    def lines(path: Path) -> object:
        with files.open_text(path) as stream:
            return sum(1 for _ in files.read_lines(stream, path))

    def asked(path: Path) -> object:
        return [examples.spans(piece, impossible=True) for piece in examples.read_pieces(path, strict=False)]

    def page(content: str) -> object:
        return in_dump(f"<mediawiki>\n<page><title>{content}</title><id>1</id><ns>0</ns></page>\n</mediawiki>")

    def record(content: str) -> object:
        return in_json(json.dumps({"text": content}))

    def question(content: str) -> object:
        return in_questions(questions(content))

    def abstracts(path: Path) -> object:
        return [abstract.parse(one.content) for one in Reader(path).citations() if one.content]

    def citation(content: str) -> object:
        return in_pubmed(xml(record_of(1, f"<AbstractText>{content}</AbstractText>", title=f"[{content}")))

    in_pubmed = read_file(abstracts, "pubmed.xml", folder)
    in_dump = read_file(dumped, "dump.xml", folder)

    def read_text(path: Path) -> list[text.Document]:
        return list(text.read_documents(path, "a", text.Options(source=path, output=path), Counter(), DropCounts()))

    in_json = read_file(read_text, "a.jsonl", folder)
    in_questions = read_file(asked, "a.json", folder)
    return {
        "books": read_file(books.read_book, "a.txt", folder),
        "text": read_file(read_text, "b.txt", folder),
        "JSON lines": in_json,
        "a record": record,
        "a dump": in_dump,
        "a page": page,
        "PubMed": in_pubmed,
        "records of PubMed": lambda content: in_pubmed(xml(content)),
        "an abstract": citation,
        "output of wikiextractor": read_file(
            lambda path: list(wikipedia.extracted_articles([path])), "wiki_00", folder
        ),
        "a question set": in_questions,
        "a question": question,
        "lines": read_file(lines, "lines.txt", folder),
        "references": references.unescape,
        "wikitext": lambda content: wikitext.prepared(f"<text>{content}</text>".encode(), set(), "prose"),
        "clean": lambda content: wikipedia.clean("A", content, headings=True),
        "controls": sources.without_controls,
        "normalise": duplicates.normalise,
        "split": lambda content: sentences.split(SPLITTER, content),
        "train": lambda content: sentences.train([documents.ENDLESS.sub("", content)]),
    }


def made(kind: str, size: int) -> str:
    begin, repeated, end = HOSTILE[kind]
    return begin + repeated * (size // len(repeated)) + end


def seconds(run: Callable[[str], object], content: str) -> float:
    begin = time.process_time()
    run(content)
    return time.process_time() - begin


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.thorough
def test_four_times_the_text_takes_about_four_times_as_long(kind: str, tmp_path: Path) -> None:
    for name, run in readers(tmp_path).items():
        for _ in range(ATTEMPTS):
            once, four = (seconds(run, made(kind, size)) for size in (SIZE, 4 * SIZE))
            if four < 8 * once + 0.5:
                break
        assert four < 8 * once + 0.5, (
            f"{name}: {once:.2f} s for {SIZE:,} characters, {four:.2f} s for four times as many"
        )
