"""transformers on PyTorch as an engine for questions, for benchmarks/engines.py; imports nothing of ours.

    python -m benchmarks.peers.transformers_engine MODEL eager|compile|optimum float32|bfloat16

Takes two paths in a line: that of the inputs as .npz, and that of the logits to write as .npy. Answers with the
milliseconds that the model took, by the clock and of processor time. Runs in the environment of scripts/extra_venv.sh
parity, or optimum for the model that optimum-intel loads.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering


def of_torch(folder: str, way: str, compute: str) -> Any:
    """Return the model of a folder on PyTorch."""
    model = AutoModelForQuestionAnswering.from_pretrained(folder).to(getattr(torch, compute)).eval()
    return torch.compile(model) if way == "compile" else model


def of_openvino(folder: str, compute: str) -> Any:
    """Return the model of a folder as optimum-intel converts and loads it."""
    from optimum.intel import OVModelForQuestionAnswering

    hint = {"float32": "f32", "bfloat16": "bf16"}[compute]
    return OVModelForQuestionAnswering.from_pretrained(
        folder, export=True, ov_config={"INFERENCE_PRECISION_HINT": hint}
    )


def main(folder: str, way: str, compute: str) -> None:
    """Answer lines until there are no more."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    function = of_openvino(folder, compute) if way == "optimum" else of_torch(folder, way, compute)
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
