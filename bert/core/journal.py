"""Read `metrics.jsonl` of a run: one line of JSON for each logged update and each evaluation.

Scores (accuracy, F1, correlations) are from 0 to 100, and `scale` of a line says so. Earlier versions wrote lines
without `scale`, with scores from 0 to 1; here they are read as if they had been written today.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bert.core import files

NAME = "metrics.jsonl"
NOT_FINITE = ("nan", "inf", "-inf")  # written as strings, because JSON has no such numbers
LARGEST_STEP = 1 << 53
SCALE: Final = 100  # of a score that is as good as can be

Line = dict[str, Any]


def lines(path: Path) -> Iterator[Line | None]:
    """Yield the lines, with None for each damaged line: a killed process may leave half a line.

    A line has an integer `step`, a string `split`, and numbers; `scale` is removed. Raise InputError if the path is not
    a regular file.
    """
    with files.open_regular(path) as stream:
        for content in stream:
            if text := content.decode(errors="replace").removesuffix("\n"):
                yield _line(text)


def intact(path: Path) -> Iterator[Line]:
    """Yield the lines that `lines` yields, without damaged ones."""
    return (line for line in lines(path) if line is not None)


def rescaled(line: Line) -> Line:
    """Return a line without `scale`; its scores, from 0 to 1, become scores from 0 to 100."""
    return {
        key: SCALE * value if _is_score(key, line["split"]) and type(value) in (int, float) else value
        for key, value in line.items()
    }


def _is_score(key: str, split: Any) -> bool:
    measure = key.partition("/")[0]  # "mlm_accuracy/books" belongs to a source
    if split == "heldout" and measure not in ("step", "split"):
        return not measure.endswith("loss")
    return measure.endswith("accuracy")


def _line(text: str) -> Line | None:
    try:
        fields = files.parse_json(text)
        if type(fields["step"]) is not int or not 0 <= fields["step"] <= LARGEST_STEP:
            return None
        if type(fields["split"]) is not str:
            return None
        if fields.get("scale", SCALE) != SCALE:
            return None
        line = {key: value if key in ("step", "split") else _number(value) for key, value in fields.items()}
        return line if line.pop("scale", None) else rescaled(line)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if value in NOT_FINITE:
        return float(value)
    if type(value) is not int:
        raise TypeError
    math.isfinite(value)  # an integer that is no float raises OverflowError
    return value
