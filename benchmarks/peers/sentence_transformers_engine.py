"""sentence-transformers by one of its backends, for benchmarks/encoding.py; imports nothing of ours.

    python -m benchmarks.peers.sentence_transformers_engine FOLDER torch|onnx|openvino float32|bfloat16

FOLDER is what `bert.convert export huggingface`, `bert.export onnx` or `bert.export openvino` has written. Takes two
paths in a line: that of a JSON list of texts, and that of the vectors to write as .npy. Answers with the milliseconds
that `encode` took, by the clock and of processor time. Runs in the environment of scripts/extra_venv.sh optimum.
"""

import json
import os
import sys
import time
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

HINTS = {"float32": "f32", "bfloat16": "bf16"}


def settings_of(backend: str, compute: str) -> dict[str, Any]:
    """Return what the backend needs to compute in a type, on the CPU."""
    if backend == "onnx":
        if compute != "float32":
            raise SystemExit("error: the file of ONNX computes in float32")
        return {"provider": "CPUExecutionProvider"}
    if backend == "openvino":
        return {"ov_config": {"INFERENCE_PRECISION_HINT": HINTS[compute]}}
    return {"torch_dtype": getattr(torch, compute)}


def main(folder: str, backend: str, compute: str) -> None:
    """Answer lines until there are no more."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    made: Any = SentenceTransformer
    model = made(folder, device="cpu", backend=backend, model_kwargs=settings_of(backend, compute))
    for line in sys.stdin:
        source, target = line.split()
        with open(source) as stream:
            texts = json.load(stream)
        begun, spent = time.perf_counter(), time.process_time()
        vectors = model.encode(texts, batch_size=32)
        times = 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - spent)
        np.save(target, np.asarray(vectors, np.float32))
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
