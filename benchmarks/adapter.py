"""The process of a contender in benchmarks/steps.py: it reads one JSON command per line and writes one JSON answer.

    {"do": "setup", "work": "pretrain", ...}    ->    {"threads": 2, ..., "peak_mb": 812.0}

`do` names a method of the contender; the other entries are its arguments. The answer is the result, or {"error": ...},
with the peak memory of the process unless the result has that of a GPU. Needs only the standard library: peers run in
other environments.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

SIZES = {"cpu": (512, 1024, 2048), "gpu": (2048, 4096, 8192)}  # of square products; the fastest gives the peak
TRIES = 5

Answer = dict[str, Any]


class Contender(Protocol):
    """The methods of a contender; ours also has `export`."""

    def setup(self, work: str, weights: str, inputs: str, compute: str, dropout: float) -> Answer:
        """Build the model from the weights and load the batches.

        Returns `shapes` [[rows, tokens, scored positions, tokens of the last layer if not all]], `threads`, `versions`.
        """

    def values(self) -> Answer:
        """Return `values`: losses of three updates on the first batch, or for inference the logits of its tokens."""

    def lap(self, laps: int) -> Answer:
        """Return `seconds` [laps] of passes over all batches; on a GPU also `peak_mb`, the most memory taken there."""

    def peak(self) -> Answer:
        """Return `flops`: FLOP/s of the fastest square matrix product in the compute type."""


def serve(contender: Contender) -> None:
    """Answer commands until the input ends. Output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(contender, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answers.write(json.dumps({"peak_mb": peak} | answer) + "\n")
        answers.flush()


def timed(step: Callable[[Any], Any], batches: list[Any], laps: int) -> Answer:
    """Return the answer of `lap`. step: returns when its work is done."""
    spent = []
    for _ in range(laps):
        begun = time.perf_counter()
        for batch in batches:
            step(batch)
        spent.append(time.perf_counter() - begun)
    return {"seconds": spent}


def fastest(product: Callable[[int], Callable[[], Any]], device: str = "cpu") -> Answer:
    """Return the answer of `peak`. product: returns, for a size, a function that multiplies two square matrices."""
    best = 0.0
    for size in SIZES[device]:
        compute = product(size)
        compute()
        for _ in range(TRIES):
            begun = time.perf_counter()
            compute()
            best = max(best, 2 * size**3 / (time.perf_counter() - begun))
    return {"flops": best}
