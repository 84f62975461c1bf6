"""Split text into sentences with Punkt, whose parameters are trained on the corpus by NLTK or read from a folder.

A folder of parameters has the four tab-separated files of NLTK's `punkt_tab/english`, without pickles. They are read
and written here, because NLTK's functions refuse folders outside its own and write sets in an order that changes from
run to run.
"""

import csv
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bert.core.errors import InputError
from data.splitting.punkt import Splitter

if TYPE_CHECKING:  # it takes a while to load
    from nltk.tokenize.punkt import PunktParameters

MAX_PARAGRAPH = 100_000  # characters given to Punkt at once
MAX_SENTENCE = 2_000  # characters, about 400 tokens; a training sequence is hardly longer
ABBREVIATIONS, COLLOCATIONS = "abbrev_types.txt", "collocations.tab"
STARTERS, ORTHOGRAPHY = "sent_starters.txt", "ortho_context.tab"

WORD = re.compile(r"\w+")
STOP = re.compile(r"(\S{1,100})\.(?=\s|\Z)")
LEAST_STOPS, MOST_ENDS = 20, 0.05  # of an abbreviation in a script without capitals: its full stops, at line ends
LEAST_ENDS = (
    0.15  # share of all full stops; articles in Arabic, Hebrew, Korean and Persian have 22 to 48 %, in Thai 7 %
)
LAST = re.compile(r"(\S{1,100})\.(?=\n|\Z)")  # a word with the full stop of a paragraph
AFTER_STOP = re.compile(r"(\S{1,100})\.(?=[,;:)]|\s+(\w+))")  # a word with a full stop; the next word, or ""
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufeff]")  # control characters that are not white space
# Unicode's Sentence_Terminal, without the ASCII ones, which Punkt decides on: first and last of each range.
TERMINAL = (
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d-\u083e\u0964-\u0965\u104a-\u104b\u1362"
    "\u1367-\u1368\u166e\u1735-\u1736\u17d4-\u17d5\u1803\u1809\u1944-\u1945\u1aa8-\u1aab\u1b5a-\u1b5b"
    "\u1b5e-\u1b5f\u1b7d-\u1b7e\u1c3b-\u1c3c\u1c7e-\u1c7f\u203c-\u203d\u2047-\u2049\u2e2e\u2e3c\u2e53-\u2e54"
    "\u3002\ua4ff\ua60e-\ua60f\ua6f3\ua6f7\ua876-\ua877\ua8ce-\ua8cf\ua92f\ua9c8-\ua9c9\uaa5d-\uaa5f"
    "\uaaf0-\uaaf1\uabeb\ufe52\ufe56-\ufe57\uff01\uff0e\uff1f\uff61"
)
GREEK = "\u0370-\u03ff\u1f00-\u1fff"  # whose question mark is a semicolon, in the composed form as well
CLOSING = "\"')\\]\u2019\u201d\xbb\u203a\u3009\u300b\u300d\u300f\u3011\u3015\uff02\uff09\uff3d\uff63"
DIGITS = "0-9\uff10-\uff19"  # a full-width full stop between two of them is a decimal point
END = re.compile(
    rf"(?:(?!(?<=[{DIGITS}])\uff0e[{DIGITS}])[{TERMINAL}][!?.{TERMINAL}]*|(?<=[{GREEK}]);(?= |\Z))([{CLOSING}]*)"
)
SENTENCE_END = re.compile(rf"[.!?\u2026{TERMINAL}][{CLOSING}]*$")  # at the end of a line, in any script
# Opening and closing brackets and quotation marks around which, in Chinese and Japanese, a sentence may go on.
BRACKETS = {
    **{"\u300c": "\u300d", "\u300e": "\u300f", "\uff62": "\uff63", "\u201c": "\u201d"},  # quotations
    **{"\uff08": "\uff09", "(": ")", "\u3010": "\u3011", "\u3014": "\u3015"},
    **{"\u300a": "\u300b", "\u3008": "\u3009"},
}
BRACKET = re.compile(f"[{re.escape(''.join(BRACKETS) + ''.join(BRACKETS.values()))}]")
ASIDES, TITLES = frozenset("\uff08(\u3010\u3014"), frozenset("\u300a\u3008")
MAX_QUOTATION = 200  # characters; a longer one is divided although the sentence goes on behind it
# Behind a closing quotation mark a sentence goes on with a comma, with another end, or with one of these words.
CONTINUATIONS = Path(__file__).with_name("continuations.csv")
GOES_ON = ",.!?;:\u2025\u2026\u2014\u2015\u3001\u30fb\uff0c\uff1a\uff1b\uff5e\u301c"
# What "word" in the table stands for: an ideograph, katakana, a digit, a letter, or what opens a bracket.
WORD_BEGIN = "\u3005\u3400-\u9fff\u30a1-\u30fa0-9A-Za-z\uff10-\uff19\u300c\u300e\uff08"
PARTICLE = re.compile("[\"'\u2019\u201d\u300b\u300d\u300f)\\]]+(?=[\uac00-\ud7a3])")
WITH_PARTICLE = re.compile(rf"[.?!]{PARTICLE.pattern}")
CLAUSE_ENDS = ",;:\u2014\u060c\u061b\u3001\uff0c\uff1a\uff1b"
ALPHANUMERIC = re.compile(r"[^\W_]")  # a letter or a digit


