"""transformers on PyTorch, for benchmarks/steps.py: WAY, how its users run it; imports nothing of ours.

    python -m benchmarks.peers.transformers_torch WAY cpu|gpu     # benchmarks/adapter.py says what it answers

    eager       as from_pretrained gives it
    compile     torch.compile around that
    gathered    eager, but vocabulary scores at the masked positions alone, as ours; transformers has them at all
    gathered_compile    torch.compile around that
    padded      eager, but windows of every length are padded to the longest there may be, as its example run_qa.py does
                unless it is told otherwise

Training in bfloat16 is torch.autocast over float32 weights, inference a model converted to it. The update is that of
its Trainer: gradients clipped to norm 1, fused AdamW without decay for biases and layer norms.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from benchmarks import adapter, batch_file

RATE, DECAY, EPSILON = 1e-4, 0.01, 1e-6


class Output(NamedTuple):
    """The loss under the name that transformers has for it; torch.compile cannot return its ModelOutput."""

    loss: Any


class Gathered(torch.nn.Module):
    """BertForPreTraining with the masked-LM head on the masked positions."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, positions: Any, labels: Any, next_sentence_label: Any, **inputs: Any) -> Output:
        """Return the mean loss of the masked words, and of the pairs, added."""
        outputs = self.model.bert(**inputs)
        hidden, pooled = outputs.last_hidden_state, outputs.pooler_output
        rows = torch.arange(len(positions))[:, None]
        words, pair = self.model.cls(hidden[rows, positions], pooled)
        loss = torch.nn.functional.cross_entropy
        return Output(loss(words.flatten(0, 1).float(), labels.flatten()) + loss(pair.float(), next_sentence_label))


def tensors(batch: Mapping[str, np.ndarray], work: str, gathered: bool = False) -> dict[str, Any]:
    """A batch in the names of transformers."""
    arrays = {name: torch.from_numpy(value.astype(np.int64)) for name, value in batch.items()}
    renamed = {
        "input_ids": arrays["input_ids"],
        "attention_mask": arrays["input_mask"],
        "token_type_ids": arrays["segment_ids"],
    }
    if work == "finetune":
        return renamed | {name: arrays[name][:, 0] for name in ("start_positions", "end_positions")}
    if work == "infer":
        return renamed
    labels = torch.where(arrays["masked_lm_weights"] > 0, arrays["masked_lm_ids"], -100)
    renamed["next_sentence_label"] = arrays["next_sentence_labels"][:, 0]
    if gathered:
        return renamed | {"positions": arrays["masked_lm_positions"], "labels": labels}
    whole = torch.full_like(arrays["input_ids"], -100)
    for row, real in enumerate(arrays["masked_lm_weights"] > 0):
        whole[row, arrays["masked_lm_positions"][row, real]] = labels[row, real]
    return renamed | {"labels": whole}


def grouped(model: Any, decay: float) -> list[dict[str, Any]]:
    """Return the weights in groups as transformers' Trainer has them: biases and layer norms do not decay."""
    named = list(model.named_parameters())
    plain = [weight for name, weight in named if name.endswith("bias") or "LayerNorm" in name]
    others = [weight for name, weight in named if not (name.endswith("bias") or "LayerNorm" in name)]
    return [{"params": others, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


def _trim(batch: dict[str, Any]) -> dict[str, Any]:
    """Cut to its longest row."""
    longest, most = int(batch["attention_mask"].sum(1).max()), batch["input_ids"].shape[1]
    return {name: value[:, :longest] if value.shape[1:] == (most,) else value for name, value in batch.items()}


class Transformers:
    """A model and its step."""

    def __init__(self, way: str, device: str) -> None:
        self.way, self.device, self.kind = way, device, {"cpu": "cpu", "gpu": "cuda"}[device]

    def setup(self, work: str, weights: str, inputs: str, compute: str, dropout: float) -> adapter.Answer:
        """Build the model from the weights and load the batches.

        Return `shapes`, `threads` and `versions`, as described in `adapter.Contender`.
        """
        torch.manual_seed(1)
        self.work, self.dtype, gathered = work, getattr(torch, compute), self.way.startswith("gathered")
        kind = transformers.BertForPreTraining if work == "pretrain" else transformers.BertForQuestionAnswering
        model = kind.from_pretrained(
            f"{weights}/transformers",
            dtype=torch.float32,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        ).to(self.kind)
        model.bert.embeddings.word_embeddings.padding_idx = None  # else [PAD] alone would not learn, as it does in ours
        batches = [tensors(batch, work, gathered) for batch in batch_file.load(inputs)]
        whole = len(batches) == 1 or self.way == "padded"
        trimmed = batches if whole else [_trim(batch) for batch in batches]
        self.batches = [{name: value.to(self.kind) for name, value in batch.items()} for batch in trimmed]
        scored = self.batches[0]["labels"].shape[1] if work == "pretrain" else 0
        self.run = self._inference(model) if work == "infer" else self._training(model)
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        shapes = [[*batch["input_ids"].shape, scored] for batch in self.batches]
        return {"shapes": shapes, "threads": torch.get_num_threads(), "versions": versions}

    def _wrapped(self, model: Any) -> Any:
        if self.way.startswith("gathered") and self.work == "pretrain":
            model = Gathered(model)
        return torch.compile(model) if self.way.endswith("compile") else model

    def _training(self, model: Any) -> Any:
        optimizer = torch.optim.AdamW(grouped(model.train(), DECAY), lr=RATE, eps=EPSILON, fused=True)
        weights, compute = list(model.parameters()), self._wrapped(model)

        def update(batch: dict[str, Any]) -> float:
            optimizer.zero_grad()
            with torch.autocast(self.kind, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                loss = compute(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            return float(loss.item())

        return update

    def _inference(self, model: Any) -> Any:
        compute = self._wrapped(model.to(self.dtype).eval())

        @torch.inference_mode()
        def score(batch: dict[str, Any]) -> list[np.ndarray]:
            outputs = compute(**batch)
            return [logits.float().cpu().numpy() for logits in (outputs.start_logits, outputs.end_logits)]

        return score

    def values(self) -> adapter.Answer:
        """Return the losses of three updates on the first batch, or for inference the logits of its tokens."""
        batch = self.batches[0]
        if self.work != "infer":
            return {"values": [self.run(batch) for _ in range(3)]}
        real = batch["attention_mask"].cpu().numpy() > 0
        return {"values": np.stack(self.run(batch))[:, real].ravel().tolist()}

    def lap(self, laps: int) -> adapter.Answer:
        """Return the seconds of each pass over all batches.

        On a GPU, `peak_mb` is also returned: the most memory taken before these passes.
        """
        memory = {"peak_mb": torch.cuda.max_memory_allocated() / 1e6} if self.device == "gpu" else {}
        return adapter.timed(self.run, self.batches, laps) | memory

    def peak(self) -> adapter.Answer:
        """Return the FLOP/s of PyTorch's fastest square matrix product."""

        def product(size: int) -> Any:
            a, b = (torch.randn(size, size).to(self.kind, self.dtype) for _ in range(2))
            return lambda: torch.matmul(a, b)[0, 0].item()  # which waits for a GPU

        return adapter.fastest(product, self.device)


if __name__ == "__main__":
    adapter.serve(Transformers(sys.argv[1], sys.argv[2]))
