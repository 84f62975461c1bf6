"""Pairs of sentences with a score, as the sets of semantic textual similarity (STS) are distributed.

    STS-B    sts-dev.csv         genre, file, year, id, score, sentence, sentence, sometimes more; no header
    SICK     SICK_trial.txt      a header with sentence_A, sentence_B and relatedness_score
    SemEval  STS.input.NAME.txt  sentence, sentence, sometimes more; the scores are the lines of STS.gs.NAME.txt
             NAME.test.tsv       score, sentence, sentence; no header

All are separated by tabs and never quoted. A pair of SemEval whose score is empty is not of the set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import InputError

SICK = ("sentence_A", "sentence_B", "relatedness_score")  # columns
GENRE = "main-"  # with which lines of STS-B begin
INPUT, GOLD = ".input.", ".gs."  # in the names of SemEval's files
SUFFIXES = (".tsv", ".txt", ".csv")
PARTS = {  # of the sets of each year, as SentEval has them: without SMT of 2013, whose sentences are not free
    "2012": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "2013": ("FNWN", "headlines", "OnWN"),
    "2014": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "2015": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "2016": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SINGLE = {"stsb": "sts-test.csv", "sick_r": "SICK_test_annotated.txt"}
NAMES = (*(f"sts{year[2:]}" for year in PARTS), *SINGLE)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the columns of a pair are."""

    texts: tuple[int, int]
    score: int | None
    """None: it is a line of another file"""
    header: bool = False
    all_scored: bool = False
    """whether a pair without a score is malformed"""


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]] | None:
    """Return the rows of a file that has one of the layouts, as `tables.rows` yields them; None for another file.

    columns: the columns of both texts and of the score, as the rows name them. The file has no such layout if its first
    line has all these columns, or if they are numbers. Raise InputError if there are more or fewer scores than pairs.
    """
    named = not all(name.isdecimal() for name in columns)
    if not named or not path.is_file() or not any(suffix in SUFFIXES for suffix in path.suffixes):
        return None
    with files.open_text(path) as stream:
        first = next(files.read_lines(stream, path), "").removesuffix("\n").split("\t")
    layout = None if set(columns) <= set(first) else _layout(path, first)
    return _rows(path, layout, columns) if layout else None


def gold(path: Path) -> Path | None:
    """Return the file with the scores of a file of SemEval; None if there is none."""
    beside = path.with_name(path.name.replace(INPUT, GOLD))
    return beside if beside != path and beside.is_file() else None


def sets(folder: Path) -> dict[str, list[Path]]:
    """Return the files of the test sets in and below a folder, by the names of the sets, in the order of papers.

    The files of a year are in a folder STS12-en-test or 2012. The other files may be anywhere. If a set is in several
    places, take the one with the shortest path. A set is left out if a file of it is missing or its name is not known.
    """
    below = sorted(folder.rglob("*"), key=lambda path: (len(path.parts), path))
    found = {}
    for year, parts in PARTS.items():
        places = [path for path in (folder, *below) if path.name in (f"STS{year[2:]}-en-test", year)]
        groups = ([_part(place, name) for name in parts] for place in places)
        whole = ([path for path in group if path] for group in groups if all(group))
        found[f"sts{year[2:]}"] = next(whole, [])
    for name, file in SINGLE.items():
        found[name] = [path for path in below if path.name == file][:1]
    return {name: paths for name, paths in found.items() if paths}


def _part(folder: Path, name: str) -> Path | None:
    paths = (folder / f"STS{INPUT}{name}.txt", folder / f"{name.removeprefix('surprise.')}.test.tsv")
    return next((path for path in paths if path.is_file()), None)


def _layout(path: Path, first: Sequence[str]) -> Layout | None:
    """Return the layout of a file with this first line."""
    if set(SICK) <= set(first):
        a, b, score = (first.index(name) for name in SICK)
        return Layout(texts=(a, b), score=score, header=True, all_scored=True)
    if gold(path):
        return Layout(texts=(0, 1), score=None)
    if len(first) >= 7 and first[0].startswith(GENRE):
        return Layout(texts=(5, 6), score=4, all_scored=True)
    if len(first) == 3 and (not first[0] or _is_number(first[0])):
        return Layout(texts=(1, 2), score=0)
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _rows(path: Path, layout: Layout, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any] | None]]:
    lines = [line.split("\t") for line in _lines(path)]
    beside = gold(path) if layout.score is None else None
    scores = _lines(beside) if beside else [_at(line, layout.score) for line in lines]
    if len(scores) != len(lines):
        raise InputError(f"{beside}: {len(scores)} scores of {len(lines)} pairs; give the files as distributed")
    for number, (fields, score) in enumerate(zip(lines, scores, strict=True), 1):
        if layout.header and number == 1:
            continue
        if score is None or len(fields) <= max(layout.texts):
            yield number, None
        elif score.strip() or layout.all_scored:
            yield number, dict(zip(columns, (*(fields[place] for place in layout.texts), score), strict=True))


def _at(fields: Sequence[str], place: int | None) -> str | None:
    return fields[place] if place is not None and place < len(fields) else None


def _lines(path: Path) -> list[str]:
    with files.open_text(path) as stream:
        return [line.removesuffix("\n") for line in files.read_lines(stream, path)]
