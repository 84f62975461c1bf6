"""Evaluate a masked language model: masked words and sentence pairs of held-out samples, or pseudo-perplexity of texts.

    python -m bert.evaluate RUN --data DIR [--split heldout]
    python -m bert.evaluate RUN --text texts.txt

RUN is a run directory of bert.pretrain, or an import with a head for masked words. DIR is made by data.tfrecords with
the vocabulary of the run; its samples are masked as in training. All are evaluated; --sequences takes some of them,
with the number of run.evaluate_sequences those of the evaluations in training. If they are of several sources, the
figures of each follow those of the whole ("mlm_accuracy/books").

With --text each token of each line is masked in turn, and predicted from all others (Salazar et al. 2020, "Masked
Language Model Scoring"): pseudo_perplexity is exp of minus the mean log probability of the tokens, and
pseudo_perplexity_per_word the same for the words between spaces, by which models of different vocabularies can be
compared. Prints one line of JSON.
"""

import itertools
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf

from bert import pseudo_likelihood
from bert.core import cli, files, ranges
from bert.core.config import BatchConfig, DataConfig, RunConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.ranges import BatchSize, Range
from bert.hardware import devices
from bert.hardware.devices import Kind
from bert.masked_words import MaskedWords, check_head
from bert.pretrain import Pretraining, pairs_of
from bert.runs import Compute, Run
from bert.text import dynamic_masking, rules, sampler, vocabulary
from bert.text.dynamic_masking import DynamicMasking
from bert.text.records import Dataset
from bert.text.tokenization import WordPieceTokenizer
from bert.training.distributed import Communicator
from bert.training.evaluation import Evaluation, without_figures
from bert.training.task import Execution

