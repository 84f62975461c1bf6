"""Measure the latency of a fine-tuned model from text to answer, with the graph of squad.export.

    python -m squad.latency --model RUN --batch 1 8 32 --length 128 384 [--compute bfloat16]

Questions and passages are random words of the model's vocabulary that fill one window of each length. For each
combination of batch size and length, one line of JSON goes to standard output; a table goes to standard error. The
graph is traced once, before any measurement. The first call of a combination, in which TensorFlow prepares its shapes,
is reported separately; warm-up calls are not counted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from bert.core import cli, ranges
from bert.core.errors import UsageError
from bert.core.ranges import BatchSize, Range
from bert.hardware.choices import Compute, Kind

if TYPE_CHECKING:
    import tensorflow as tf

    from squad.model import AnswerSpans
    from tasks.model import FineTuned

PERCENTILES = (50, 90, 95, 99)
COLUMNS = ["first_ms", "mean_ms", *(f"p{p}_ms" for p in PERCENTILES), "sequences_per_second"]
QUESTION_WORDS = 9


@dataclass(frozen=True, kw_only=True)
class Options:
    model: cli.Run
    """run directory of python -m squad.train"""
    batch: tuple[BatchSize, ...] = (1, 8, 32)
    """questions per call"""
    length: tuple[Annotated[int, Range(1, 65_536)], ...] = (128, 384)
    """tokens of a question with its passage, including special tokens"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products"""
    warmup: Annotated[int, Range(0, 10**9)] = 5
    """calls that are not counted, after the first"""
    calls: Annotated[int, Range(1, 10**9)] = 100
    """calls that are measured"""
    device: Kind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


def measure(
    answer: Callable[..., dict[str, tf.Tensor]], texts: Sequence[tf.Tensor], options: Options
) -> tuple[float, np.ndarray]:
    """Return the milliseconds of the first call and of each measured call."""
    times = []
    for _ in range(1 + options.warmup + options.calls):
        begin = time.perf_counter()
        answer(*texts)["answer"].numpy()
        times.append(_milliseconds_since(begin))
    return times[0], np.array(times[1 + options.warmup :])


def _milliseconds_since(begin: float) -> float:
    return 1000 * (time.perf_counter() - begin)


def measure_all(fine_tuned: FineTuned[AnswerSpans], options: Options) -> Iterator[dict[str, Any]]:
    """Yield the figures of each length and batch size.

    Raises UsageError, before any measurement, for a length that the model's windows cannot have.
    """
    from squad.answering import Answering

    question = min(QUESTION_WORDS, fine_tuned.kind.windowing.max_query_length)
    shortest, longest = question + 4, fine_tuned.kind.windowing.max_seq_length  # three special tokens, one to read
    if invalid := [length for length in options.length if not shortest <= length <= longest]:
        raise UsageError(f"--length {invalid[0]}: the windows of {options.model} have {shortest} to {longest} tokens")
    limit = 0.0 if fine_tuned.kind.impossible else None
    answer = Answering(fine_tuned, limit=limit).answer
    begin = time.perf_counter()
    answer.get_concrete_function()
    trace = _milliseconds_since(begin)
    rng = np.random.default_rng(1)
    for length in options.length:
        for batch in options.batch:
            texts = [_texts(fine_tuned.tokenizer.vocab, batch, size, rng) for size in (question, length - 3 - question)]
            first, times = measure(answer, texts, options)
            yield {
                "batch": batch,
                "length": length,
                "compute": options.compute,
                "calls": options.calls,
                "trace_ms": trace,
                "first_ms": first,
                "mean_ms": float(times.mean()),
                **{f"p{p}_ms": float(np.percentile(times, p)) for p in PERCENTILES},
                "sequences_per_second": 1000 * batch / float(times.mean()),
            }


def _texts(vocab: list[str], count: int, tokens: int, rng: np.random.Generator) -> tf.Tensor:
    """Return random texts of `tokens` words, each one token."""
    import tensorflow as tf

    words = [token for token in vocab if token.isascii() and token.isalnum()] or [
        "x"
    ]  # unknown, which is one token too
    return tf.constant([" ".join(row) for row in rng.choice(words, (count, tokens)).tolist()])


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m squad.latency", description=__doc__)
    from bert.hardware import devices
    from squad.model import load

    devices.choose(options.device)
    rows = []
    for row in measure_all(load(options.model, options.compute), options):
        rows.append(row)
        print(json.dumps(row), flush=True)
    names = [name.removesuffix("_ms").replace("sequences_per_second", "seq/s") for name in COLUMNS]
    lines = [f"{'batch':>6} {'length':>6} " + " ".join(f"{name:>9}" for name in names)]
    lines += [f"{r['batch']:6} {r['length']:6} " + " ".join(f"{r[name]:9.1f}" for name in COLUMNS) for r in rows]
    title = f"milliseconds, {options.compute}; tracing took {rows[0]['trace_ms']:.0f}"
    print(title, *lines, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
