"""Time and peak memory of the loss over a large vocabulary: in chunks of rows, or with all scores at once.

    python -m benchmarks.chunked_loss --form chunked --rows 8192
    python -m benchmarks.chunked_loss --form whole --rows 8192

Each prints one line of JSON. Memory is that of the process, so each form needs a process of its own. `seconds` is the
CPU time of one loss with its gradients, the median of the repetitions, on one core.
"""

import json
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Annotated, Literal

import tensorflow as tf

from bert import cli, ranges
from bert.hardware import graphs
from bert.model import chunked_loss, losses
from bert.ranges import Range


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of the command."""

    form: Literal["chunked", "whole"]
    """how the loss is computed"""
    rows: Annotated[int, Range(1, 1_000_000)] = 2048
    """tokens whose scores are computed"""
    width: Annotated[int, Range(1, 65_536)] = 768
    """of the hidden states"""
    words: Annotated[int, Range(2, 1_000_000)] = 50_257
    """of the vocabulary"""
    repetitions: Annotated[int, Range(1, 1000)] = 3
    """after the first one, which compiles"""

    def __post_init__(self) -> None:
        ranges.check(self)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.chunked_loss", description=__doc__)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hidden = tf.random.stateless_normal([options.rows, options.width], [1, 2])
    table = tf.random.stateless_normal([options.words, options.width], [1, 3], stddev=0.02)
    labels = tf.random.stateless_uniform([options.rows], [1, 4], 0, options.words, tf.int32)

    @graphs.function
    def compute() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch([hidden, table])
            if options.form == "chunked":
                loss = chunked_loss.tied(hidden, table, labels, tf.float32).loss
            else:
                scores = tf.matmul(hidden, table, transpose_b=True)
                loss = losses.classification(scores, tf.zeros(options.words), labels, tf.ones(options.rows)).loss
        return loss, tape.gradient(loss, [hidden, table])

    before, seconds = _peak_bytes(), []
    for _ in range(options.repetitions + 1):
        begin = time.process_time()
        loss = float(compute()[0])
        seconds.append(time.process_time() - begin)
    measured = {"seconds": statistics.median(seconds[1:]), "bytes": _peak_bytes() - before, "loss": loss}
    print(json.dumps({"form": options.form, "rows": options.rows, **measured}))


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    cli.main(main)