Source = Dataset | DynamicMasking
CHUNK = 256  # texts that are read and encoded at once


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.evaluate`."""

    run: cli.Positional[Path]
    """run directory"""
    data: Path | None = None
    """folder of python -m data.tfrecords"""
    text: Path | None = None
    """texts, one per line, plain or compressed (.gz, .bz2, .xz), instead of --data"""
    split: Literal["heldout", "train"] = "heldout"
    """part of the data"""
    sequences: Annotated[int, Range(0, 10**9)] = 0
    """number of samples, spread over all and always the same ones, as in training; 0: all"""
    batch: BatchSize = 32
    """maximum samples per batch"""
    compute: Compute = "float32"
    """data type of matrix products"""
    device: Kind = "auto"
    """device to compute on; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.data is None) == (self.text is None):
            raise UsageError("give either --data or --text")


def of_samples(options: Options, folder: Path) -> dict[str, Any]:
    """Return losses and accuracies on the samples of a folder. Raise InputError if its vocabulary is another one."""
    run = Run.open(options.run)
    check_head(run)
    seed, mask_shares = _masking(options.run)
    data = dynamic_masking.source(folder, options.split, seed, rules=rules.of(options.run), mask_shares=mask_shares)
    _check(run, data, folder)
    task = _task(run, data)
    evaluation = Evaluation(task, Execution(tf.as_dtype(options.compute)), Communicator())
    totals = {source: dict.fromkeys(evaluation.names, 0.0) for source in data.sources}
    samples = dict.fromkeys(data.sources, 0)
    count = min(options.sequences or len(data), len(data))
    for source, batch in sampler.evaluation(data, BatchConfig(total=options.batch, per_device=options.batch), count):
        samples[source] += len(batch["input_ids"])
        for name, value in evaluation.sums(batch).items():
            totals[source][name] += float(value)
    figures = _figures(evaluation, {name: sum(sums[name] for sums in totals.values()) for name in evaluation.names})
    for name in task.objectives:
        if f"{name}_loss" not in figures:
            print(f"note: {folder}: {without_figures(name)}", file=sys.stderr)
    if len(totals) > 1:
        for source, sums in totals.items():
            of_source = {"samples": samples[source]} | _figures(evaluation, sums)
            figures |= {f"{name}/{source}": value for name, value in of_source.items()}
    return {"samples": count} | figures


def _check(run: Run, data: Source, folder: Path) -> None:
    """Raise InputError if the samples are not for the model."""
    tokenizer = run.tokenizer
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise InputError(f"{run.path}: has no word pieces, of which data.tfrecords makes samples; give --text")
    stored = data.manifest.files.get(vocabulary.NAME)
    vocab_sha256, size = data.description.vocab_sha256 or (stored and stored.sha256), data.description.vocab_size
    if vocab_sha256 not in (None, tokenizer.vocab_sha256) or size > run.config.vocab_size:
        raise InputError(
            f"{folder}: made with another vocabulary than that of {run.path}; make the data with its vocab.txt"
        )
    if stored and not vocabulary.rules_of(folder / vocabulary.NAME, tokenizer.vocab).agrees(tokenizer.rules):
        print(
            f"note: {folder}: its texts became words by other rules than those of {run.path} (tokenizer_config.json)",
            file=sys.stderr,
        )
    length, positions = data.spec["input_ids"]["shape"][0], run.config.max_position_embeddings
    if length > positions:
        raise InputError(f"{folder}: its samples have {length} tokens, and the model {positions} positions")


def _task(run: Run, data: Source) -> Pretraining:
    """Return the objectives of the data with the weights of the run; without pairs if it has no head for them."""
    pairs = pairs_of(data)
    if pairs != "none" and not (run.has("next_sentence") and run.has("pooler")):
        print(f"note: {run.path}: has no head for sentence pairs; only masked words are evaluated", file=sys.stderr)
        pairs = "none"
    task = Pretraining(run.config, 0, pairs)
    run.load(task.module)
    return task


def _figures(evaluation: Evaluation, sums: dict[str, float]) -> dict[str, float]:
    """Return the figures of the objectives that have some, and the perplexity."""
    figures = evaluation.figures(sums)
    del figures["loss"]  # of an evaluation in training: the sum of the others
    if not all(map(math.isfinite, figures.values())):
        raise IntegrityError("the losses are not finite: the model's training failed; use another checkpoint")
    return figures | ({"mlm_perplexity": _exp(figures["mlm_loss"])} if "mlm_loss" in figures else {})


def _masking(run: Path) -> tuple[int, tuple[float, ...]]:
    """Return the seed and the shares of the run by which documents are masked; the default ones for an import."""
    try:
        settings = files.read_json(run / "config.json")["config"]
        shares = tuple(map(float, settings.get("data.mask_shares", DataConfig.mask_shares)))
        return int(settings.get("run.seed", RunConfig.seed)), DataConfig(mask_shares=shares).mask_shares
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return RunConfig.seed, DataConfig.mask_shares


def of_texts(options: Options, path: Path) -> dict[str, Any]:
    """Return the pseudo-perplexity of the lines of a file; empty lines do not count."""
    model = MaskedWords(Run.open(options.run), options.compute, options.batch)
    texts = tokens = words = 0
    total = 0.0
    with files.open_text(path) as stream:
        lines = (line.strip() for line in files.read_lines(stream, path))
        rest = (line for line in lines if line)
        while chunk := list(itertools.islice(rest, CHUNK)):
            for _, scores in pseudo_likelihood.log_probabilities(model, _windows(model, chunk), "masked"):
                total, tokens = total + float(scores.sum()), tokens + len(scores)
            texts, words = texts + len(chunk), words + sum(len(line.split()) for line in chunk)
    if not tokens:
        raise InputError(f"{path}: has no text; give at least one line")
    return {
        "texts": texts,
        "tokens": tokens,
        "words": words,
        "pseudo_perplexity": _exp(-total / tokens),
        "pseudo_perplexity_per_word": _exp(-total / words),
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # the largest that float64 holds


def _windows(model: MaskedWords, texts: list[str]) -> list[np.ndarray]:
    """Return the tokens of the texts, in rows that fit the model."""
    tokenizer, room = model.tokenizer, model.config.max_position_embeddings - 2
    flat, splits = tokenizer.encode(texts)
    return [
        tokenizer.row(flat[first : min(first + room, int(end))]).ids
        for begin, end in itertools.pairwise(splits)
        for first in range(int(begin), int(end), room)
    ]


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.evaluate", description=__doc__)
    devices.choose(options.device)
    if options.data is not None:
        print(json.dumps(of_samples(options, options.data)))
    elif options.text is not None:
        print(json.dumps(of_texts(options, options.text)))


if __name__ == "__main__":
    cli.main(main)
