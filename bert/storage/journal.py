"""Read `metrics.jsonl` of a run: one line of JSON for each logged update and each evaluation."""

import math
from pathlib import Path
from typing import Any

from bert.storage import files

NAME = "metrics.jsonl"
NOT_FINITE = ("nan", "inf", "-inf")  # written as strings, because JSON has no such numbers
LARGEST_STEP = 1 << 53

Line = dict[str, Any]


def read(path: Path) -> tuple[list[Line], int]:
    """Return the lines, and the number of damaged ones, which are left out: a killed process may leave half a line.

    A line has an integer `step`, a string `split` and numbers. Raise InputError if the path is not a regular file.
    """
    with files.open_regular(path) as stream:
        texts = [text for text in stream.read().decode(errors="replace").split("\n") if text]
    lines = [line for line in map(_line, texts) if line is not None]
    return lines, len(texts) - len(lines)


def _line(text: str) -> Line | None:
    try:
        fields = files.parse_json(text)
        if type(fields["step"]) is not int or not 0 <= fields["step"] <= LARGEST_STEP:
            return None
        if type(fields["split"]) is not str:
            return None
        return {key: value if key in ("step", "split") else _number(value) for key, value in fields.items()}
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _number(value: Any) -> float:
    if value in NOT_FINITE:
        return float(value)
    if type(value) not in (int, float):
        raise TypeError
    math.isfinite(value)  # an integer that is no float raises OverflowError
    return value
