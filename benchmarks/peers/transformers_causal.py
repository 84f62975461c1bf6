"""GPT2LMHeadModel of transformers in a plain PyTorch loop, for benchmarks/causal_curve.py; imports nothing of ours.

    python -m benchmarks.peers.transformers_causal WORK.json

The model is in float32 without dropout, as from_pretrained gives it. The update is the usual one: gradients of all
micro-batches, clipped, fused AdamW, no decay for biases and layer norms.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def loss_of(model: Any, ids: np.ndarray) -> Any:
    """The mean loss of samples [B, T + 1]."""
    tokens = torch.from_numpy(ids.astype(np.int64))
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def evaluate(model: Any, samples: np.ndarray, size: int) -> float:
    """The mean loss of all samples."""
    with torch.no_grad():
        parts = [
            (float(loss_of(model, samples[at : at + size])), len(samples[at : at + size]))
            for at in range(0, len(samples), size)
        ]
    return sum(loss * count for loss, count in parts) / sum(count for _, count in parts)


def main() -> None:
    work = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    config = transformers.AutoConfig.from_pretrained(work["weights"])
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = transformers.GPT2LMHeadModel.from_pretrained(work["weights"], config=config)
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": work["weight_decay"]},
        {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=work["betas"], eps=work["epsilon"], fused=True)
    train, heldout = (np.load(work[name], mmap_mode="r") for name in ("train", "heldout"))
    total, size, begun = work["sequences"], work["micro_batch"], time.perf_counter()
    with open(work["output"], "w", encoding="utf-8") as stream:
        for done, rate in enumerate(work["rates"]):
            for group in optimizer.param_groups:
                group["lr"] = rate
            samples = np.asarray(train[done * total : (done + 1) * total])
            for at in range(0, total, size):
                part = samples[at : at + size]
                (loss_of(model, part) * (len(part) / total)).backward()
            torch.nn.utils.clip_grad_norm_(weights, work["clip_norm"])
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if (done + 1) % work["evaluate_every"] == 0 or done + 1 == len(work["rates"]):
                point = {"step": done + 1, "loss": evaluate(model, np.asarray(heldout), size)}
                print(
                    json.dumps(point | {"cpu": time.process_time(), "wall": time.perf_counter() - begun}),
                    file=stream,
                    flush=True,
                )


if __name__ == "__main__":
    main()
