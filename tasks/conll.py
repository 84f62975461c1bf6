"""Read tagged sentences: a word in each line, its tag in another column, an empty line behind each sentence.

That is the format of CoNLL-2003 (four columns: word, part of speech, chunk, entity), of BioBERT's data sets (two
columns, with a tab), of GermEval 2014 (number, word, tag, inner tag) and of CoNLL-U (ten columns, with known names). A
line that begins with -DOCSTART- begins a document. Quotes have no meaning. Tags are given as they are in the file;
`tasks.entities` converts between their schemes.

Lines before the words of a sentence that begin with # are comments if they are of the form "# key = value", or have
another number of columns than the words; # can be a word. In .jsonl and .parquet, each row is a sentence with lists of
words and tags, as Hugging Face's `datasets` has them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from bert.core import files
from bert.core.errors import InputError
from tasks import tables
from tasks.examples import Skipped, TaggedSentence, writable

Separator = Literal["auto", "tab", "space"]

DOCUMENT = "-DOCSTART-"
BLANKS = " \t\r\n"  # around columns; other white space, as a no-break space, can be a word
MAX_WORDS = 100_000  # of a sentence, which is held in memory
FEW = 3  # words of a sentence that shows how words are written
LONG = 1_000  # words of what is hardly one sentence
CONLL_U = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
NAMES = re.compile(r"#\s*global\.columns\s*=\s*(.*)")  # of the columns, in CoNLL-U Plus
KEY = re.compile(r"#\s*[^\s=]+ = ")
WITHOUT_NUMBER = re.compile(
    r"[0-9]+[-.][0-9]+"
)  # of CoNLL-U: a word that is divided into the next ones, or an unseen one
LANGUAGE = re.compile(r"(?:simple|[a-z]{2,3}(?:-[a-z-]+)?):")  # before each word of WikiANN's own files
NUMBER = re.compile(r"-?[0-9]{1,9}")
TOKENS, TAGS = "tokens", "ner_tags"  # of rows, as in most data sets of `datasets`


class Line(NamedTuple):
    """The columns of a line, and its number in the file, from 1."""

    number: int
    fields: list[str]


class Columns(NamedTuple):
    """How many columns a file has, and which ones are read."""

    width: int
    word: int
    tag: int | None


class ReadOptions(NamedTuple):
    """Which columns are read, by number from 0, negative from the right, or by name; and how a file is read."""

    word: str | None = None
    """None: the first one or, of rows, `tokens`"""
    tag: str | None = None
    """None: the last one or, of rows, `ner_tags`"""
    separator: Separator = "auto"
    """"tab"; "space" for one or more spaces or tabs; "auto" is "tab" in the lines that have one"""
    tags: bool = True
    """False reads the words alone; the tags are None then"""
    names: tuple[str, ...] = ()
    """of the tags, where rows have their numbers"""


ALL = ReadOptions()


def read(path: Path, skipped: Skipped, options: ReadOptions = ALL) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file in order; long ones are not divided.

    The id is the number of the sentence in the file, from 0; in rows, the value of `id`. Names of columns come from the
    line "# global.columns = ...", from the file's first line, or from CoNLL-U.

    A sentence with a malformed line is left out and counted: every line needs a word, a tag if tags are read, and as
    many columns as the first line of the file. Raise InputError if the first line lacks a column, if the first column
    counts words and no column of words is given, or if more than `MAX_WORDS` lines follow without an empty line.
    """
    is_rows, is_looked_at = tables.kind_of(path) in (".jsonl", tables.PARQUET), True
    for sentence in (_rows if is_rows else _of_lines)(path, skipped, options):
        if is_looked_at and len(sentence.words) >= FEW:
            is_looked_at, begins = False, [match and match[0] for match in map(LANGUAGE.match, sentence.words)]
            if begins[0] and begins.count(begins[0]) == len(begins):
                skipped.doubt = (
                    f"{path}: every word of sentence {sentence.id} begins with {begins[0]!r}, as in WikiANN's own "
                    "files; this is read as part of the words: remove it"
                )
        yield sentence


