"""Fine-tuning as users of transformers write it: START BATCHES.npz OUTPUT COMPUTE SEED.

The model of `AutoModelForQuestionAnswering`, AdamW of torch, gradients clipped, bfloat16 through torch.autocast. Takes
the batches of benchmarks/squad_scores.py in their order and writes the model, its vocabulary and metrics.jsonl.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering

EVERY = 10  # updates between lines


def main(start: Path, batches: Path, output: Path, compute: str, seed: int) -> None:
    """Trains and writes."""
    torch.manual_seed(seed)
    model = AutoModelForQuestionAnswering.from_pretrained(start, dtype=torch.float32)
    given = np.load(batches)
    beta_1, beta_2, epsilon, decay, clip = map(float, given["adamw"])
    exempt = [weight for name, weight in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    others = [weight for name, weight in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": others, "weight_decay": decay}, {"params": exempt, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(beta_1, beta_2), eps=epsilon)
    model.train()
    output.mkdir()
    with open(output / "metrics.jsonl", "w", encoding="utf-8") as log:
        begun, rows = time.perf_counter(), 0
        for number, rate in enumerate(given["rates"], start=1):
            batch = _batch(given, number - 1)
            for group in optimizer.param_groups:
                group["lr"] = float(rate)
            with torch.autocast("cpu", torch.bfloat16, enabled=compute == "bfloat16"):
                loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            rows += len(batch["input_ids"])
            if number % EVERY == 0:
                speed = rows / (time.perf_counter() - begun)
                line = {"split": "train", "step": number, "loss": loss.item(), "sequences_per_second": speed}
                print(json.dumps(line), file=log, flush=True)
                begun, rows = time.perf_counter(), 0
    model.save_pretrained(output)
    shutil.copyfile(start / "vocab.txt", output / "vocab.txt")


def _batch(given: "np.lib.npyio.NpzFile", number: int) -> dict[str, torch.Tensor]:
    names = {"input_ids": "input_ids", "input_mask": "attention_mask", "segment_ids": "token_type_ids",
             "start_positions": "start_positions", "end_positions": "end_positions"}  # fmt: skip
    found = {theirs: torch.from_numpy(given[f"{number}/{ours}"]).long() for ours, theirs in names.items()}
    return found | {name: found[name][:, 0] for name in ("start_positions", "end_positions")}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
