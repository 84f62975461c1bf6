"""Read RACE: passages with questions of four answers, one JSON object in each file (Lai et al. 2017).

The files are FOLDER/{train,dev,test}/{middle,high}/NUMBER.txt with `article`, `questions`, `options` (four for each
question) and `answers` (A to D). The first segment of a pair is the question with the answer, the second the article
(github.com/NVIDIA/Megatron-LM, tasks/race/data.py). One difference: a blank may have several underscores, of which
Megatron-LM replaces each one by the answer.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from bert.core import files
from bert.core.errors import InputError
from tasks.examples import ChoiceExample, Skipped

Split = Literal["train", "dev", "test"]
Level = Literal["middle", "high"]

LEVELS: tuple[Level, ...] = ("middle", "high")
ANSWERS = ("A", "B", "C", "D")
BLANK = re.compile("_+")
MAX_FILE = 16 << 20  # characters; the longest file of RACE has some 10,000


def read(
    folder: Path, split: Split, levels: Sequence[Level], skipped: Skipped, answers: bool = True
) -> Iterator[ChoiceExample]:
    """Yield the questions of a split, level by level in the given order, the files of a level by number.

    One file is held in memory at a time. A malformed file or question is left out and counted. answers: False does not
    read the answers, which may be missing. Raise InputError if a level has no files, or if a file is not UTF-8.
    """
    for level in levels:
        for path in _passages(folder / split / level):
            yield from _questions(path, level, skipped, answers)


def with_answer(question: str, option: str) -> str:
    """Return the question with the option in each of its blanks or, if it has none, after it."""
    return BLANK.sub(lambda _: option, question) if BLANK.search(question) else f"{question} {option}"


def _passages(folder: Path) -> list[Path]:
    """Return the files of a level in the order of their numbers, others behind them. Hidden files are no passages."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give the folder RACE, which has train, dev and test")
    names = [name for name in os.listdir(folder) if name.endswith(".txt") and not name.startswith(".")]
    if not names:
        raise InputError(f"{folder}: no file NUMBER.txt; give the folder RACE, which has train, dev and test")
    return [folder / name for name in sorted(names, key=_number)]


def _number(name: str) -> tuple[bool, int, str, str]:
    stem = name.removesuffix(".txt")
    is_number = stem.isascii() and stem.isdigit()
    digits = stem.lstrip("0") if is_number else ""
    return not is_number, len(digits), digits, name  # as the numbers compare, however long


def _questions(path: Path, level: Level, skipped: Skipped, with_label: bool) -> Iterator[ChoiceExample]:
    text = files.read_text(path, MAX_FILE, "give one passage in each file")
    try:
        article, questions, options, answers = _fields(text, with_label)
    except ValueError as error:
        skipped.add(path, 1, str(error))
        return
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
        if reason := _fault(question, choices, answer):
            skipped.add(path, 1, f"question {number}: {reason}")
            continue
        yield ChoiceExample(
            id=f"{level}/{path.name}/{number}",
            pairs=tuple((with_answer(question, choice), article) for choice in choices),
            label=ANSWERS.index(answer) if with_label else None,
            group=level,
        )


def _fields(text: str, with_answers: bool) -> tuple[str, list[Any], list[Any], list[Any]]:
    """Return article, questions, options and answers of a file. Raise ValueError if they are not of RACE's format.

    with_answers: False does not read the answers; each is then a placeholder.
    """
    try:
        record = files.parse_json(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    article = record.get("article")
    if not isinstance(article, str) or not article.strip():
        raise ValueError("no article")
    questions, options, answers = (record.get(key) for key in ("questions", "options", "answers"))
    if not with_answers:
        answers = [ANSWERS[0]] * len(questions) if isinstance(questions, list) else []
    if not (isinstance(questions, list) and isinstance(options, list) and isinstance(answers, list)):
        raise ValueError("questions, options and answers are not three lists")
    if not len(questions) == len(options) == len(answers):
        raise ValueError(f"{len(questions)} questions, {len(options)} lists of options, {len(answers)} answers")
    return article, questions, options, answers


def _fault(question: Any, options: Any, answer: Any) -> str:
    """Return what is wrong with a question, in words; "" if nothing is."""
    if not isinstance(question, str):
        return "its text is not a string"
    if not isinstance(options, list) or len(options) != len(ANSWERS):
        count = len(options) if isinstance(options, list) else "no list of"
        return f"{count} options, not {len(ANSWERS)}"
    if not all(isinstance(option, str) and option.strip() for option in options):
        return "an option is empty"
    if answer not in ANSWERS:
        return f"the answer is {str(answer)[:20]!r}, not one of {', '.join(ANSWERS)}"
    return ""