def train(texts: Sequence[str]) -> "PunktParameters":
    """Learn abbreviations, collocations and sentence starters from raw text (Kiss and Strunk 2006)."""
    from nltk.tokenize.punkt import PunktTrainer

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

    Punkt takes a short word for an abbreviation if it nearly always has a full stop, as verbs of Korean and Persian
    have. Without capitals it then finds no sentence end behind the word. So in scripts without capitals an abbreviation
    must be frequent and seldom end a paragraph, if full stops usually end one.
    """
    uncased = {a for a in abbreviations if "." not in a and _without_capitals(a)}
    stops, ends = Counter[str](), Counter[str]()
    for text in texts if uncased else ():
        stops.update(filter(_without_capitals, STOP.findall(text)))
        ends.update(filter(_without_capitals, LAST.findall(text)))
    usual = ends.total() > LEAST_ENDS * stops.total()  # that full stops end sentences; in Thai they shorten words
    rare = {a for a in uncased if (usual if stops[a] < LEAST_STOPS else ends[a] > MOST_ENDS * stops[a])}
    small = {word for text in texts for word in WORD.findall(text) if word.islower()}
    seen, before_start, inside = Counter[str](), Counter[str](), Counter[str]()
    for text in texts:
        for word, following in AFTER_STOP.findall(text):
            word = word.lower().lstrip("([\"'")
            seen[word] += 1
            before_start[word] += following[:1].isupper() and len(following) > 1 and following.lower() in small
            inside[word] += not following[:1].isupper()
    return rare | {a for a in abbreviations if "." not in a and not inside[a] and before_start[a] > seen[a] / 4}


def _without_capitals(word: str) -> bool:
    return not word.isascii() and word.upper() == word.lower()


def save(parameters: "PunktParameters", folder: Path) -> None:
    """Write the four files. They are sorted, so the same parameters give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    contexts = (f"{word}\t{flags}" for word, flags in parameters.ortho_context.items() if flags)
    _write(folder / ABBREVIATIONS, parameters.abbrev_types)
    _write(folder / COLLOCATIONS, map("\t".join, parameters.collocations))
    _write(folder / STARTERS, parameters.sent_starters)
    _write(folder / ORTHOGRAPHY, contexts)


def load(folder: Path) -> "PunktParameters":
    """Read the four files. Raise InputError if one is missing or malformed."""
    from nltk.tokenize.punkt import PunktParameters

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
            for sentence in _sentences(punkt, paragraph):
                if len(sentence) > MAX_SENTENCE:
                    result += filter(ALPHANUMERIC.search, cut(sentence, MAX_SENTENCE))
                elif sentence[0].isalnum() or ALPHANUMERIC.search(sentence):
                    result.append(sentence)
    return result


def _sentences(punkt: Splitter, paragraph: str) -> Iterable[str]:
    if paragraph.isascii():
        return punkt.sentences(paragraph)
    found = chain.from_iterable(map(punkt.sentences, parts(paragraph)))
    return _rejoined(paragraph, found) if WITH_PARTICLE.search(paragraph) else found


