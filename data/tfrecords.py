"""Shards of sentences to TFRecords that BERT is trained on, of either kind.

    python -m data.tfrecords --source workdir/corpus/shards --vocab workdir/corpus/vocab/vocab.txt \\
        --output workdir/tfrecords/seq128 --max_seq_length 128 [--kind documents]

`instances` are masked in advance, as google-research/bert makes them: the training shards are gone through
`dupe_factor` times, with other pairs and masks each time, the held-out ones once. `documents` are chunks of token
ids, from which the trainer makes instances while it reads, other ones in every epoch (bert/inputs/dynamic_masking.py).

Each shard is one task with its own random numbers, drawn from the seed and the shard's name.
"""

import dataclasses
import functools
import hashlib
import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bert import cli
from bert.errors import InputError, UsageError
from bert.hardware import devices
from bert.inputs import dynamic_masking, instances, records, tf_example
from bert.inputs.tokenization import Tokenizer
from bert.inputs.vocabulary import load_vocab
from bert.storage import files, manifest
from data.pipeline import parts, tasks
from data.pipeline.progress import Progress
from data.vocab import check_case

BLOCK = 1 << 24  # bytes of a shard held at once; second segments and the order are drawn within a block
TEXT_BATCH = 1 << 20  # characters tokenised at once
ROW_BATCH = 1024  # instances built, masked and serialised at once
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.tfrecords`."""

    source: Path
    """folder written by data.shards"""
    vocab: Path
    """vocab.txt"""
    output: Path
    """folder to write"""
    kind: Literal["instances", "documents"] = "instances"
    """masked in advance, or while reading"""
    max_seq_length: int = 128
    """tokens of an instance, [CLS] and [SEP] included"""
    max_predictions_per_seq: int = 0
    """masked tokens of an instance at most; 0 takes masked_lm_prob of the length"""
    dupe_factor: int = 5
    """times the training text is gone through, for instances"""
    masked_lm_prob: float = 0.15
    """share of tokens to predict"""
    short_seq_prob: float = 0.1
    """share of instances with a random, shorter length"""
    whole_word_mask: bool = False
    """mask all pieces of a word or none"""
    max_ngram: int = 1
    """mask runs of up to so many words; longer ones are rarer"""
    pairs: Literal["nsp", "sop", "none"] = "nsp"
    """what to ask of two segments: is the second a random one, are both swapped, or nothing"""
    lower_case: bool = True
    """lower-case and strip accents"""
    seed: int = 12345
    """another seed, other pairs and masks"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_seq_length < 8 or self.dupe_factor < 1 or self.max_ngram < 1:
            raise UsageError("data.tfrecords: --max_seq_length must be at least 8, --dupe_factor and --max_ngram 1")
        if not (0 < self.masked_lm_prob < 1 and 0 <= self.short_seq_prob <= 1 and self.seed >= 0):
            raise UsageError("data.tfrecords: --masked_lm_prob and --short_seq_prob must be shares, --seed at least 0")
        if self.max_predictions_per_seq == 0:
            longest = math.ceil(round(self.max_seq_length * self.masked_lm_prob, 6))
            object.__setattr__(self, "max_predictions_per_seq", longest)
        if not 1 <= self.max_predictions_per_seq <= self.max_seq_length - instances.SPECIAL_PER_PAIR:
            raise UsageError(
                f"--max_predictions_per_seq {self.max_predictions_per_seq}: must be from 1 to --max_seq_length minus 3"
            )

    def parameters(self) -> dict[str, Any]:
        """What the output depends on, beside the inputs."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in {"source", "vocab", "output", *tasks.NOT_PARAMETERS}
            and not (name == "dupe_factor" and self.kind == "documents")
        }

    def shape(self) -> instances.InstanceConfig:
        """The same, as `instances` takes it."""
        names = [field.name for field in dataclasses.fields(instances.InstanceConfig)]
        return instances.InstanceConfig(**{name: getattr(self, name) for name in names})


class Task(NamedTuple):
    """One shard to turn into records."""

    source: Path
    target: Path
    options: Options


def write_shard(task: Task) -> Counter[str]:
    """Writes the records of one shard; counts what is in them."""
    tokenizer = _tokenizer(task.options.vocab, task.options.lower_case)
    rng = np.random.default_rng(
        [task.options.seed, int.from_bytes(hashlib.sha256(task.source.name.encode()).digest()[:8])]
    )
    counts: Counter[str] = Counter()
    with records.RecordWriter(task.target) as writer:
        for block in blocks(task.source):
            documents = tokenize(block, tokenizer)
            if task.options.kind == "instances":
                counts.update(write_instances(writer, task, documents, tokenizer, rng))
            else:
                counts.update(write_chunks(writer, task, documents, number=counts["documents"]))
            counts.update(tokens=len(documents.ids), unknown_tokens=int((documents.ids == tokenizer.unk_id).sum()))
    return counts


def write_chunks(writer: records.RecordWriter, task: Task, documents: instances.Documents, number: int) -> Counter[str]:
    """Writes what `bert.inputs.dynamic_masking` reads, in the order of the text: the trainer's order is random anyway.

    number: documents of the shard before these, since each is known by its number there.
    """
    cuts = instances.chunks(documents, task.options.shape())
    splits = documents.sentences[cuts]  # [M + 1] tokens before each chunk
    lengths = np.diff(documents.sentences)
    owner = number + np.searchsorted(documents.documents, cuts[:-1], side="right") - 1
    for begin in range(0, len(cuts) - 1, ROW_BATCH):
        end = min(begin + ROW_BATCH, len(cuts) - 1)
        ids = documents.ids[splits[begin] : splits[end]]
        features: dict[str, np.ndarray | tf_example.Ragged] = {
            "ids": tf_example.Ragged(ids, splits[begin : end + 1] - splits[begin]),
            "sentences": tf_example.Ragged(lengths[cuts[begin] : cuts[end]], cuts[begin : end + 1] - cuts[begin]),
            "document": owner[begin:end, None],
        }
        for serialized in tf_example.encode_batch(features):
            writer.write(serialized)
    return Counter(chunks=len(cuts) - 1, documents=len(documents.documents) - 1)


def write_instances(
    writer: records.RecordWriter,
    task: Task,
    documents: instances.Documents,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> Counter[str]:
    """Writes masked instances in random order."""
    options, shape, tokens = task.options, task.options.shape(), instances.Tokens.from_vocab(tokenizer.vocab)
    rounds = options.dupe_factor if task.source.name.startswith("train-") else 1
    plans = [instances.plan(documents, shape, rng) for _ in range(rounds)]
    plan = instances.concatenate(plans).rows(rng.permutation(sum(map(len, plans))))
    counts: Counter[str] = Counter(
        instances=len(plan),
        pairs_of_label_1=int(plan.label.sum()),
        without_partner=plan.skipped,
    )
    for begin in range(0, len(plan), ROW_BATCH):
        rows = plan.rows(slice(begin, begin + ROW_BATCH))
        features = instances.build(documents.ids, rows, shape, tokens)
        features = instances.mask(features, shape, tokens, _uniform(rng, len(rows)))
        counts["predictions"] += int(features["masked_lm_weights"].sum())
        for serialized in tf_example.encode_batch(features):
            writer.write(serialized)
    return counts


@functools.cache  # a worker writes many shards
def _tokenizer(vocab: Path, lower_case: bool) -> Tokenizer:
    devices.hide_gpus()  # which TensorFlow in every worker would take
    return Tokenizer(vocab, lower_case)


def _uniform(rng: np.random.Generator, rows: int) -> instances.Uniform:
    return lambda count: rng.random((rows, count))


def blocks(shard: Path) -> Iterator[list[list[str]]]:
    """The documents of a shard, as sentences, in blocks of about equal size, so that a shard may be of any size."""
    size = shard.stat().st_size
    if not size:
        raise InputError(f"{shard}: no document in it; make the shards again")
    count, read, yielded = -(-size // BLOCK), 0, 0
    documents: list[list[str]] = []
    with open(shard, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            documents.append(parts.decode(line, shard, number)["sentences"])
            read += len(line)
            if read * count // size > yielded:
                yield documents
                documents, yielded = [], read * count // size


def tokenize(block: Sequence[list[str]], tokenizer: Tokenizer) -> instances.Documents:
    """The token ids of documents."""
    ids, lengths, documents = [], [np.zeros(1, np.int64)], [0]
    for batch in _batches(block):
        flat, splits = tokenizer.encode([sentence for sentences in batch for sentence in sentences])
        ids.append(flat)
        lengths.append(np.diff(splits))
        documents.extend(len(sentences) for sentences in batch)
    return instances.Documents.from_sentences(
        np.concatenate(ids), np.cumsum(np.concatenate(lengths)), np.cumsum(documents)
    )


def _batches(documents: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    batch: list[list[str]] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += sum(map(len, document))
        if size > TEXT_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def prepare(options: Options, sources: Sequence[Path], partial: Path) -> list[Task]:
    """Checks the vocabulary and puts it beside the records; one task a shard."""
    check_case(load_vocab(options.vocab), options.lower_case, options.vocab)
    shutil.copy(options.vocab, partial / "vocab.txt")
    return [Task(source, partial / source.with_suffix(".tfrecord").name, options) for source in sources]


def finish(done: Sequence[Task], counts: Sequence[tasks.Result]) -> manifest.StageResult:
    """What the manifest says of all shards."""
    options, unit = done[0].options, _unit(done[0].options)
    for task, count in zip(done, counts, strict=True):
        if not count[unit]:
            raise InputError(f"{task.source}: too little text for one of the {unit}; make fewer shards")
    total = {split: parts.total(_of(split, done, counts)) for split in ("train", "heldout")}
    written = {task.target.name: count[unit] for task, count in zip(done, counts, strict=True)}
    tokens, unknown = (sum(count[name] for count in counts) for name in ("tokens", "unknown_tokens"))
    print(
        f"tfrecords: {sum(written.values()):,} {unit}, {tokens:,} tokens, {unknown / tokens:.2%} unknown",
        file=sys.stderr,
    )
    return manifest.StageResult(counts=total, records=written, extra=_extra(options, load_vocab(options.vocab)))


def _of(split: str, done: Sequence[Task], counts: Sequence[tasks.Result]) -> Iterator[tasks.Result]:
    return (count for task, count in zip(done, counts, strict=True) if task.source.name.startswith(f"{split}-"))


def _unit(options: Options) -> str:
    return "instances" if options.kind == "instances" else "chunks"


def _extra(options: Options, vocab: Sequence[str]) -> dict[str, Any]:
    shape = options.shape()
    instance = dynamic_masking.feature_spec(shape)
    stored = {
        "ids": {"shape": [None], "dtype": "int64"},
        "sentences": {"shape": [None], "dtype": "int64"},
        "document": {"shape": [1], "dtype": "int64"},
    }
    return {
        "kind": options.kind,
        "features": instance if options.kind == "instances" else stored,
        "instances": dataclasses.asdict(shape),
        "vocab_sha256": files.sha256(options.vocab),
        "vocab_size": len(vocab),
        "lower_case": options.lower_case,
    }


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.tfrecords", description=__doc__)
    os.environ.update(NO_GPU)  # for the workers: tokenising needs none, and each would take all of a GPU's memory
    sources = parts.paths(options.source, "train", "shards") + parts.paths(options.source, "heldout", "shards")
    progress = Progress("tfrecords", unit := _unit(options))
    tasks.build(
        options.output,
        stage="tfrecords",
        parameters=options.parameters(),
        inputs=[options.source, options.vocab],
        options=options,
        prepare=lambda partial: prepare(options, sources, partial),
        function=write_shard,
        finish=finish,
        report=lambda task, count: progress.add(count[unit], task.source.stat().st_size),
    )


if __name__ == "__main__":
    cli.main(main)
