"""The exponent of a curve, and what is beyond its bounds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Below these a difference is noise: processor seconds, MB of memory, calls.
FLOORS = {"seconds": 0.5, "megabytes": 16.0, "calls": 64.0, "milliseconds": 0.0}
UNITS = {"seconds": "s", "megabytes": "MB", "calls": "calls", "milliseconds": "ms"}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What one measure of a curve may be at most."""

    measure: str
    """a name of `FLOORS`"""
    exponent: float
    """of the growth with the size, beyond what the base costs"""
    each: float | None = None
    """of the growth at the largest size, for one unit of the size"""
    most: float | None = None
    """of the whole value at the largest size"""
    first: float | None = None
    """of the whole value at the smallest size"""


@dataclass(frozen=True)
class Fit:
    """How a measure grows: value - base = factor * size ** exponent."""

    exponent: float
    above: int
    """number of sizes whose growth is no noise; with one, the exponent is the least that it can be; 0: it is flat"""

    def text(self) -> str:
        """Return the exponent as it is printed."""
        if not self.above:
            return "flat"
        return f"{'>= ' if self.above == 1 else ''}{self.exponent:.2f}"


def fit(values: Mapping[int, float], base: float, floor: float) -> Fit:
    """Fit a line to log(value - base) over log(size), by least squares over the sizes whose growth is above the floor.

    If only the growth at the largest size is, the size before it counts with the floor, so the exponent is a lower
    limit.
    """
    grown = [(size, value - base) for size, value in sorted(values.items())]
    points = [(size, growth) for size, growth in grown if growth > floor]
    above = len(points)
    if not points:
        return Fit(0.0, 0)
    if above == 1:
        place = grown.index(points[0])
        if place != len(grown) - 1 or not place:  # noise: a larger size costs nothing; or a single size
            return Fit(0.0, 0)
        points = [(grown[-2][0], max(floor, grown[-2][1])), points[0]]
    xs, ys = [math.log(size) for size, _ in points], [math.log(growth) for _, growth in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
    return Fit(slope, above)


def broken(bound: Bound, values: Mapping[int, float], base: float) -> Iterator[str]:
    """Yield, for each bound that does not hold, a sentence that says so."""
    first, last = min(values), max(values)
    unit, fitted = UNITS[bound.measure], fit(values, base, FLOORS[bound.measure])
    if fitted.exponent > bound.exponent:
        yield f"{bound.measure} grow with exponent {fitted.text()}, the bound is {bound.exponent:g}"
    each = (values[last] - base) / last
    if bound.each is not None and fitted.above and each > bound.each:
        yield f"{each:.3g} {unit} for each, the bound is {bound.each:g}"
    for size, most in ((first, bound.first), (last, bound.most)):
        if most is not None and values[size] > most:
            yield f"{values[size]:.3g} {unit} at {size:,}, the bound is {most:g}"