def _rejoined(paragraph: str, found: Iterable[str]) -> list[str]:
    """Join each sentence that begins with a closing mark and a Korean particle to the sentence before it.

    A particle follows its quotation without a space. Punkt ends a sentence before the mark.
    """
    result, place = list[str](), 0
    for sentence in found:
        is_spaced = paragraph[place : place + 1] == " "
        if result and not is_spaced and PARTICLE.match(sentence):
            result[-1] += sentence
        else:
            result.append(sentence)
        place += is_spaced + len(sentence)
    return result


def cut(text: str, limit: int) -> Iterator[str]:
    """Yield pieces of at most `limit` characters.

    A cut is at the last space, else behind the last end of a clause, else inside a word longer than `limit`.
    """
    start = 0
    while len(text) - start > limit:
        space = text.rfind(" ", start + 1, start + limit + 1)
        clause = max(text.rfind(mark, start + 1, start + limit) for mark in CLAUSE_ENDS) + 1
        end = space if space > 0 else clause if clause > 0 else start + limit
        yield text[start:end]
        start = end + (space > 0)
    yield text[start:]


def parts(paragraph: str) -> Iterator[str]:
    """Yield the parts of a paragraph that end with a mark which ends sentences in other scripts than Latin.

    Those marks need no space behind them, and stand behind no abbreviation.
    """
    if paragraph.isascii():
        yield paragraph
        return
    start, pairs, number = 0, None, 0
    for match in END.finditer(paragraph):
        if pairs is None:
            pairs = _pairs(paragraph)
        while number < len(pairs) and pairs[number][1] < match.start():
            number += 1
        is_within = number < len(pairs) and pairs[number][0] < match.start()
        if (is_within or match[1]) and _continues(paragraph, match, pairs[number] if is_within else None, start):
            continue
        yield paragraph[start : match.end()]
        start = match.end() + (paragraph[match.end() : match.end() + 1] == " ")
    if start < len(paragraph) or not start:
        yield paragraph[start:]


def _continues(paragraph: str, end: re.Match[str], pair: tuple[int, int] | None, start: int) -> bool:
    """Return whether the sentence that begins at `start` goes on behind a mark.

    pair: the outermost brackets around the mark. In Japanese and Chinese a sentence goes on behind a quotation with a
    particle or a comma. What stands within a sentence, such as a title with a mark, does not end it.
    """
    if not pair:
        return bool(end[1]) and _continued().match(paragraph, end.end()) is not None
    begin, close = pair
    if end.end() <= close:  # within the brackets
        is_part = close - begin <= MAX_QUOTATION and (
            begin > start or _continued().match(paragraph, close + 1) is not None
        )
        return is_part or (bool(end[1]) and _continued().match(paragraph, end.end()) is not None)
    if paragraph[begin] in TITLES or (begin > start and paragraph[begin] in ASIDES):
        return close - begin <= MAX_QUOTATION
    return _continued().match(paragraph, end.end()) is not None


@functools.cache
def _continued() -> re.Pattern[str]:
    """Return the pattern of what continues a sentence behind a quotation."""

    def pattern(row: dict[str, str]) -> str:
        wanted = row["only before"].replace("word", WORD_BEGIN).replace(" ", "")
        unwanted = "|".join(row["not before"].split())
        return row["word"] + (f"(?!{unwanted})" if unwanted else "") + (f"(?=[{wanted}])" if wanted else "")

    with open(CONTINUATIONS, encoding="utf-8", newline="") as stream:
        return re.compile(" ?(?:" + "|".join([f"[{GOES_ON}{TERMINAL}]", *map(pattern, csv.DictReader(stream))]) + ")")


def _pairs(paragraph: str) -> list[tuple[int, int]]:
    """Return where the outermost pairs of brackets and quotation marks of Chinese and Japanese begin and end."""
    opened, result = list[int](), list[tuple[int, int]]()
    for mark in BRACKET.finditer(paragraph):
        if mark[0] in BRACKETS:
            opened.append(mark.start())
            continue
        if depth := next((n for n in (1, 2, 3) if n <= len(opened) and BRACKETS[paragraph[opened[-n]]] == mark[0]), 0):
            begin = opened[-depth]
            del opened[-depth:]  # those that nothing closes, too
            while result and result[-1][0] > begin:
                result.pop()
            result.append((begin, mark.start()))
    return result


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(line + "\n" for line in sorted(lines)).encode("utf-8", "replace"))


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


def _rows(path: Path) -> Iterator[list[str]]:
    return (line.split("\t") for line in _lines(path))
