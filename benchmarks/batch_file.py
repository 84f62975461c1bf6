"""Reads the batches that benchmarks/cases.py wrote; contenders of other environments have NumPy, but not our code."""

import numpy as np


def load(path: str) -> list[dict[str, np.ndarray]]:
    """The batches of a lap."""
    found: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            number, field = name.split("/")
            found.setdefault(int(number), {})[field] = arrays[name]
    return [found[number] for number in sorted(found)]
