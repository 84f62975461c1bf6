"""The side of a contender in benchmarks/steps.py: one JSON command a line comes in, one JSON answer a line goes out.

    {"do": "setup", "work": "pretrain", ...}    ->    {"threads": 2, ..., "peak_mb": 812.0}

`do` names a method of the contender, the rest is its arguments; what it returns is the answer, with the peak memory of
the process added, or {"error": ...} in one line. Needs the standard library alone: peers run elsewhere.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

SIZES = (512, 1024, 2048)  # of the square products whose fastest is the peak
TRIES = 5

Answer = dict[str, Any]


class Contender(Protocol):
    """What the harness asks of a contender, beside which ours has `export`."""

    def setup(self, work: str, weights: str, inputs: str, compute: str, dropout: float) -> Answer:
        """Makes the model from the weights and takes the batches in: `shapes` [[rows, tokens, scored positions]] with
        the tokens of a row that the last layer is computed for, if not all; `threads` and `versions`."""

    def values(self) -> Answer:
        """`values`: of training the losses of three updates on the first batch, else the logits of its tokens."""

    def lap(self, laps: int) -> Answer:
        """`seconds` [laps] in which all batches were worked on, each time of so many."""

    def peak(self) -> Answer:
        """`flops`: FLOP/s of the fastest square product in the compute type."""


def serve(contender: Contender) -> None:
    """Answers until the input ends. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(contender, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answers.write(json.dumps(answer | {"peak_mb": peak}) + "\n")
        answers.flush()


def timed(step: Callable[[Any], Any], batches: list[Any], laps: int) -> Answer:
    """The answer of `lap`; a step returns when its work is done."""
    spent = []
    for _ in range(laps):
        begun = time.perf_counter()
        for batch in batches:
            step(batch)
        spent.append(time.perf_counter() - begun)
    return {"seconds": spent}


def fastest(product: Callable[[int], Callable[[], Any]]) -> Answer:
    """The answer of `peak`; `product` makes, for a size, what computes the product of two square matrices."""
    best = 0.0
    for size in SIZES:
        compute = product(size)
        compute()
        for _ in range(TRIES):
            begun = time.perf_counter()
            compute()
            best = max(best, 2 * size**3 / (time.perf_counter() - begun))
    return {"flops": best}
