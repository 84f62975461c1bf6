"""Fine-tuning as users of transformers write it, for benchmarks/task_scores.py.

    python -m benchmarks.peers.transformers_fine_tuning START EXAMPLES.jsonl SETTINGS.json OUTPUT

START is the exported model that both sides start from. EXAMPLES has texts and labels in the order of the data set. All
else is done by transformers and PyTorch: the tokens of AutoTokenizer; a DataLoader, which draws a new order
for each epoch and pads to the longest row of a batch; the model of AutoModelForSequenceClassification or its
likes for choices and tokens, as START says; AdamW of torch, gradients clipped, bfloat16 through torch.autocast. Writes
the model, its vocabulary and metrics.jsonl. Imports nothing of ours.
"""

import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

from benchmarks.peers.transformers_torch import grouped

IGNORED = -100  # label of a token that has no part in the loss
INPUTS = ("input_ids", "token_type_ids")  # collators add the mask

Row = dict[str, Any]


def of_texts(tokenizer: Any, examples: Sequence[Row], length: int, numbers: dict[str, int]) -> Iterator[Row]:
    """Yield texts and pairs of texts with the number of their class; in regression the label is the number."""
    seconds = None if examples[0]["second"] is None else [example["second"] for example in examples]
    firsts = [example["first"] for example in examples]
    encoded = tokenizer(firsts, seconds, truncation=True, max_length=length)
    for row, example in enumerate(examples):
        label = example["label"]
        yield _inputs(encoded, row) | {"labels": numbers[label] if isinstance(label, str) else label}


def of_choices(tokenizer: Any, examples: Sequence[Row], length: int, numbers: dict[str, int]) -> Iterator[Row]:
    """Yield the pairs of each example together, with the number of the right one."""
    for example in examples:
        encoded = tokenizer(*map(list, zip(*example["pairs"], strict=True)), truncation=True, max_length=length)
        yield {name: encoded[name] for name in INPUTS} | {"labels": example["label"]}


def of_words(tokenizer: Any, examples: Sequence[Row], length: int, numbers: dict[str, int]) -> Iterator[Row]:
    """Yield sentences with the number of each word's tag at its first token."""
    words = [example["words"] for example in examples]
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
    for row, example in enumerate(examples):
        places = encoded.word_ids(row)
        labels = [
            IGNORED if word is None or word == previous else numbers[example["tags"][word]]
            for previous, word in itertools.pairwise([None, *places])
        ]
        yield _inputs(encoded, row) | {"labels": labels}


def _inputs(encoded: Any, row: int) -> Row:
    return {name: encoded[name][row] for name in INPUTS}


KINDS = {
    "SequenceClassification": (AutoModelForSequenceClassification, of_texts, DataCollatorWithPadding),
    "MultipleChoice": (AutoModelForMultipleChoice, of_choices, DataCollatorForMultipleChoice),
    "TokenClassification": (AutoModelForTokenClassification, of_words, DataCollatorForTokenClassification),
}


def kind_of(start: Path) -> Any:
    """Return class of the model, reader of examples and class of the collator."""
    return KINDS[AutoConfig.from_pretrained(start).architectures[0].removeprefix("BertFor")]


def batches(start: Path, examples: Sequence[Row], settings: Row) -> Iterator[Row]:
    """Yield batches of one epoch after another without end; the last of an epoch may be smaller."""
    _, read, collator = kind_of(start)
    tokenizer, numbers = AutoTokenizer.from_pretrained(start), AutoConfig.from_pretrained(start).label2id
    rows, size = list(read(tokenizer, examples, settings["length"], numbers)), settings["batch"]
    generator = torch.Generator().manual_seed(settings["seed"])
    if settings["order"] == "grouped":  # as its Trainer with group_by_length
        lengths = [len(row["input_ids"]) for row in rows]
        order = LengthGroupedSampler(size, lengths=lengths, generator=generator)
    else:
        order = RandomSampler(rows, generator=generator)
    loader = DataLoader(rows, size, sampler=order, collate_fn=collator(tokenizer))
    return itertools.chain.from_iterable(itertools.repeat(loader))


def main(start: Path, examples_file: Path, settings_file: Path, output: Path) -> None:
    """Train and write."""
    settings = json.loads(settings_file.read_text(encoding="utf-8"))
    with open(examples_file, encoding="utf-8") as stream:
        examples = [json.loads(line) for line in stream]
    torch.manual_seed(settings["seed"])
    model = kind_of(start)[0].from_pretrained(start, dtype=torch.float32)
    weights = grouped(model, settings["weight_decay"])
    optimizer = torch.optim.AdamW(weights, betas=settings["betas"], eps=settings["epsilon"], fused=True)
    model.train()
    shutil.rmtree(output, ignore_errors=True)  # of a run that was stopped
    output.mkdir()
    updates = zip(settings["rates"], batches(start, examples, settings), strict=False)  # batches do not end
    with open(output / "metrics.jsonl", "w", encoding="utf-8") as log:
        begun = time.perf_counter()
        for number, (rate, batch) in enumerate(updates, 1):
            for group in optimizer.param_groups:
                group["lr"] = rate
            with torch.autocast("cpu", torch.bfloat16, enabled=settings["compute"] == "bfloat16"):
                loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])
            optimizer.step()
            line = {"split": "train", "step": number, "loss": loss.item()}
            seconds, begun = time.perf_counter() - begun, time.perf_counter()
            print(json.dumps(line | {"sequences_per_second": len(batch["input_ids"]) / seconds}), file=log, flush=True)
    model.save_pretrained(output)
    shutil.copyfile(start / "vocab.txt", output / "vocab.txt")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
