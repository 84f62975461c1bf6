"""Measures how long a fine-tuned model takes from text to answer, as squad.export would serve it.

    python -m squad.latency --model RUN --batch 1 8 32 --length 128 384 [--compute bfloat16]

Questions and passages are invented words of the model's vocabulary that fill one window of each length. One JSON line a
setting goes to standard output, a table to standard error. The graph is traced once, before anything is timed; the
first call of a setting, in which TensorFlow prepares for its shapes, is told apart, and warm-up calls do not count.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert import cli
from bert.errors import UsageError
from bert.hardware import devices
from bert.hardware.devices import Kind
from squad.export import Answering
from squad.model import Compute, FineTuned, load

PERCENTILES = (50, 90, 95, 99)
COLUMNS = ["first_ms", "mean_ms", *(f"p{p}_ms" for p in PERCENTILES), "sequences_per_second"]
QUESTION = 9  # words


@dataclass(frozen=True, kw_only=True)
class Options:
    model: Path
    """run directory of python -m squad.train"""
    batch: tuple[int, ...] = (1, 8, 32)
    """questions in a call"""
    length: tuple[int, ...] = (128, 384)
    """tokens of a question with its passage"""
    compute: Compute = "float32"
    """type of the encoder's matrix products"""
    warmup: int = 5
    """calls of a setting that are not counted, after the first"""
    calls: int = 100
    """calls of a setting that are"""
    device: Kind = "auto"
    """what to compute on; auto takes a GPU where there is one"""

    def __post_init__(self) -> None:
        if min(*self.batch, self.calls) < 1 or self.warmup < 0:
            raise UsageError("--batch and --calls must be positive, --warmup not negative")


def measure(
    answer: Callable[..., dict[str, tf.Tensor]], texts: Sequence[tf.Tensor], options: Options
) -> tuple[float, np.ndarray]:
    """Milliseconds of the first call, and of each that counts."""
    spent = []
    for _ in range(1 + options.warmup + options.calls):
        begun = time.perf_counter()
        answer(*texts)["answer"].numpy()
        spent.append(_since(begun))
    return spent[0], np.array(spent[1 + options.warmup :])


def _since(begun: float) -> float:
    return 1000 * (time.perf_counter() - begun)


def settings(fine_tuned: FineTuned, options: Options) -> Iterator[dict[str, Any]]:
    """What each length and batch takes, one after another.

    Raises UsageError, before anything is timed, for a length that the model's windows do not have.
    """
    question = min(QUESTION, fine_tuned.windowing.max_query_length)
    shortest, longest = question + 4, fine_tuned.windowing.max_seq_length  # three special tokens, one to read
    if wrong := [length for length in options.length if not shortest <= length <= longest]:
        raise UsageError(f"--length {wrong[0]}: the windows of {options.model} have {shortest} to {longest} tokens")
    limit = 0.0 if fine_tuned.impossible else None
    answer = Answering(fine_tuned, limit=limit).answer
    begun = time.perf_counter()
    answer.get_concrete_function()
    trace = _since(begun)
    rng = np.random.default_rng(1)
    for length in options.length:
        for batch in options.batch:
            texts = [_texts(fine_tuned.tokenizer.vocab, batch, size, rng) for size in (question, length - 3 - question)]
            first, spent = measure(answer, texts, options)
            yield {
                "batch": batch,
                "length": length,
                "compute": options.compute,
                "calls": options.calls,
                "trace_ms": trace,
                "first_ms": first,
                "mean_ms": float(spent.mean()),
                **{f"p{p}_ms": float(np.percentile(spent, p)) for p in PERCENTILES},
                "sequences_per_second": 1000 * batch / float(spent.mean()),
            }


def _texts(vocab: list[str], count: int, tokens: int, rng: np.random.Generator) -> tf.Tensor:
    """Texts of so many tokens, each a word."""
    words = [token for token in vocab if token.isascii() and token.isalnum()] or ["x"]  # unknown, and one token too
    return tf.constant([" ".join(row) for row in rng.choice(words, (count, tokens)).tolist()])


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m squad.latency", description=__doc__)
    devices.choose(options.device)
    found = []
    for row in settings(load(options.model, options.compute), options):
        found.append(row)
        print(json.dumps(row), flush=True)
    names = [name.removesuffix("_ms").replace("sequences_per_second", "seq/s") for name in COLUMNS]
    lines = [f"{'batch':>6} {'length':>6} " + " ".join(f"{name:>9}" for name in names)]
    lines += [f"{r['batch']:6} {r['length']:6} " + " ".join(f"{r[name]:9.1f}" for name in COLUMNS) for r in found]
    title = f"milliseconds, {options.compute}; tracing took {found[0]['trace_ms']:.0f}"
    print(title, *lines, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
