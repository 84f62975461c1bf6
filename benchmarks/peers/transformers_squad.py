"""Fine-tuning as users of transformers write it, for benchmarks/squad_scores.py; imports nothing of ours.

    python -m benchmarks.peers.transformers_squad START BATCHES.npz RATES.npz OUTPUT COMPUTE SEED

The model of `AutoModelForQuestionAnswering`, AdamW of torch, gradients clipped, bfloat16 through torch.autocast. Takes
the batches in their order and writes the model, its vocabulary and metrics.jsonl.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering

from benchmarks import batch_file
from benchmarks.peers.transformers_torch import grouped, tensors


def main(start: Path, batches: Path, learning: Path, output: Path, compute: str, seed: int) -> None:
    """Trains and writes."""
    torch.manual_seed(seed)
    model = AutoModelForQuestionAnswering.from_pretrained(start, dtype=torch.float32)
    given = np.load(learning)
    beta_1, beta_2, epsilon, decay, clip = map(float, given["adamw"])
    optimizer = torch.optim.AdamW(grouped(model, decay), betas=(beta_1, beta_2), eps=epsilon, fused=True)
    model.train()
    output.mkdir()
    with open(output / "metrics.jsonl", "w", encoding="utf-8") as log:
        begun = time.perf_counter()
        for number, (rate, arrays) in enumerate(zip(given["rates"], batch_file.load(str(batches)), strict=True), 1):
            batch = tensors(arrays, "finetune")
            for group in optimizer.param_groups:
                group["lr"] = float(rate)
            with torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
                loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            line = {"split": "train", "step": number, "loss": loss.item()}
            taken, begun = time.perf_counter() - begun, time.perf_counter()
            print(json.dumps(line | {"sequences_per_second": len(arrays["input_ids"]) / taken}), file=log, flush=True)
    model.save_pretrained(output)
    shutil.copyfile(start / "vocab.txt", output / "vocab.txt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
