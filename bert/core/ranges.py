"""The range of every number that a user can set, declared where the field is: `Annotated[int, Range(1, 64)]`.

    @dataclass(frozen=True, kw_only=True)
    class Options:
        workers: Workers = 4

        def __post_init__(self) -> None:
            ranges.check(self)

A setting that names a row of a table is declared as `Annotated[str, NameIn(TABLE)]`.

Both ends are there for every number. The lower one is what the code needs. The upper one is beyond any use; a larger
value is a mistake, and would end in an overflow or without memory.
"""

import dataclasses
import math
import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from bert.core.errors import UsageError


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`, both included. `above`: without `low`. `below`: without `high`."""

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __contains__(self, number: Any) -> bool:
        enough = self.low < number if self.above else self.low <= number
        return enough and (number < self.high if self.below else number <= self.high)

    def __str__(self) -> str:
        if self == Range(-math.inf, math.inf):
            return "a number"
        if not (self.above or self.below):
            return f"from {_show(self.low)} to {_show(self.high)}"
        first = f"above {_show(self.low)}" if self.above else f"at least {_show(self.low)}"
        return f"{first} and {'below' if self.below else 'at most'} {_show(self.high)}"


class NameIn:
    """The names in a table, as it is when a value is checked."""

    def __init__(self, table: Collection[str]) -> None:
        self.table = table


Seed = Annotated[int, Range(0, 2**31 - 1)]
Workers = Annotated[int, Range(1, 4096)]
BatchSize = Annotated[int, Range(1, 65_536)]
Share = Annotated[float, Range(0, 1)]
AnyNumber = Annotated[float, Range(-math.inf, math.inf)]  # not a NaN


def are_parts(shares: Sequence[float], count: int) -> bool:
    """Return whether there are `count` shares, none negative, that add up to 1 within 1e-6."""
    return len(shares) == count and min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6


def check_mask_shares(shares: Sequence[float], flag: str) -> None:
    """Raise UsageError unless these are the shares of three ways to mask a token."""
    if not are_parts(shares, 3):
        shown = " ".join(map(_show, shares))
        raise UsageError(
            f"--{flag} {shown}: must be three shares that add up to 1: of the selected tokens, those that become "
            "[MASK], a random token, or stay as they are"
        )


def check(settings: Any, prefix: str = "") -> None:
    """Raise UsageError if a value in the dataclass `settings` is outside the range or table that its field declares.

    prefix: of the flags' names, such as `model.`.
    """
    for name, (kind, limits) in declared(type(settings)).items():
        value = getattr(settings, name)
        numbers: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if number is None:  # not given
                continue
            if isinstance(number, bool) or not isinstance(number, int if kind is int else (int, float)):
                raise UsageError(f"--{prefix}{name} {number!r}: must be {'an integer' if kind is int else 'a number'}")
            if number not in limits:
                raise UsageError(f"--{prefix}{name} {_show(number)}: must be {limits}")

    for name, table in tables(type(settings)).items():
        if getattr(settings, name) not in table:
            raise UsageError(f"--{prefix}{name} {getattr(settings, name)!r}: must be one of {', '.join(table)}")


def tables(settings: type) -> dict[str, Collection[str]]:
    """Return, by field, the tables that fields of a dataclass declare."""
    hints = typing.get_type_hints(settings, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: mark.table for name, mark in marks.items() if isinstance(mark, NameIn)}


def declared(settings: type) -> dict[str, tuple[type, Range]]:
    """Return, by field, the types and ranges that fields of a dataclass declare."""
    hints = typing.get_type_hints(settings, include_extras=True)
    pairs = {field.name: _find(hints[field.name]) for field in dataclasses.fields(settings)}
    return {name: pair for name, pair in pairs.items() if pair}


def _find(hint: Any) -> tuple[type, Range] | None:
    """Return the type and the range in a hint such as `tuple[Annotated[int, Range(1, 3)], ...]`."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated and isinstance(arguments[1], Range):
        return arguments[0], arguments[1]
    return next(filter(None, map(_find, arguments)), None)


def _show(number: float) -> str:
    return str(number) if isinstance(number, int) and abs(number) < 10**20 else f"{number:g}"
