"""Pretraining on single sentences as users of transformers write it, for the laboratory.

    python -m benchmarks.peers.transformers_pretraining SETTINGS.json SENTENCES.txt FOLDER

Trains from update `start` to update `stop`. FOLDER has a tokenizer and bert_config.json, and state-START.pt of an
earlier call; it gets `model`, state-STOP.pt and metrics.jsonl with what these updates logged.

All is done by transformers and PyTorch: BertForMaskedLM with its own initial weights, the tokens of AutoTokenizer, the
masks of DataCollatorForLanguageModeling, a new order of all sentences in each epoch, batches padded to their longest
sentence, fused AdamW, gradients clipped, bfloat16 through torch.autocast. Imports nothing of ours.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

from benchmarks.peers.transformers_torch import grouped

STATE = "state-{}.pt"


class Sentences(torch.utils.data.Dataset[str]):
    """Sentences in the order of the updates that read them: in each epoch a new order of all."""

    def __init__(self, sentences: list[str], first: int, end: int, seed: int) -> None:
        """first, end: numbers of the first sample and of the one behind the last, from the first update on."""
        self.sentences, self.first, self.end, self.seed = sentences, first, end, seed
        self._epoch, self._order = -1, torch.zeros(0, dtype=torch.long)

    def __len__(self) -> int:
        return self.end - self.first

    def __getitem__(self, number: int) -> str:
        epoch, place = divmod(self.first + number, len(self.sentences))
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self.seed + 1_000_003 * epoch)
            self._epoch, self._order = epoch, torch.randperm(len(self.sentences), generator=generator)
        return self.sentences[self._order[place]]


def collator(tokenizer: Any, settings: dict[str, Any]) -> Any:
    """Return what makes a batch of sentences: tokens, padding and masks."""
    masked, random, _ = settings["mask_shares"]
    mask = DataCollatorForLanguageModeling(
        tokenizer,
        mlm_probability=settings["masked_lm_prob"],
        mask_replace_prob=masked,
        random_replace_prob=random,
    )

    def batch(sentences: list[str]) -> Any:
        encoded = tokenizer(sentences, truncation=True, max_length=settings["length"], return_special_tokens_mask=True)
        return mask([{name: values[row] for name, values in encoded.items()} for row in range(len(sentences))])

    return batch


def main(settings_file: Path, sentences_file: Path, folder: Path) -> None:
    """Train and write."""
    settings: dict[str, Any] = json.loads(settings_file.read_text(encoding="utf-8"))
    start, stop, size, every = (settings[name] for name in ("start", "stop", "batch", "log_every"))
    torch.manual_seed(settings["seed"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForMaskedLM(BertConfig.from_json_file(folder / "bert_config.json"))
    weights = grouped(model, settings["weight_decay"])
    optimizer = torch.optim.AdamW(weights, betas=settings["betas"], eps=settings["epsilon"], fused=True)
    if start:
        state = torch.load(folder / STATE.format(start))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    model.train()
    texts = Sentences(
        sentences_file.read_text(encoding="utf-8").split("\n")[:-1], start * size, stop * size, settings["seed"]
    )
    batches = iter(DataLoader(texts, size, collate_fn=collator(tokenizer, settings)))  # draws a random number
    if start:
        torch.set_rng_state(state["random"])
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as log:
        begun, loss_sum, tokens, places, since = time.perf_counter(), 0.0, 0, 0, start
        for step, batch in enumerate(batches, start + 1):
            for group in optimizer.param_groups:
                group["lr"] = settings["rates"][step - 1]
            with torch.autocast("cpu", torch.bfloat16, enabled=settings["compute"] == "bfloat16"):
                loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
            optimizer.step()
            loss_sum, tokens = loss_sum + loss.item(), tokens + int(batch["attention_mask"].sum())
            places += batch["input_ids"].numel()
            if step % every == 0 or step == stop:
                seconds, updates = time.perf_counter() - begun, step - since
                line = {"step": step, "split": "train", "loss": loss_sum / updates, "gradient_norm": float(norm)}
                line |= {"sequences_per_second": updates * size / seconds, "tokens_per_second": places / seconds}
                print(json.dumps(line | {"padding": 1 - tokens / places}), file=log, flush=True)
                begun, loss_sum, tokens, places, since = time.perf_counter(), 0.0, 0, 0, step
    model.save_pretrained(folder / "model")
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copyfile(folder / name, folder / "model" / name)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    torch.save(state, folder / STATE.format(stop))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
