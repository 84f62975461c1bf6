"""Convert shards of sentences to the TFRecords that BERT is trained on.

    python -m data.tfrecords --source workdir/corpus/shards --vocab workdir/corpus/vocab/vocab.txt \\
        --output workdir/tfrecords/seq128 --max_seq_length 128 [--kind documents]
    python -m data.tfrecords --source workdir/corpus/shards --vocab RUN/tokenizer.json --output workdir/domain \\
        --lower_case false --pairs none --kind documents

There are two kinds of records. `instances` (static masking) are sentence pairs that are masked in advance, as in
google-research/bert: the training shards are read `dupe_factor` times, each time with other pairs and masks, and the
held-out shards once. `documents` (dynamic masking) are chunks of token ids, from which the trainer makes new instances
in every epoch (bert/text/dynamic_masking.py).

The vocabulary is a `vocab.txt`, or the `tokenizer.json` of an imported RoBERTa, ModernBERT or XLM-RoBERTa. These have
no segments, so an instance of theirs is [CLS] text [SEP]. A text has the tokens that it has in transformers: the
sentences of a document follow each other with a space between.

Each shard is one task. Its random numbers depend only on the seed and the shard's name.
"""

import dataclasses
import functools
import hashlib
import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from bert.core import cli, files, outputs, ranges
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.ranges import Range, Seed, Share
from bert.core.workspace import Work
from bert.text import frames, instance_config, instances, tf_example, tokenization, tokenizer_kind, vocabulary
from bert.text.instance_config import InstanceConfig
from bert.text.tokenization import Tokenizer
from data.pipeline import document_files, drop_counts, languages, tasks, workers
from data.pipeline.document_files import Part
from data.pipeline.tasks import TaskResult
from data.vocab import MOST_UNKNOWN, check_case

