"""Measure how fast samples are read: FOLDER SECONDS. Reads in the trainer's order; prints number and seconds."""

import itertools
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from bert.inputs import dynamic_masking, sampler

BATCH = 64


def main(folder: Path, seconds: float) -> None:
    """Read batches for about `seconds`."""
    source = dynamic_masking.source(folder, "train", seed=1)
    source.read(np.arange(BATCH), np.arange(BATCH))  # compiles and opens what is needed
    order = sampler.SampleOrder(len(source), BATCH, seed=1)
    begun = time.perf_counter()
    for number in itertools.count():
        positions = number * BATCH + np.arange(BATCH)
        source.read(order(positions), positions)
        spent = time.perf_counter() - begun
        if spent > seconds:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"sequences": (number + 1) * BATCH, "seconds": spent, "peak_mb": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
