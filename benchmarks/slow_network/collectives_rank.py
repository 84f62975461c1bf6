"""One rank of a measurement: ways to sum a bucket of gradients over the ranks.

scripts/launch.sh -np N ... -- python -m benchmarks.slow_network.collectives_rank TASK.json
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from benchmarks.slow_network import collectives, link
from bert.config import RunConfig
from bert.hardware import graphs
from bert.storage import files
from bert.training.distributed import connect


def pack(x: tf.Tensor) -> tf.Tensor:
    """Return float32 numbers rounded to bfloat16, as 16-bit words."""
    return tf.bitcast(tf.cast(x, tf.bfloat16), tf.uint16)


def unpack(words: tf.Tensor) -> tf.Tensor:
    """Return the numbers of 16-bit words as float32."""
    return tf.cast(tf.bitcast(words, tf.bfloat16), tf.float32)


def summed(x: tf.Tensor) -> tf.Tensor:
    return hvd.allreduce(x, op=hvd.Sum, name="summed")


def scattered_and_gathered(x: tf.Tensor) -> tf.Tensor:
    return hvd.allgather(hvd.reducescatter(x, op=hvd.Sum, name="scattered"), name="scattered_sums")


def in_float16(x: tf.Tensor) -> tf.Tensor:
    return hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16, name="in_float16")


def gathered(x: tf.Tensor) -> tf.Tensor:
    words = hvd.allgather(pack(x)[None], name="gathered")  # [ranks, n]
    return tf.reduce_sum(unpack(words), axis=0)


def exchanged(x: tf.Tensor) -> tf.Tensor:
    ranks = hvd.size()
    padded = tf.pad(x, [[0, -x.shape[0] % ranks]])
    words, _ = hvd.alltoall(pack(padded), splits=tf.fill([ranks], len(padded) // ranks), name="exchanged")
    sums = tf.reduce_sum(tf.reshape(unpack(words), [ranks, -1]), axis=0)
    return unpack(hvd.allgather(pack(sums), name="exchanged_sums"))[: x.shape[0]]


FUNCTIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = dict(
    zip(collectives.WAYS, (summed, scattered_and_gathered, in_float16, gathered, exchanged), strict=True)
)


def main() -> None:
    task = files.read_json(Path(sys.argv[1]))
    comm = connect(RunConfig(device="cpu"))
    vectors = [
        np.random.default_rng(rank).standard_normal(collectives.SIZE // 4, np.float32) for rank in range(comm.size)
    ]
    expected, mine = np.sum(vectors, axis=0), tf.constant(vectors[comm.rank])
    ways = {way: graphs.function(function) for way, function in FUNCTIONS.items()}
    with open(Path(task["folder"], f"rank-{comm.rank}.jsonl"), "a", encoding="utf-8") as stream:
        for _ in range(task["turns"]):
            for way, reduce in ways.items():
                error = float(np.abs(reduce(mine).numpy() - expected).max() / np.abs(expected).max())
                comm.all_reduce([tf.zeros([])])  # begin together
                sent, cpu, seconds = link.traffic()[1], time.process_time(), []
                for _ in range(task["repeats"]):
                    began = time.perf_counter()
                    reduce(mine).numpy()
                    seconds.append(time.perf_counter() - began)
                cpu = (time.process_time() - cpu) / task["repeats"]
                sent = (link.traffic()[1] - sent) / task["repeats"]
                told = {"way": way, "seconds": seconds, "cpu": cpu, "sent": sent, "error": error}
                print(json.dumps(told), file=stream, flush=True)


if __name__ == "__main__":
    main()
