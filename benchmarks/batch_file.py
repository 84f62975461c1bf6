"""Read the batches written by benchmarks/cases.py. Needs only NumPy: contenders run in other environments."""

import numpy as np


def load(path: str) -> list[dict[str, np.ndarray]]:
    """Return the batches of a lap."""
    batches: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            number, field = name.split("/")
            batches.setdefault(int(number), {})[field] = arrays[name]
    return [batches[number] for number in sorted(batches)]
