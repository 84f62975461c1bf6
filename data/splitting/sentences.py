"""Split text into sentences with Punkt, whose parameters are trained on the corpus by NLTK or read from a folder.

A folder of parameters has the four tab-separated files of NLTK's `punkt_tab/english`, without pickles. They are read
and written here, because NLTK's functions refuse folders outside its own and write sets in an order that changes from
run to run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

from nltk.tokenize.punkt import PunktParameters, PunktTrainer

from bert.errors import InputError
from data.splitting.punkt import Splitter

MAX_PARAGRAPH = 100_000  # characters given to Punkt at once
MAX_SENTENCE = 2_000  # characters, about 400 tokens; a training sequence is hardly longer
ABBREVIATIONS, COLLOCATIONS = "abbrev_types.txt", "collocations.tab"
STARTERS, ORTHOGRAPHY = "sent_starters.txt", "ortho_context.tab"

WORD = re.compile(r"\w+")
AFTER_STOP = re.compile(r"(\S{1,100})\.(?=[,;:)]|\s+(\w+))")  # a word with a full stop; the next word, or ""
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")  # control characters that are not white space
ALPHANUMERIC = re.compile(r"[^\W_]")  # a letter or a digit


def train(texts: Sequence[str]) -> PunktParameters:
    """Learn abbreviations, collocations and sentence starters from raw text (Kiss and Strunk 2006)."""
    trainer = PunktTrainer()
    for text in texts:
        trainer.train(text, finalize=False)
    parameters = trainer.get_params()
    parameters.abbrev_types -= _last_words(texts, parameters.abbrev_types)
    return parameters


def _last_words(texts: Sequence[str], abbreviations: Set[str]) -> set[str]:
    """Return learned "abbreviations" that are ordinary words seen only at the end of sentences, as in a small corpus.

    Such a word is never followed by punctuation, a lower-case letter or a digit, but often by a capitalised word that
    is lower-case elsewhere. The names after "Mr." are never lower-case.
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
    """Write the four files. They are sorted, so the same parameters give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    contexts = (f"{word}\t{flags}" for word, flags in parameters.ortho_context.items() if flags)
    _write(folder / ABBREVIATIONS, parameters.abbrev_types)
    _write(folder / COLLOCATIONS, map("\t".join, parameters.collocations))
    _write(folder / STARTERS, parameters.sent_starters)
    _write(folder / ORTHOGRAPHY, contexts)


def load(folder: Path) -> PunktParameters:
    """Read the four files. Raise InputError if one is missing or malformed."""
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
        raise InputError(f"{folder}: not Punkt parameters ({error}); give a folder like punkt_tab/english") from error
    return parameters


def split(punkt: Splitter, text: str) -> list[str]:
    """Return the sentences of a text whose lines are paragraphs.

    Sentences have single spaces, no control characters, and at least one letter or digit. Sentences longer than
    `MAX_SENTENCE` are cut between words, so that a very long line costs no more than other text.
    """
    result: list[str] = []
    for line in text.splitlines():
        if not line.isprintable():  # control characters and white space other than " " are not printable
            line = " ".join(CONTROL.sub("", line).split())
        elif "  " in line or line != line.strip():
            line = " ".join(line.split())
        for paragraph in cut(line, MAX_PARAGRAPH) if len(line) > MAX_PARAGRAPH else (line,):
            for sentence in punkt.sentences(paragraph):
                if len(sentence) > MAX_SENTENCE:
                    result += filter(ALPHANUMERIC.search, cut(sentence, MAX_SENTENCE))
                elif sentence[0].isalnum() or ALPHANUMERIC.search(sentence):
                    result.append(sentence)
    return result


def cut(text: str, limit: int) -> Iterator[str]:
    """Yield pieces of at most `limit` characters, cut at the last space, or inside a word longer than `limit`."""
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
