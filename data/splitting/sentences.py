"""Text to sentences with Punkt, whose parameters NLTK learns from the corpus itself, or which are read from a folder.

A folder of parameters has NLTK's own four tab-separated files (as `punkt_tab/english`), without pickles. They are
read and written here, because NLTK's functions refuse folders outside its own and write sets in an order that changes
from run to run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

from nltk.tokenize.punkt import PunktParameters, PunktTrainer

from bert.errors import InputError
from data.splitting.punkt import Splitter

MAX_PARAGRAPH = 100_000  # characters given to Punkt at once
MAX_SENTENCE = 2_000  # characters, some 400 tokens: no training sequence holds more
ABBREVIATIONS, COLLOCATIONS = "abbrev_types.txt", "collocations.tab"
STARTERS, ORTHOGRAPHY = "sent_starters.txt", "ortho_context.tab"

WORD = re.compile(r"\w+")
AFTER_STOP = re.compile(r"(\S{1,100})\.(?=[,;:)]|\s+(\w+))")  # a word with a stop; the next word, empty for punctuation
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")  # all but those that are white space
SAID = re.compile(r"[^\W_]")  # a letter or a digit


def train(texts: Sequence[str]) -> PunktParameters:
    """Learns abbreviations, collocations and sentence starters from raw text (Kiss and Strunk 2006)."""
    trainer = PunktTrainer()
    for text in texts:
        trainer.train(text, finalize=False)
    parameters = trainer.get_params()
    parameters.abbrev_types -= _last_words(texts, parameters.abbrev_types)
    return parameters


def _last_words(texts: Sequence[str], abbreviations: Set[str]) -> set[str]:
    """Learned abbreviations that are words, only ever seen at the end of a sentence, as happens in a small corpus.

    Such a word is never followed by punctuation, a small letter or a digit, but often by a capitalised word that is
    written small elsewhere, as the names after "Mr." are not.
    """
    small = {word for text in texts for word in WORD.findall(text) if word.islower()}
    seen, before_start, inside = Counter[str](), Counter[str](), Counter[str]()
    for text in texts:
        for word, following in AFTER_STOP.findall(text):
            word = word.lower().lstrip("([\"'")
            seen[word] += 1
            before_start[word] += following[:1].isupper() and len(following) > 1 and following.lower() in small
            inside[word] += not following[:1].isupper()
    return {a for a in abbreviations if "." not in a and not inside[a] and before_start[a] > seen[a] / 4}


def save(parameters: PunktParameters, folder: Path) -> None:
    """Writes the four files, sorted: the same parameters give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    contexts = (f"{word}\t{flags}" for word, flags in parameters.ortho_context.items() if flags)
    _write(folder / ABBREVIATIONS, parameters.abbrev_types)
    _write(folder / COLLOCATIONS, map("\t".join, parameters.collocations))
    _write(folder / STARTERS, parameters.sent_starters)
    _write(folder / ORTHOGRAPHY, contexts)


def load(folder: Path) -> PunktParameters:
    """Reads the four files. Raises InputError if one is missing or malformed."""
    parameters = PunktParameters()
    try:
        parameters.abbrev_types = set(_lines(folder / ABBREVIATIONS))
        parameters.sent_starters = set(_lines(folder / STARTERS))
        parameters.collocations = {(first, second) for first, second in _rows(folder / COLLOCATIONS)}
        for word, flags in _rows(folder / ORTHOGRAPHY):
            parameters.ortho_context[word] = int(flags)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}; give a folder of Punkt parameters") from error
    except ValueError as error:
        raise InputError(f"{folder}: not Punkt parameters ({error}); give a folder as punkt_tab/english") from error
    return parameters


def split(punkt: Splitter, text: str) -> list[str]:
    """The sentences of a text whose lines are paragraphs: single spaces, no control characters, a letter or digit.

    What Punkt leaves longer than `MAX_SENTENCE` is cut between words, so that one endless line costs no more than
    other text.
    """
    found: list[str] = []
    for line in text.splitlines():
        if not line.isprintable():  # no control character is printable, nor any white space but " "
            line = " ".join(CONTROL.sub("", line).split())
        elif "  " in line or line != line.strip():
            line = " ".join(line.split())
        for paragraph in cut(line, MAX_PARAGRAPH) if len(line) > MAX_PARAGRAPH else (line,):
            for sentence in punkt.sentences(paragraph):
                if len(sentence) > MAX_SENTENCE:
                    found += filter(SAID.search, cut(sentence, MAX_SENTENCE))
                elif sentence[0].isalnum() or SAID.search(sentence):
                    found.append(sentence)
    return found


def cut(text: str, limit: int) -> Iterator[str]:
    """Pieces of at most `limit` characters, cut at the last space before it, or inside a word that is longer itself."""
    start = 0
    while len(text) - start > limit:
        space = text.rfind(" ", start + 1, start + limit + 1)
        end = space if space > 0 else start + limit
        yield text[start:end]
        start = end + (space > 0)
    yield text[start:]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(line + "\n" for line in sorted(lines)).encode("utf-8", "replace"))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


def _rows(path: Path) -> Iterator[list[str]]:
    return (line.split("\t") for line in _lines(path))
