"""Random numbers as pure functions of a position, for sample order and masking: there is no state to save."""

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15


def mix(values: np.ndarray, key: int) -> np.ndarray:
    """Return SplitMix64's finaliser (Steele, Lea and Flood 2014) of (value, key); uint64, any shape."""
    step = (key * GOLDEN + 0x632BE59BD9B4E019) & (2**64 - 1)
    z = values + np.uint64(step)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Uniform:
    """Numbers in [0, 1) that depend only on (seed, position); each call draws the next ones for every position."""

    def __init__(self, seed: int, positions: np.ndarray) -> None:
        """`positions`: [N], below 2**44."""
        self.key, self.drawn = seed, 0
        self.first = positions.astype(np.uint64) << np.uint64(20)  # a million draws per position

    def __call__(self, count: int) -> np.ndarray:
        """Return [N, count] float64."""
        at = self.first[:, None] + np.arange(self.drawn, self.drawn + count, dtype=np.uint64)
        self.drawn += count
        assert self.drawn < 2**20, "too many draws for a position"
        # Mixed twice, so that neighbouring counters give unrelated numbers under any key.
        return (mix(mix(at * np.uint64(GOLDEN), self.key), ~self.key) >> np.uint64(11)) * 2.0**-53
