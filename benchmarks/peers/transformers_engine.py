"""transformers on PyTorch as an engine for questions, for benchmarks/engines.py; imports nothing of ours.

    python -m benchmarks.peers.transformers_engine MODEL eager|compile float32|bfloat16

Takes two paths in a line: that of the inputs as .npz, and that of the logits to write as .npy. Answers with the
milliseconds that the model took, by the clock and of processor time. Runs in the environment of scripts/extra_venv.sh
parity.
"""

import json
import os
import sys
import time

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering


def main(folder: str, way: str, compute: str) -> None:
    """Answer lines until there are no more."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = AutoModelForQuestionAnswering.from_pretrained(folder).to(getattr(torch, compute)).eval()
    function = torch.compile(model) if way == "compile" else model
    for line in sys.stdin:
        source, target = line.split()
        arrays = [torch.from_numpy(array.astype(np.int64)) for array in np.load(source).values()]
        given = dict(zip(("input_ids", "attention_mask", "token_type_ids"), arrays, strict=True))
        begun, spent = time.perf_counter(), time.process_time()
        with torch.inference_mode():
            output = function(**given)
        times = 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - spent)
        np.save(target, torch.stack([output.start_logits, output.end_logits]).float().numpy())
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
