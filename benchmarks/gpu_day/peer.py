"""The pretraining step of transformers on PyTorch, compiled, on a GPU; imports nothing of ours but what reads batches.

    python -m benchmarks.gpu_day.peer MODEL.json BATCH.npz ANSWER.json MICRO_BATCHES SECONDS

As benchmarks/peers/transformers_torch.py has it: bfloat16 by autocast over float32 weights, masked positions alone
scored, gradients clipped to norm 1, fused AdamW. Exit code 3: PyTorch, transformers or a GPU is missing.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def step(model_file: str, batch_file: str, micro_batches: int) -> Any:
    """A function that makes one update, and what there is to say of the machine."""
    import torch
    import transformers

    from benchmarks import batch_file as reader
    from benchmarks.peers import transformers_torch as ours

    if not torch.cuda.is_available():
        raise ImportError("PyTorch sees no GPU")
    fields = json.loads(Path(model_file).read_text(encoding="utf-8"))
    known = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings")
    multiple = fields["vocab_multiple"]
    words = -(-fields["vocab_size"] // multiple) * multiple
    config = transformers.BertConfig(vocab_size=words, **{name: fields[name] for name in known})
    torch.manual_seed(1)
    model = ours.Gathered(transformers.BertForPreTraining(config).cuda().train())
    compute = torch.compile(model)
    (arrays,) = reader.load(batch_file)
    batch = {name: value.cuda() for name, value in ours.tensors(arrays, "pretrain", gathered=True).items()}
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(ours.grouped(model, ours.DECAY), lr=ours.RATE, eps=ours.EPSILON, fused=True)

    def update() -> float:
        optimizer.zero_grad()
        for _ in range(micro_batches):
            with torch.autocast("cuda", torch.bfloat16):
                loss = compute(**batch).loss / micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return float(loss)

    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "cuda": torch.version.cuda}
    return update, versions, torch.cuda.max_memory_allocated


def main(model: str, batch: str, answer: str, micro_batches: int, seconds: float) -> None:
    """Times updates and writes the answer."""
    try:
        update, versions, peak = step(model, batch, micro_batches)
    except ImportError as error:
        print(f"transformers cannot be measured: {error}", file=sys.stderr)
        raise SystemExit(3) from error
    begun = time.perf_counter()
    update()
    first = time.perf_counter() - begun
    update()
    spent: list[float] = []
    while len(spent) < 3 or sum(spent) < seconds:
        begun = time.perf_counter()
        update()
        spent.append(time.perf_counter() - begun)
    result = {"first_seconds": first, "seconds": spent, "peak_bytes": peak(), "versions": versions}
    Path(answer).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
