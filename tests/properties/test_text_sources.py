"""Damaged texts of every format: each is read or refused with one line, and what is read can be written and split."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from hypothesis import example, given
from nltk.tokenize.punkt import PunktParameters

from bert.core.errors import InputError
from data import books, text, wikipedia
from data.pipeline import document_files, duplicates, sources
from data.pipeline.drop_counts import DropCounts
from data.splitting import punkt, sentences
from tests.properties import mutations
from tests.properties.fuzz import fuzz

PROSE = 'Mr. Ash keeps 7 bees (or 8?) at "the mill". They fly far; caf\u00e9, \u6cb3\u6d41\u3002 \U0001f41d!\n\n'
GUTENBERG = (
    f"The Project Gutenberg EBook of Bees\n\n*** START OF THE PROJECT GUTENBERG EBOOK BEES ***\n\n"
    f"Produced by Jane Doe\nand others\n\n{PROSE * 3}\n*** END OF THE PROJECT GUTENBERG EBOOK BEES ***\nlicence\n"
)
BOOKS = [
    (mark + body).encode(encoding)
    for body in (GUTENBERG, PROSE, GUTENBERG.replace("\n", "\r\n"))
    for mark, encoding in (("", "utf-8"), ("\ufeff", "utf-16-le"), ("\ufeff", "utf-32-be"), ("", "utf-16-be"))
] + [GUTENBERG.encode("cp1252", "replace"), GUTENBERG.encode("latin-1", "replace")]
HARD = (  # what readers of text and JSON stumble on
    *(b"\0", b"\x1a", b"\x85", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\\ud800", b"\\u0000", b"\\udc00"),
    *(b"[", b"{", b'":', b"null", b"1e999", b"9" * 5000, b"&#" + b"9" * 5000 + b";", b"&#x110000;", b"NaN", b"true"),
    *(b"*** START OF THE PROJECT GUTENBERG EBOOK", b"*END*THE SMALL PRINT!", b"Produced by", b"\r", b" ", b"."),
    *(b"<doc id=", b"</doc>\n", b' title="', b'">'),
)
RECORDS = [{"id": "a", "text": PROSE}, {"text": PROSE * 2}, {"id": 7, "text": "\ud83d and \udc1d"}]
LINES = ["".join(json.dumps(record, ensure_ascii=True) + "\n" for record in RECORDS).encode()]
ARTICLE = {"id": "7", "url": "u", "title": "Ouse & \ud800", "text": f"Ouse\n\n{PROSE}&lt;br&gt; ( , ) &#233;"}
EXTRACTED = [
    (json.dumps(ARTICLE) + "\n").encode() * 2,
    f'<doc id="7" url="u" title="Ouse &amp; B">\nOuse\n\n{PROSE}\n</doc>\n'.encode() * 2,
]
SPLITTER = punkt.Splitter(PunktParameters())


def check(texts: list[str]) -> None:
    """Check that texts can be written, read, split and trained on."""
    for one in texts:
        assert sources.without_controls(one) == (one, 0)
        line = document_files.encode({"text": one})
        written = json.loads(line)["text"]
        assert "\n" not in line.decode()[:-1]
        duplicates.normalise(written).encode()
        for sentence in sentences.split(SPLITTER, written):
            assert sentence.isprintable() or not sentence.isascii()


def refused(path: Path, read: Callable[[Path], Iterator[str]], errors: type[Exception] = InputError) -> None:
    """Check the texts that `read` gives of a file, or that it raises one of `errors`, with a line of bounded length."""
    try:
        texts = list(read(path))
    except errors as error:
        assert len(str(error)) < 2000
    else:
        check(texts)


def written(content: bytes, name: str, read: Callable[[Path], Iterator[str]], errors: type[Exception]) -> None:
    with tempfile.TemporaryDirectory(prefix="texts") as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        refused(path, read, errors)


@fuzz
@given(mutations.damaged(BOOKS, HARD))
@example(b"")
@example(b"\xff\xfe\0\0")
@example(b"\xff\xfe")
def test_a_damaged_book_is_read_or_refused(content: bytes) -> None:
    written(content, "a.txt", lambda path: iter([books.read_book(path)[0]]), ValueError)
    written(content, "a.txt", texts_of, ValueError)


def texts_of(path: Path) -> Iterator[str]:
    for document in text.read_documents(path, "a", text.Options(source=path, output=path), Counter(), DropCounts()):
        document_files.encode({"id": document.id})
        yield document.text


@fuzz
@given(mutations.damaged(LINES, HARD))
@example(b'{"id": ' + b"9" * 5000 + b', "text": "a"}')
@example(b"[" * 100_000)
def test_damaged_lines_of_json_are_read_or_refused(content: bytes) -> None:
    written(content, "a.jsonl", texts_of, InputError)


def articles_of(path: Path) -> Iterator[str]:
    for article in wikipedia.extracted_articles([path]):
        document_files.encode({"id": article.id, "title": article.title})
        yield wikipedia.clean(article.title, article.text, headings=True)


@fuzz
@given(mutations.damaged(EXTRACTED, HARD))
@example(b'<doc id="7" title="' + b"&#" + b"9" * 5000 + b';">\n</doc>\n')
@example(b'{"id": ' + b"[" * 100_000)
@example(b'{"id": "7", "title": 5, "text": 5}')
def test_damaged_output_of_wikiextractor_is_read_or_refused(content: bytes) -> None:
    written(content, "wiki_00", articles_of, InputError)