def _of_lines(path: Path, skipped: Skipped, options: ReadOptions) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file of lines, as `read` does."""
    columns, is_checked, names = None, options.word is not None, list[str]()
    with files.open_text(path) as stream:
        sentences = _without_comments(_sentences(stream, path, options.separator), names)
        for number, (document, lines) in enumerate(sentences):
            if columns is None:
                columns, has_header = _columns(path, lines[0], options, names)
                lines = lines[has_header:]
            is_checked = is_checked or _check_words(path, lines)
            if columns.word and _counts(lines):
                lines = [line for line in lines if not WITHOUT_NUMBER.fullmatch(line.fields[0])]
            if fault := _fault(lines, columns):
                skipped.add(path, *fault)
                continue
            if len(lines) > LONG and not skipped.doubt:
                where, many = f"{path}: line {lines[0].number}", f"a sentence of {len(lines):,} words"
                skipped.doubt = f"{where}: {many}; if these are several, put an empty line behind each"
            if lines:
                yield TaggedSentence(
                    id=str(number),
                    words=tuple(line.fields[columns.word] for line in lines),
                    tags=None if columns.tag is None else tuple(line.fields[columns.tag] for line in lines),
                    document=document,
                )


def _rows(path: Path, skipped: Skipped, options: ReadOptions) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file of rows."""
    word, tag = (
        default if key is None or NUMBER.fullmatch(key) else key  # numbers are for lines
        for key, default in ((options.word, TOKENS), (options.tag, TAGS))
    )
    for number, (line, row) in enumerate(tables.rows(path, [word, *([tag] if options.tags else [])])):
        if row is None:
            skipped.add(path, line, "not as many columns as the first line")
            continue
        words, tags = row[word], row[tag] if options.tags else None
        if options.tags and isinstance(tags, list) and any(type(one) is int for one in tags) and not options.names:
            raise InputError(f"{path}: line {line}: {tag} are numbers; name them in order by --data.tag_names")
        try:
            tags_read = None if tags is None else tuple(_names(tags, options.names, tag))
            yield TaggedSentence(
                id=tables.identity(row, number), words=tuple(_words(words, word, tags_read)), tags=tags_read
            )
        except ValueError as error:
            skipped.add(path, line, str(error))


