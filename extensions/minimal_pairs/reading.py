"""Read minimal pairs from the files of BLiMP, of Zorro, or of your own in one of these two forms.

- `.jsonl` (github.com/alexwarstadt/blimp, `data/`): each line is a JSON object with `sentence_good` and `sentence_bad`,
  and, unless the file is your own, `UID`, the paradigm, `linguistics_term`, its phenomenon, and `field`.
- `.txt` (github.com/phueb/Zorro, `sentences/babyberta/`): the lines are sentences, a bad one and then its good one. The
  file is a paradigm, and what is before the last "-" of its name the phenomenon.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bert.core import checked_json, files
from bert.core.errors import InputError
from bert.text.hashing import Uniform

# One paradigm of BLiMP's files (tough_vs_raising_1 in 2020) writes its field otherwise than those beside it.
Method = Literal["auto", "masked", "word_l2r", "unmasked", "causal"]  # by which sentences are scored
FIELDS = {"syntax/semantics": "syntax_semantics"}
FORMS = "give a .jsonl or .txt file, or a folder with files of one of these kinds"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sentences, and what they test; "" for a phenomenon or field that is not known."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str = ""
    field: str = ""
    where: str
    """file and line, for messages"""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """The fields of a line of BLiMP's that are read."""

    sentence_good: str
    sentence_bad: str
    UID: str | None = None
    linguistics_term: str = ""
    field: str = ""


def read(path: Path) -> list[Pair]:
    """Return the pairs of a file, or of all files of a folder that end in .jsonl or .txt.

    Raise InputError, naming the file and the line, if it is not of its form, or if a folder has files of both kinds.
    """
    pairs = [pair for file in _files(path) for pair in READERS[file.suffix](file)]
    if not pairs:
        raise InputError(f"{path}: has no pairs; {FORMS}")
    return pairs


def chosen(pairs: list[Pair], count: int) -> list[Pair]:
    """Return `count` pairs of each paradigm, or all if it has fewer, in their order.

    They are drawn at random, because files may have regular patterns, and are the same each time. The choice in one
    paradigm does not depend on the others.
    """
    numbers: dict[str, list[int]] = {}
    for number, pair in enumerate(pairs):
        numbers.setdefault(pair.paradigm, []).append(number)
    numbers_chosen: set[int] = set()
    for of_paradigm in numbers.values():
        drawn = Uniform(0, np.arange(len(of_paradigm)))(1)[:, 0]
        numbers_chosen.update(np.array(of_paradigm)[np.argsort(drawn, kind="stable")[:count]].tolist())
    return [pairs[number] for number in sorted(numbers_chosen)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix not in READERS:
            raise InputError(f"{path}: its name does not say how it is read; {FORMS}")
        return [path]
    by_suffix = {suffix: sorted(path.glob(f"*{suffix}")) for suffix in READERS}
    kinds = [suffix for suffix, names in by_suffix.items() if names]
    if len(kinds) != 1:
        raise InputError(f"{path}: has {'files of both kinds' if kinds else 'no such file'}; {FORMS}")
    return by_suffix[kinds[0]]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of a file, and where it is. Raise InputError if one is empty."""
    with files.open_text(path) as stream:
        for number, line in enumerate(files.read_lines(stream, path), 1):
            where = f"{path}: line {number}"
            if not line.strip():
                raise InputError(f"{where}: is empty; each line has a sentence or a pair")
            yield line.strip(), where


def _json_lines(path: Path) -> Iterator[Pair]:
    for line, where in _lines(path):
        try:
            row = checked_json.take(_Line, checked_json.parse(line.encode()))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{where}: not a JSON object with sentence_good and sentence_bad ({error}); mend the line"
            ) from error
        yield _checked(
            Pair(
                good=row.sentence_good.strip(),
                bad=row.sentence_bad.strip(),
                paradigm=path.stem if row.UID is None else row.UID,
                phenomenon=row.linguistics_term,
                field=FIELDS.get(row.field, row.field),
                where=where,
            )
        )


def _text_lines(path: Path) -> Iterator[Pair]:
    lines, phenomenon = _lines(path), path.stem.rpartition("-")[0]
    for bad, where in lines:
        good, _ = next(lines, ("", ""))
        if not good:
            raise InputError(f"{where}: a bad sentence without its good one; the lines of the file come in pairs")
        yield _checked(Pair(good=good, bad=bad, paradigm=path.stem, phenomenon=phenomenon, where=where))


def _checked(pair: Pair) -> Pair:
    if not pair.good or not pair.bad:
        raise InputError(f"{pair.where}: a sentence is empty; mend the line")
    if not pair.paradigm or not (pair.paradigm + pair.phenomenon + pair.field).isprintable():
        raise InputError(f"{pair.where}: the name of what it tests is empty or cannot be printed; mend the line")
    return pair


READERS: dict[str, Callable[[Path], Iterator[Pair]]] = {".jsonl": _json_lines, ".txt": _text_lines}
