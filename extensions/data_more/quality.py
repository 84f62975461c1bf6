"""Published rules that drop documents of low quality, by their names: gopher and c4. They are for English.

- gopher: the quality filter of Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from Training
  Gopher", appendix A.1.1. Its filter of repetitions (table A1) is not here.
- c4: section 2.2 of Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
  Transformer", in the version of the JMLR. Its list of bad words, its detection of the language and its repeated spans
  of three sentences are not here.

The papers do not say what a word is; here it is what white space separates. A line is a line of the text, which is a
paragraph where data.books or data.text has joined lines.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from bert.core.errors import InputError
from data.documents import Filter

NAMES = ("gopher", "c4")

STOP_WORDS = frozenset(("the", "be", "to", "of", "and", "that", "have", "with"))
FEWEST_WORDS, MOST_WORDS = 50, 100_000
BULLETS = ("\u2022", "\u2023", "\u25e6", "\u25aa", "\u25cf", "-", "*")
ELLIPSES = ("...", "\u2026")

TERMINAL = (".", "!", "?", '"', "\u201d")
CITATIONS = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
FEWEST_SENTENCES, FEWEST_WORDS_OF_LINE = 3, 5
FEW_SENTENCES = "c4: fewer than three sentences"

MOSTLY = 0.5  # nearly all English documents of fifty words have two stop words


class Judged(NamedTuple):
    """What the rules leave of a text."""

    text: str
    reason: str  # why the whole document is dropped, or ""
    lines: Counter[str]  # characters that were taken out, by reason


def judge(text: str, names: Iterable[str]) -> Judged:
    """Apply the named rules: first gopher's to the unchanged text, then c4's if gopher's keep it."""
    reason = gopher(text) if "gopher" in names else ""
    return c4(text) if "c4" in names and not reason else Judged(text, reason, Counter())


def judge_sentences(number: int, names: Iterable[str]) -> str:
    """Return why the named rules drop a text with this number of sentences, or ""."""
    return FEW_SENTENCES if "c4" in names and number < FEWEST_SENTENCES else ""


def gopher(text: str) -> str:
    """Return the first rule that drops a text, or ""."""
    words = text.split()
    lines = [stripped for line in text.split("\n") if (stripped := line.strip())]
    if not FEWEST_WORDS <= len(words) <= MOST_WORDS:
        return "gopher: not from 50 to 100,000 words"
    rules = {
        "gopher: mean length of words not from 3 to 10": not 3 <= sum(map(len, words)) / len(words) <= 10,
        "gopher: more than 0.1 # for each word": text.count("#") / len(words) > 0.1,
        "gopher: more than 0.1 ellipses for each word": sum(map(text.count, ELLIPSES)) / len(words) > 0.1,
        "gopher: more than 90 % of lines begin with a bullet": _share(lines, str.startswith, BULLETS) > 0.9,
        "gopher: more than 30 % of lines end with an ellipsis": _share(lines, str.endswith, ELLIPSES) > 0.3,
        "gopher: fewer than 80 % of words have a letter": sum(any(map(str.isalpha, word)) for word in words)
        < 0.8 * len(words),
        "gopher: fewer than two stop words": not has_stop_words(words),
    }
    return next((rule for rule, drops in rules.items() if drops), "")


def _share(lines: list[str], matches: object, marks: tuple[str, ...]) -> float:
    return sum(matches(line, marks) for line in lines) / len(lines)  # type: ignore[operator]


def has_stop_words(words: Iterable[str]) -> bool:
    """Return whether two different stop words are among the words, whatever their case and the marks around them."""
    return len(STOP_WORDS & {word.strip(".,;:!?\"'()[]\u2018\u2019\u201c\u201d").lower() for word in words}) >= 2


def c4(text: str) -> Judged:
    """Return the lines that the rules keep, without citation markers, or why the whole text is dropped.

    The number of sentences is known only when the text is split: `judge_sentences`.
    """
    lower, gone = text.lower(), Counter[str]()
    if "lorem ipsum" in lower:
        return Judged("", "c4: lorem ipsum", gone)
    if "{" in text:
        return Judged("", "c4: a curly bracket", gone)
    lines = []
    for line in text.split("\n"):
        cleaned = CITATIONS.sub("", line).strip()
        if cleaned and (rule := _drops_line(cleaned)):
            gone[rule] += len(line)
        elif cleaned:
            gone["c4: citation markers"] += sum(map(len, CITATIONS.findall(line)))
            lines.append(cleaned)
    return Judged("\n".join(lines), "" if lines else "c4: no line is left", gone)


def _drops_line(line: str) -> str:
    lower = line.lower()
    if not line.endswith(TERMINAL):
        return "c4: lines without terminal punctuation"
    if len(line.split()) < FEWEST_WORDS_OF_LINE:
        return "c4: lines of fewer than five words"
    if "javascript" in lower:
        return "c4: lines with javascript"
    return "c4: lines about policies" if any(policy in lower for policy in POLICIES) else ""


def check_language(texts: Iterable[str], where: object) -> None:
    """Raise InputError if most of the documents are not English, by their stop words."""
    judgements = [(len(words := text.split()) >= FEWEST_WORDS, has_stop_words(words)) for text in texts]
    judged = [has for is_long, has in judgements if is_long] or [has for _, has in judgements]
    if judged and (share := sum(judged) / len(judged)) < MOSTLY:
        raise InputError(
            f"{where}: {share:.0%} of the documents have two of the words {', '.join(sorted(STOP_WORDS))}, so most are "
            "not English, for which the rules of --filter are; leave it out, or give English text"
        )


FILTER = Filter(NAMES, judge, judge_sentences, check_language)
