"""Time the engines for inference on one model: TensorFlow and OpenVINO, float32 and bfloat16, in alternating turns.

    python -m benchmarks.engines RUN [--batch 1 8] [--length 128 384] [--rounds 20]

RUN is a run directory of squad.train. Rows are random tokens that fill their length. In each round every engine
computes the same rows once, in an order that changes from round to round. Prints a line of JSON for each batch size,
length, engine and type: the median and the fastest call in milliseconds, the median of the processor time that the
process spends in a call, and the largest difference of a logit to TensorFlow's float32, relative to the largest logit.
First comes a line for each with the seconds until the model can be asked and the memory that it takes, last the load.
"""

import itertools
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import psutil

from bert.core import cli, ranges
from bert.core.ranges import BatchSize, Range
from bert.hardware import devices
from bert.hardware.choices import Compute, Engine
from bert.model.heads import INPUTS
from squad import model

ENGINES: tuple[Engine, ...] = ("tensorflow", "openvino")
TYPES: tuple[Compute, ...] = ("float32", "bfloat16")
Rows = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.engines`."""

    run: cli.Run
    """run directory of squad.train"""
    batch: tuple[BatchSize, ...] = (1, 8)
    """rows of a call"""
    length: tuple[Annotated[int, Range(8, 65_536)], ...] = (128, 384)
    """tokens of a row"""
    rounds: Annotated[int, Range(1, 10**6)] = 20
    """calls of each engine for each shape"""

    def __post_init__(self) -> None:
        ranges.check(self)


Contenders = dict[tuple[Engine, Compute], Callable[[Rows], list[np.ndarray]]]


def load(options: Options) -> Contenders:
    """Return what computes the logits of rows, by engine and type; print what loading took."""
    made: Contenders = {}
    for engine, compute in itertools.product(ENGINES, TYPES):
        before, begun = psutil.Process().memory_info().rss, time.perf_counter()
        fine_tuned = model.load(options.run, compute, engine)
        made[engine, compute] = computing(fine_tuned)
        made[engine, compute](rows_of(fine_tuned.run.config.vocab_size, 1, 16))
        seconds, grown = time.perf_counter() - begun, psutil.Process().memory_info().rss - before
        _say(engine=engine, compute=compute, ready_seconds=round(seconds, 2), memory_mb=round(grown / 1e6))
    return made


def computing(fine_tuned: Any) -> Callable[[Rows], list[np.ndarray]]:
    """Return a function of rows that gives the logits, as the service and `bert.load` compute them."""
    import tensorflow as tf

    function = fine_tuned.encoder.function(lambda states, mask: fine_tuned.head(states[0]), compiled=False)
    return lambda rows: [logits.numpy() for logits in function(*(tf.constant(rows[name]) for name in INPUTS))]


def rows_of(vocabulary: int, batch: int, length: int) -> Rows:
    """Return random tokens without padding."""
    ids = np.random.default_rng(length).integers(min(1000, vocabulary // 2), vocabulary, (batch, length), np.int32)
    return dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))


def measure(contenders: Contenders, rows: Rows, rounds: int) -> dict[tuple[Engine, Compute], dict[str, float]]:
    """Return the figures of each contender for one shape."""
    expected = np.stack(contenders["tensorflow", "float32"](rows))
    names, order = list(contenders), random.Random(1)
    wall, cpu = ({name: list[float]() for name in names} for _ in range(2))
    apart = {
        name: float(np.abs(np.stack(function(rows)) - expected).max() / np.abs(expected).max())
        for name, function in contenders.items()
    }
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            begun, spent = time.perf_counter(), time.process_time()
            contenders[name](rows)
            wall[name].append(1000 * (time.perf_counter() - begun))
            cpu[name].append(1000 * (time.process_time() - spent))
    return {
        name: {
            "median_ms": round(float(np.median(wall[name])), 2),
            "fastest_ms": round(min(wall[name]), 2),
            "cpu_ms": round(float(np.median(cpu[name])), 2),
            "apart": float(f"{apart[name]:.1e}"),
        }
        for name in contenders
    }


def _say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.engines", description=__doc__)
    devices.hide_gpus()
    contenders, vocabulary = load(options), model.load(options.run).run.config.vocab_size
    for length, batch in itertools.product(options.length, options.batch):
        for (engine, compute), figures in measure(
            contenders, rows_of(vocabulary, batch, length), options.rounds
        ).items():
            _say(batch=batch, length=length, engine=engine, compute=compute, **figures)
    _say(load=os.getloadavg(), cores=len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    cli.main(main)
