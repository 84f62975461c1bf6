"""Fine-tuning as users of transformers write it, for benchmarks/squad_scores.py and benchmarks/task_scores.py.

    python -m benchmarks.peers.transformers_fine_tuning START BATCHES.npz RATES.npz OUTPUT COMPUTE SEED

The model of `AutoModelForQuestionAnswering`, or of its likes for classes, choices and tokens, as START says; AdamW of
torch, gradients clipped, bfloat16 through torch.autocast. Takes the batches in their order, those of tasks cut to their
longest row, and writes the model, its vocabulary and metrics.jsonl. Imports nothing of ours.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from benchmarks import batch_file
from benchmarks.peers.transformers_torch import grouped, tensors

MODELS = {
    "QuestionAnswering": AutoModelForQuestionAnswering,
    "SequenceClassification": AutoModelForSequenceClassification,
    "MultipleChoice": AutoModelForMultipleChoice,
    "TokenClassification": AutoModelForTokenClassification,
}
INPUTS = ("input_ids", "input_mask", "segment_ids")
IGNORED = -100  # label of a token that has no part in the loss


def batch_of(arrays: dict[str, np.ndarray], kind: str) -> dict[str, Any]:
    """Return a batch in the names of transformers."""
    if kind == "QuestionAnswering":
        return tensors(arrays, "finetune")
    longest = int(arrays["input_mask"].sum(axis=-1).max())
    inputs = tensors({name: arrays[name][..., :longest] for name in INPUTS}, "infer")
    if kind == "TokenClassification":
        read = arrays["label"][:, :longest].astype(np.int64)
        return inputs | {"labels": torch.from_numpy(np.where(read < 0, IGNORED, read))}
    labels = torch.from_numpy(arrays["label"][:, 0])
    return inputs | {"labels": labels if labels.is_floating_point() else labels.long()}


def main(start: Path, batches: Path, learning: Path, output: Path, compute: str, seed: int) -> None:
    """Train and write."""
    torch.manual_seed(seed)
    kind = AutoConfig.from_pretrained(start).architectures[0].removeprefix("BertFor")
    model = MODELS[kind].from_pretrained(start, dtype=torch.float32)
    given = np.load(learning)
    beta_1, beta_2, epsilon, decay, clip = map(float, given["adamw"])
    optimizer = torch.optim.AdamW(grouped(model, decay), betas=(beta_1, beta_2), eps=epsilon, fused=True)
    model.train()
    shutil.rmtree(output, ignore_errors=True)  # of a run that was stopped
    output.mkdir()
    with open(output / "metrics.jsonl", "w", encoding="utf-8") as log:
        begun = time.perf_counter()
        for number, (rate, arrays) in enumerate(zip(given["rates"], batch_file.load(str(batches)), strict=True), 1):
            batch = batch_of(arrays, kind)
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
