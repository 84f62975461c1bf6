"""What the ranks of a measurement are to do: the ways to exchange gradients, and the sizes."""

import dataclasses
from typing import Any

ALONE = "alone"  # every rank for itself, all at the same time
WAYS = {  # overlap, compress, sharded
    "summed": (False, False, False),
    "overlap": (True, False, False),
    "compress": (False, True, False),
    "overlap+compress": (True, True, False),
    "sharded": (False, False, True),
    "sharded+overlap": (True, False, True),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What the ranks are to do."""

    model: dict[str, Any]
    sequences: int
    """in a micro-batch"""
    tokens: int
    accumulation: list[int]
    ways: list[str]
    bucket_megabytes: float
    xla: bool
    updates: int
    """timed in a turn, after one that is not"""
    turns: int
    folder: str