def _words(words: Any, column: str, tags: Sequence[str] | None) -> list[str]:
    """Return the words of a row. Raise ValueError if they are malformed."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"{column} is not a list of words")
    if tags is not None and len(tags) != len(words):
        raise ValueError(f"{len(words)} words, but {len(tags)} tags")
    return [writable(word, column) for word in words]


def _names(tags: Any, names: Sequence[str], column: str) -> Iterator[str]:
    """Yield the names of the tags of a row. Raise ValueError if they are malformed."""
    if not isinstance(tags, list):
        raise ValueError(f"{column} is not a list of tags")
    for tag in tags:
        if type(tag) is int and 0 <= tag < len(names):
            yield names[tag]
        elif isinstance(tag, str) and tag:
            yield writable(tag, column)
        else:
            raise ValueError(f"{column} has {str(tag)[:20]!a}, which is no name and no number of one")


def _sentences(stream: IO[str], path: Path, separator: Separator) -> Iterator[tuple[int, list[Line]]]:
    """Yield the lines of each sentence, with the number of its document, from 0."""
    document, is_begun = 0, False  # is_begun: the document has a line
    lines: list[Line] = []
    for number, text in enumerate(files.read_lines(stream, path), 1):
        fields = _split(text, separator)
        if fields and fields[0] != DOCUMENT:
            lines.append(Line(number, fields))
            is_begun = True
            if len(lines) > MAX_WORDS:
                raise InputError(
                    f"{path}: line {number}: a sentence of more than {MAX_WORDS:,} words; put an empty line behind each"
                )
            continue
        if lines:
            yield document, lines
            lines = []
        if fields:
            document, is_begun = document + is_begun, True
    if lines:  # the file has no empty line at its end
        yield document, lines


def _without_comments(
    sentences: Iterable[tuple[int, list[Line]]], names: list[str]
) -> Iterator[tuple[int, list[Line]]]:
    """Yield sentences without the comments before them. Write names of columns in a comment into `names`."""
    count, waiting = 0, list[tuple[int, list[Line]]]()  # sentences of nothing but # at the beginning of the file
    for sentence in sentences:
        waiting.append(sentence)
        other = next((line for line in sentence[1] if not line.fields[0].startswith("#")), None)
        count = count or (len(other.fields) if other else 0)
        if not count and sum(len(lines) for _, lines in waiting) <= MAX_WORDS:
            continue
        yield from _uncommented(waiting, count, names)
        waiting = []
    yield from _uncommented(waiting, count, names)


def _uncommented(
    sentences: Iterable[tuple[int, list[Line]]], count: int, names: list[str]
) -> Iterator[tuple[int, list[Line]]]:
    for document, lines in sentences:
        words = next((n for n, line in enumerate(lines) if not _is_comment(line, count)), len(lines))
        for line in lines[:words]:
            if match := NAMES.match(" ".join(line.fields)):
                names[:] = match[1].split()
        if words < len(lines):
            yield document, lines[words:]


def _is_comment(line: Line, count: int) -> bool:
    """Return whether a line before the first word of a sentence is a comment. count: columns of the words."""
    if not line.fields[0].startswith("#"):
        return False
    return (count > 0 and len(line.fields) != count) or KEY.match(" ".join(line.fields[:4])) is not None


def _counts(lines: Sequence[Line]) -> bool:
    """Return whether the first column of a sentence counts its lines, from 0 or 1, as in CoNLL-U."""
    numbers = [line.fields[0] for line in lines if not WITHOUT_NUMBER.fullmatch(line.fields[0])]
    return bool(numbers) and any(numbers == [str(n + begin) for n in range(len(numbers))] for begin in (0, 1))


def _check_words(path: Path, lines: Sequence[Line]) -> bool:
    """Raise InputError if the first column counts the words. Return whether the sentence is long enough to tell."""
    if len(lines) > 1 and _counts(lines):
        raise InputError(
            f"{path}: line {lines[0].number}: the first column counts the words; give the columns of the word and of "
            "its tag by --data.word and --data.tag, from 0"
        )
    return len(lines) > 1


def _split(text: str, separator: Separator) -> list[str]:
    """Return the columns of a line; none if it has only spaces and tabs."""
    text = text.rstrip(BLANKS)
    if separator == "tab" or (separator == "auto" and "\t" in text):
        return [field.strip(BLANKS) for field in text.split("\t")] if text else []
    return [field for field in text.replace("\t", " ").split(" ") if field]


def _columns(path: Path, line: Line, options: ReadOptions, names: Sequence[str]) -> tuple[Columns, bool]:
    """Return the columns of a file, and whether its first line has their names. names: from a comment.

    Raise InputError if there is no column of the word or of the tag, or if both are the same column.
    """
    count = len(line.fields)
    keys = [options.word or "0", (options.tag or "-1") if options.tags else None]
    named = [key for key in keys if key is not None and not NUMBER.fullmatch(key)]
    has_header = False
    if named and not names:
        has_header = all(key in line.fields for key in named)
        names = line.fields if has_header else CONLL_U if count == len(CONLL_U) else ()
    places: list[int | None] = [None if key is None else _place(key, names, count) for key in keys]
    word, tag = places
    for what, key, place, other in (("word", keys[0], word, None), ("tag", keys[1], tag, word)):
        if key is not None and (place is None or place == other):
            raise InputError(
                f"{path}: line {line.number}: {count} columns, and no {what} in column {key}; check the column and the "
                "separator, or read the file without tags"
            )
    assert word is not None, "it is one of the columns that are looked for"
    return Columns(count, word, tag), has_header


def _place(key: str, names: Sequence[str], count: int) -> int | None:
    """Return the number of a column from 0; None if there is none."""
    if not NUMBER.fullmatch(key):
        return names.index(key) if key in names and names.index(key) < count else None
    number = int(key)
    return number % count if -count <= number < count else None


def _fault(lines: Sequence[Line], columns: Columns) -> tuple[int, str] | None:
    """Return the number of the first malformed line and what is wrong with it, in words; None if there is none."""
    for number, fields in lines:
        if len(fields) != columns.width:
            return number, f"{len(fields)} columns, not {columns.width} as in the file's first line"
        if not fields[columns.word]:
            return number, "no word"
        if columns.tag is not None and not fields[columns.tag]:
            return number, "no tag"
    return None
