"""Read `metrics.jsonl` of a run: one line of JSON for each logged update and each evaluation."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert.core import files

NAME = "metrics.jsonl"
NOT_FINITE = ("nan", "inf", "-inf")  # written as strings, because JSON has no such numbers
LARGEST_STEP = 1 << 53

Line = dict[str, Any]


def lines(path: Path) -> Iterator[Line | None]:
    """Yield the lines, with None for each damaged one: a killed process may leave half a line.

    A line has an integer `step`, a string `split` and numbers. Raise InputError if the path is not a regular file.
    """
    with files.open_regular(path) as stream:
        for content in stream:
            if text := content.decode(errors="replace").removesuffix("\n"):
                yield _line(text)


def intact(path: Path) -> Iterator[Line]:
    """Yield the lines as `lines` does, without the damaged ones."""
    return (line for line in lines(path) if line is not None)


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
    if type(value) is float:
        return value
    if value in NOT_FINITE:
        return float(value)
    if type(value) is not int:
        raise TypeError
    math.isfinite(value)  # an integer that is no float raises OverflowError
    return value