BLOCK = 1 << 24  # bytes of a shard in memory at once; random second segments and the order are drawn within a block
NEWER = ("single_sentences", "mask_shares")  # flags that version 1.0 did not have
ROW_BATCH = 1024  # instances built, masked and serialised at once
TRIED_TOKENS = 1 << 16  # of each shard of documents, from which instances are made to see how many tokens are masked
FEWEST_MASKED = 0.9  # of the tokens that are to be masked; of English words it is nearly all


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.tfrecords`."""

    source: cli.Stored[Path]
    """folder written by data.shards"""
    vocab: cli.Stored[Path]
    """vocabulary: a vocab.txt, or the tokenizer.json of an imported model"""
    output: cli.Stored[Path]
    """folder to write"""
    kind: Literal["instances", "documents"] = "instances"
    """instances: masked in advance (static masking); documents: masked by the trainer (dynamic masking)"""
    max_seq_length: Annotated[int, Range(8, 16_384)] = 128
    """maximum number of tokens in an instance, including [CLS] and [SEP]"""
    max_predictions_per_seq: Annotated[int, Range(0, 16_384)] = 0
    """maximum number of masked tokens in an instance; 0 means max_seq_length * masked_lm_prob, rounded up"""
    dupe_factor: Annotated[int, Range(1, 10_000)] = 5
    """for instances: how many times the training text is read, each time with other masks"""
    masked_lm_prob: Annotated[float, Range(1e-6, 1, below=True)] = 0.15
    """fraction of tokens to predict"""
    short_seq_prob: Share = 0.1
    """fraction of instances with a random, shorter length"""
    whole_word_mask: bool = False
    """mask all tokens of a word or none"""
    max_ngram: Annotated[int, Range(1, 100)] = 1
    """mask spans of up to this many words with --whole_word_mask true, else of tokens; longer spans are rarer"""
    pairs: Literal["nsp", "sop", "none"] = "nsp"
    """task on two segments: nsp (is the second one random), sop (are they swapped) or none"""
    single_sentences: bool = False
    """with --pairs none: each sentence is an instance of its own, [CLS] sentence [SEP]"""
    mask_shares: tuple[Share, ...] = instance_config.MASK_SHARES
    """of the tokens to predict, the shares that become [MASK], a random token, or stay as they are; they add up to 1"""
    lower_case: bool = True
    """lower-case the text and strip accents"""
    seed: Seed = 12345
    """seed of the pairs and masks"""

    def __post_init__(self) -> None:
        super().__post_init__()
        ranges.check_mask_shares(self.mask_shares, "mask_shares")
        if self.single_sentences and self.pairs != "none":
            raise UsageError(f"--single_sentences true: there are no pairs of type {self.pairs}; give --pairs none")
        if self.one_segment and self.pairs != "none":
            raise UsageError(
                f"--pairs {self.pairs}: {self.vocab} is of a model without segments, whose instances are "
                "[CLS] text [SEP]; give --pairs none (PAIRS of make)"
            )
        if self.max_predictions_per_seq == 0:
            longest = math.ceil(round(self.max_seq_length * self.masked_lm_prob, 6))
            object.__setattr__(self, "max_predictions_per_seq", longest)
        if not 1 <= self.max_predictions_per_seq <= self.max_seq_length - instance_config.SPECIAL_PER_PAIR:
            raise UsageError(
                f"--max_predictions_per_seq {self.max_predictions_per_seq}: must be from 1 to --max_seq_length minus 3 "
                "(if it is not given, it follows from --masked_lm_prob)"
            )

    @property
    def one_segment(self) -> bool:
        """Whether the vocabulary is of models without segments."""
        return tokenizer_kind.of(self.vocab) != "word pieces"

    def shape(self) -> InstanceConfig:
        """Return the flags that `bert.text.instances` takes."""
        names = [field.name for field in dataclasses.fields(InstanceConfig)]
        return InstanceConfig(**{name: getattr(self, name) for name in names})


class ShardTask(NamedTuple):
    """One shard to convert to records."""

    source: Part
    target: Path
    options: Options
    vocab_sha256: str


def write_shard(task: ShardTask) -> dict[str, Any]:
    """Write the records of one shard. Return counts of their content, and the losses."""
    tokenizer = _load_tokenizer(task.options.vocab, task.vocab_sha256)
    name = task.source.path.name
    rng = np.random.default_rng([task.options.seed, int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])])
    counts: Counter[str] = Counter()
    lost = drop_counts.DropCounts()
    masks: Counter[str] = Counter()
    with frames.RecordWriter(task.target) as writer:
        for block in blocks(task.source):
            documents, has_tokens = tokenize(block, tokenizer, alone=task.options.single_sentences)
            is_used, used_tokens = np.ones(len(documents.documents) - 1, bool), len(documents.ids)
            if task.options.kind == "instances":
                plan = plan_instances(task, documents, rng)
                counts.update(write_instances(writer, task, documents, plan, tokenizer, rng, masks))
                is_used, used_tokens = used_by(plan, documents)
            else:
                if not masks and (task.options.whole_word_mask or task.options.max_ngram > 1):
                    masks = try_masks(documents, task.options.shape(), tokenizer)
                counts.update(write_chunks(writer, task, documents, number=counts["documents"]))
            _count_losses(lost, block, has_tokens, is_used)
            counts.update(
                tokens=len(documents.ids),
                unknown_tokens=int((documents.ids == tokenizer.unk_id).sum()),
                unused_tokens=len(documents.ids) - used_tokens,
            )
    return {**counts, "losses": lost.report(), "masks": masks}


def count_masks(features: dict[str, np.ndarray], shape: InstanceConfig) -> Counter[str]:
    """Count the tokens of masked instances that were to be masked and that are, and the instances with none."""
    masked = features["masked_lm_weights"].sum(1)
    return Counter(
        wanted=int(instances.wanted_predictions(features, shape).sum()),
        masked=int(masked.sum()),
        instances=len(masked),
        unmasked=int((masked == 0).sum()),
    )


def try_masks(documents: instances.Documents, shape: InstanceConfig, tokenizer: Tokenizer) -> Counter[str]:
    """Count the masks of instances of the first documents, which are made as the trainer makes them."""
    ends = documents.sentences[documents.documents[1:]]
    stop = documents.documents[: 2 + int(np.searchsorted(ends, TRIED_TOKENS))]
    first = dataclasses.replace(documents, sentences=documents.sentences[: stop[-1] + 1], documents=stop)
    rng, tokens = np.random.default_rng(0), instances.Tokens.of(tokenizer)
    plan = instances.plan(first, shape, rng)
    masks: Counter[str] = Counter()
    for begin in range(0, len(plan), ROW_BATCH):
        rows = plan.rows(slice(begin, begin + ROW_BATCH))
        features = instances.build(first.ids, rows, shape, tokens)
        masks.update(count_masks(instances.mask(features, shape, tokens, _uniform(rng, len(rows))), shape))
    return masks


def used_by(plan: instances.PairPlan, documents: instances.Documents) -> tuple[np.ndarray, int]:
    """Return which documents have an instance's first segment [D] bool, and how many tokens are in any instance."""
    first_tokens = documents.sentences[documents.documents]  # [D + 1]
    owners = np.searchsorted(first_tokens, plan.a_begin, side="right") - 1
    is_used = np.bincount(owners, minlength=len(first_tokens) - 1) > 0
    begins, ends = (
        np.bincount(np.concatenate(places), minlength=len(documents.ids) + 1)
        for places in ((plan.a_begin, plan.b_begin), (plan.a_end, plan.b_end))
    )
    begins -= ends
    return is_used, int(np.count_nonzero(np.cumsum(begins, out=begins)))


def _count_losses(
    lost: drop_counts.DropCounts, block: list[list[str]], has_tokens: np.ndarray, is_used: np.ndarray
) -> None:
    """Count the documents of a block. is_used: for those with tokens, whether they are in a record."""
    sizes = np.array([sum(map(len, sentences)) for sentences in block], np.int64)
    outcome = np.zeros(len(block), np.int64)
    outcome[has_tokens] = np.where(is_used, 2, 1)
    lost.read(len(block), int(sizes.sum()))
    for number, reason in enumerate(("without a token", "too short for a pair")):
        chosen = outcome == number
        lost.drop(reason, int(chosen.sum()), int(sizes[chosen].sum()))
    lost.wrote(int((outcome == 2).sum()), int(sizes[outcome == 2].sum()))


def write_chunks(
    writer: frames.RecordWriter, task: ShardTask, documents: instances.Documents, number: int
) -> Counter[str]:
    """Write chunks of token ids, as `bert.text.dynamic_masking` reads them, in the order of the text.

    number: how many documents of the shard come before these. A chunk holds the number of its document in the shard.
    The chunks are not shuffled here, because the trainer reads them in random order.
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


def plan_instances(task: ShardTask, documents: instances.Documents, rng: np.random.Generator) -> instances.PairPlan:
    """Return the instances of a block in random order."""
    rounds = task.options.dupe_factor if task.source.path.name.startswith("train-") else 1
    plans = [instances.plan(documents, task.options.shape(), rng) for _ in range(rounds)]
    return instances.concatenate(plans).rows(rng.permutation(sum(map(len, plans))))


def write_instances(
    writer: frames.RecordWriter,
    task: ShardTask,
    documents: instances.Documents,
    plan: instances.PairPlan,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    masks: Counter[str],
) -> Counter[str]:
    """Write masked instances in the order of the plan. Add to `masks` what `count_masks` counts."""
    shape = task.options.shape()
    tokens = instances.Tokens.of(tokenizer)
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
        masks.update(count_masks(features, shape))
        for serialized in tf_example.encode_batch(features):
            writer.write(serialized)
    return counts


@functools.cache  # a worker writes many shards
def _load_tokenizer(vocab: Path, sha256: str) -> Tokenizer:
    tokenizer = tokenization.read(vocab)
    if tokenizer.vocab_sha256 != sha256:
        raise IntegrityError(f"{vocab}: has changed while the stage was running; repeat the command")
    return tokenizer


def _uniform(rng: np.random.Generator, rows: int) -> instances.Uniform:
    return lambda count: rng.random((rows, count))


def blocks(shard: Part) -> Iterator[list[list[str]]]:
    """Yield the documents of a shard, each a list of sentences, in blocks of equal size, about `BLOCK` bytes."""
    size = shard.path.stat().st_size
    if not size:
        raise InputError(f"{shard.path}: no document in it; run data.shards again")
    count, offset, yielded = -(-size // BLOCK), 0, 0
    documents: list[list[str]] = []
    for path, number, line in document_files.lines([shard]):
        documents.append(document_files.decode(line, path, number, "sentences")["sentences"])
        offset += len(line)
        if offset * count // size > yielded:
            yield documents
            documents, yielded = [], offset * count // size


def tokenize(
    block: Sequence[list[str]], tokenizer: Tokenizer, alone: bool = False
) -> tuple[instances.Documents, np.ndarray]:
    """Return the token ids of documents, each a list of sentences, and which documents have tokens: bool [documents].

    alone: tokenize each sentence as a separate text, not as it stands behind the sentence before it.
    """
    ids, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    sentences_of = (_as_within(document, tokenizer) for document in block)
    for batch in document_files.batches(itertools.chain.from_iterable(block if alone else sentences_of), len):
        flat, splits = tokenizer.encode(batch)
        ids.append(flat)
        lengths.append(np.diff(splits))
    sentences, ends = np.cumsum(np.concatenate(lengths)), np.cumsum([0, *map(len, block)])
    return instances.Documents.from_sentences(np.concatenate(ids), sentences, ends), np.diff(sentences[ends]) > 0


def _as_within(document: Sequence[str], tokenizer: Tokenizer) -> Iterator[str]:
    """Yield the sentences of a document as the tokenizer needs them to make the tokens of the whole."""
    yield from document[:1]
    yield from map(tokenizer.within, document[1:])


class TfrecordsStage(tasks.Stage[ShardTask]):
    """Shards to TFRecords. shards: the training shards, then the held-out ones."""

    name = "tfrecords"

    def __init__(self, options: Options, shards: Sequence[Part]) -> None:
        self.options, self.shards = options, shards
        self.unit = "instances" if options.kind == "instances" else "chunks"

    def parameters(self) -> dict[str, Any]:
        no_effect = ["dupe_factor"] if self.options.kind == "documents" else []
        parameters = tasks.parameters(self.options, no_effect, newer=NEWER)
        return parameters | vocabulary.rules_parameter(self.options.vocab)

    def is_earlier(self, made: Path) -> bool:
        """Return whether version 1.0 made a folder: it wrote no rules, and split the same text into other words."""
        return (made / vocabulary.NAME).exists() and not (made / vocabulary.RULES).exists()

    def tasks(self, work: Work) -> list[ShardTask]:
        """Check the vocabulary and copy it. Return one task for each shard."""
        vocab = self.options.vocab
        check_case(vocab, self.options.lower_case)
        vocabulary.copy(vocab, work.output)
        copied = work.output / vocabulary.name_for(vocab)
        self.vocab_sha256, self.vocab_size = files.sha256(copied), len(tokenization.read(copied).vocab)
        return [
            ShardTask(shard, work.output / f"{shard.path.stem}.tfrecord", self.options, self.vocab_sha256)
            for shard in self.shards
        ]

    @classmethod
    def run(cls, task: ShardTask) -> TaskResult:
        return write_shard(task)

    @classmethod
    def written(cls, task: ShardTask, result: TaskResult) -> Sequence[Path]:
        return [task.target, frames.index_path(task.target)]

    def finish(self, tasks: Sequence[ShardTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        lost = drop_counts.total(result.pop("losses", {}) for result in results)
        _tell_masks(document_files.total(result.pop("masks", {}) for result in results))
        by_split = document_files.by_split(tasks, results)
        for task, result in zip(tasks, results, strict=True):
            trained = task.target.name.startswith("train-")  # what is held out of a small source may be too little
            if trained and not result[self.unit]:
                raise InputError(f"{task.source.path}: too little text for one of the {self.unit}; make fewer shards")
        if not any(result[self.unit] for result in by_split["heldout"]):
            print(
                f"tfrecords: warning: {self.options.source}: too little held-out text for one of the {self.unit}, so "
                "trainings have no held-out figures; give data.shards more documents or a larger --held_out_fraction",
                file=sys.stderr,
            )
        counts = {split: document_files.total(split_results) for split, split_results in by_split.items()}
        if self.options.pairs == "nsp":
            self._check_pairs(counts)
        written = {task.target.name: result[self.unit] for task, result in zip(tasks, results, strict=True)}
        names = ("tokens", "unknown_tokens", "unused_tokens")
        tokens, unknown, unused = (sum(result.get(name, 0) for result in results) for name in names)
        drop_counts.tell(self.name, lost)
        cause = "; make a larger vocabulary, or one of this text" if unknown > MOST_UNKNOWN * tokens else ""
        print(
            f"tfrecords: {'warning: ' if cause else ''}{sum(written.values()):,} {self.unit}, {tokens:,} tokens, "
            f"{unknown / tokens:.2%} unknown, {unused / tokens:.2%} in none of the {self.unit}{cause}",
            file=sys.stderr,
        )
        return outputs.StageResult(
            counts=counts,
            records=written,
            sources={task.target.name: task.source.source for task in tasks},
            extra=_extra(self.options, self.vocab_sha256, self.vocab_size) | {"losses": lost},
        )

    def _check_pairs(self, counts: dict[str, dict[str, int]]) -> None:
        """Raise InputError if all training pairs have one label. Say so if all held-out pairs have."""
        source = self.options.source
        if (label := instance_config.only_label(counts["train"])) is not None:
            raise InputError(
                f"{source}: all training pairs have label {label}, from which next-sentence prediction learns nothing; "
                "give --pairs sop or none (PAIRS of make), or more documents"
            )
        if counts["heldout"].get(self.unit) and (label := instance_config.only_label(counts["heldout"])) is not None:
            print(
                f"tfrecords: warning: {source}: all held-out pairs have label {label}, so evaluations have no figures "
                "of next-sentence prediction; give data.shards more documents or a larger --held_out_fraction",
                file=sys.stderr,
            )

    def then(self, made: Path) -> Sequence[object]:
        return ("python", "-m", "bert.pretrain", "RECIPE", "--data.train", made)

    def size(self, task: ShardTask) -> int:
        return task.source.path.stat().st_size


def _tell_masks(masks: dict[str, int]) -> None:
    """Print how many of the wanted predictions are made, if they are few."""
    share = masks.get("masked", 0) / max(1, masks.get("wanted", 0))
    if masks and share < FEWEST_MASKED:
        unmasked = masks["unmasked"] / max(1, masks["instances"])
        print(
            f"tfrecords: warning: only {share:.0%} of the predictions that --masked_lm_prob asks for are possible, and "
            f"{unmasked:.0%} of the instances have none: whole words or runs of words are longer than that, as in "
            "scripts without spaces; give --whole_word_mask false or a smaller --max_ngram",
            file=sys.stderr,
        )


def _extra(options: Options, vocab_sha256: str, vocab_size: int) -> dict[str, Any]:
    """Return the description of the records for the manifest."""
    shape = options.shape()
    instance = instances.feature_spec(shape)
    stored = {
        "ids": {"shape": [None], "dtype": "int64"},
        "sentences": {"shape": [None], "dtype": "int64"},
        "document": {"shape": [1], "dtype": "int64"},
    }
    return {
        "kind": options.kind,
        "features": instance if options.kind == "instances" else stored,
        "instances": dataclasses.asdict(shape),
        "vocab_sha256": vocab_sha256,
        "vocab_size": vocab_size,
        "lower_case": options.lower_case,
    } | languages.of(options.source)


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.tfrecords", description=__doc__)
    # Inherited by the workers: otherwise each would allocate a GPU's whole memory.
    os.environ.update(workers.NO_GPU | workers.ONE_THREAD)
    shards = document_files.find(options.source, "train", "shards")
    shards += document_files.find(options.source, "heldout", "shards", may_lack=True)  # of a small corpus
    tasks.build(TfrecordsStage(options, shards), options.output, options)


if __name__ == "__main__":
    from data import tfrecords  # a Dask worker can load a task of this module, not one of __main__

    cli.main(tfrecords.main)
