"""Shards of sentences to TFRecords of masked training instances, as google-research/bert makes them.

    python -m data.tfrecords --source workdir/corpus/shards --vocab workdir/corpus/vocab/vocab.txt \\
        --output workdir/tfrecords/seq128 --max_seq_length 128 --max_predictions_per_seq 20

Each shard is one task with its own random numbers, drawn from the seed and the shard's name. The training shards are
gone through `dupe_factor` times, with other pairs and masks each time; the held-out ones once.
"""

import dataclasses
import functools
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert import cli, manifest, records
from bert.errors import InputError, UsageError
from bert.tokenization import Tokenizer
from bert.vocabulary import SPECIAL
from data import instances, parts, workers
from data.progress import Progress
from data.vocab import check_case

TEXT_BATCH = 1 << 20  # characters tokenised at once
ROW_BATCH = 1024  # instances built, masked and serialised at once
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.tfrecords`."""

    source: Path
    """folder written by data.shards"""
    vocab: Path
    """vocab.txt"""
    output: Path
    """folder to write"""
    max_seq_length: int = 128
    """tokens of an instance, [CLS] and [SEP] included"""
    max_predictions_per_seq: int = 20
    """masked tokens of an instance at most; 15 % of the length is enough"""
    dupe_factor: int = 5
    """times the training text is gone through"""
    masked_lm_prob: float = 0.15
    """share of tokens to predict"""
    short_seq_prob: float = 0.1
    """share of instances with a random, shorter length"""
    whole_word_mask: bool = False
    """mask all pieces of a word or none"""
    lower_case: bool = True
    """lower-case and strip accents"""
    seed: int = 12345
    """another seed, other pairs and masks"""
    workers: int = workers.available()
    """processes"""

    def __post_init__(self) -> None:
        workers.check(self.workers)
        if self.max_seq_length < 8 or self.dupe_factor < 1:
            raise UsageError("data.tfrecords: --max_seq_length must be at least 8, --dupe_factor at least 1")
        if not 1 <= self.max_predictions_per_seq <= self.max_seq_length - instances.SPECIAL_PER_PAIR:
            raise UsageError(
                f"--max_predictions_per_seq {self.max_predictions_per_seq}: must be from 1 to --max_seq_length minus 3"
            )
        if not (0 < self.masked_lm_prob < 1 and 0 <= self.short_seq_prob <= 1 and self.seed >= 0):
            raise UsageError("data.tfrecords: --masked_lm_prob and --short_seq_prob must be shares, --seed at least 0")

    def parameters(self) -> dict[str, Any]:
        """What the output depends on, beside the inputs."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in ("source", "vocab", "output", "workers")
        }

    def shape(self) -> instances.Shape:
        """The same, as `instances` takes it."""
        names = [field.name for field in dataclasses.fields(instances.Shape)]
        return instances.Shape(**{name: getattr(self, name) for name in names})


class Task(NamedTuple):
    """One shard to turn into records."""

    source: Path
    target: Path
    options: Options


def write_shard(task: Task) -> Counter[str]:
    """Writes the records of one shard, in random order; counts what is in them."""
    options, shape = task.options, task.options.shape()
    tokenizer = _tokenizer(options.vocab, options.lower_case)
    tokens = special_tokens(tokenizer)
    rng = np.random.default_rng([options.seed, int.from_bytes(hashlib.sha256(task.source.name.encode()).digest()[:8])])
    documents = tokenize(task.source, tokenizer)
    rounds = options.dupe_factor if task.source.name.startswith("train-") else 1
    plans = [instances.plan(documents, shape, rng) for _ in range(rounds)]
    plan = instances.concatenate(plans).rows(rng.permutation(sum(map(len, plans))))
    counts: Counter[str] = Counter(
        instances=len(plan),
        random_next=int(plan.is_random.sum()),
        without_partner=plan.alone,
        tokens=len(documents.ids),
        unknown_tokens=int((documents.ids == tokenizer.unk_id).sum()),
    )
    with records.RecordWriter(task.target) as writer:
        for begin in range(0, len(plan), ROW_BATCH):
            features = instances.build(documents, plan.rows(slice(begin, begin + ROW_BATCH)), shape, tokens)
            features = instances.mask(features, shape, tokens, rng)
            counts["predictions"] += int(features["masked_lm_weights"].sum())
            for serialized in records.encode_batch(features):
                writer.write(serialized)
    return counts


@functools.cache  # a worker writes many shards
def _tokenizer(vocab: Path, lower_case: bool) -> Tokenizer:
    return Tokenizer(vocab, lower_case)


def special_tokens(tokenizer: Tokenizer) -> instances.Tokens:
    """What `instances` needs to know of the vocabulary."""
    ordinary = [
        number
        for number, token in enumerate(tokenizer.vocab)
        if token not in SPECIAL and not token.startswith("[unused")
    ]
    return instances.Tokens(
        pad=tokenizer.pad_id,
        cls=tokenizer.cls_id,
        sep=tokenizer.sep_id,
        mask=tokenizer.mask_id,
        ordinary=np.array(ordinary),
        is_continuation=tokenizer.is_continuation,
    )


def tokenize(shard: Path, tokenizer: Tokenizer) -> instances.Documents:
    """The token ids of a whole shard."""
    ids, lengths, documents = [], [np.zeros(1, np.int64)], [0]
    for batch in _batches(parts.read(shard)):
        flat, splits = tokenizer.encode([sentence for sentences in batch for sentence in sentences])
        ids.append(flat)
        lengths.append(np.diff(splits))
        documents.extend(len(sentences) for sentences in batch)
    if not ids:
        raise InputError(f"{shard}: no document in it; make the shards again")
    return instances.Documents.from_sentences(
        np.concatenate(ids), np.cumsum(np.concatenate(lengths)), np.cumsum(documents)
    )


def _batches(documents: Iterator[dict[str, Any]]) -> Iterator[list[list[str]]]:
    batch: list[list[str]] = []
    size = 0
    for document in documents:
        batch.append(document["sentences"])
        size += sum(map(len, document["sentences"]))
        if size > TEXT_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def make(options: Options, sources: Sequence[Path], partial: Path) -> manifest.Made:
    """Writes all shards, and the vocabulary beside them."""
    tokenizer = _tokenizer(options.vocab, options.lower_case)
    check_case(tokenizer.vocab, options.lower_case, options.vocab)
    shutil.copy(options.vocab, partial / "vocab.txt")
    tasks = [Task(source, partial / source.with_suffix(".tfrecord").name, options) for source in sources]
    counts: dict[str, Counter[str]] = {"train": Counter(), "heldout": Counter()}
    written = {}
    progress = Progress("tfrecords", "instances")
    for task, count in zip(tasks, workers.run(write_shard, tasks, options.workers), strict=True):
        if not count["instances"]:
            raise InputError(f"{task.source}: too little text for one instance; make fewer shards")
        counts[task.source.name.split("-")[0]].update(count)
        written[task.target.name] = count["instances"]
        progress.add(count["instances"], task.source.stat().st_size)
    both = counts["train"] + counts["heldout"]
    unknown = both["unknown_tokens"] / both["tokens"]
    progress.done(f"{both['tokens']:,} tokens, {unknown:.2%} unknown")
    return manifest.Made(counts=counts, records=written, extra=_extra(options, tokenizer))


def _extra(options: Options, tokenizer: Tokenizer) -> dict[str, Any]:
    sequence, predictions = options.max_seq_length, options.max_predictions_per_seq
    features: records.FeatureSpec = {
        name: {"shape": [size], "dtype": dtype}
        for name, size, dtype in (
            ("input_ids", sequence, "int64"),
            ("input_mask", sequence, "int64"),
            ("segment_ids", sequence, "int64"),
            ("masked_lm_positions", predictions, "int64"),
            ("masked_lm_ids", predictions, "int64"),
            ("masked_lm_weights", predictions, "float32"),
            ("next_sentence_labels", 1, "int64"),
        )
    }
    return {
        "features": features,
        "vocab_sha256": tokenizer.vocab_sha256,
        "vocab_size": len(tokenizer.vocab),
        "lower_case": options.lower_case,
        "max_seq_length": sequence,
        "max_predictions_per_seq": predictions,
    }


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.tfrecords", description=__doc__)
    os.environ.update(NO_GPU)  # for the workers: tokenising needs none, and each would take all of a GPU's memory
    sources = parts.paths(options.source, "train", "shards") + parts.paths(options.source, "heldout", "shards")
    manifest.build(
        options.output,
        stage="tfrecords",
        parameters=options.parameters(),
        inputs=[options.source, options.vocab],
        make=lambda partial: make(options, sources, partial),
    )


if __name__ == "__main__":
    cli.main(main)
