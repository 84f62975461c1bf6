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

import dataclasses
import itertools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf

from bert import cli, ranges
from bert.config import BatchConfig, ModelConfig, RunConfig
from bert.errors import InputError, IntegrityError, UsageError
from bert.hardware import devices, graphs
from bert.hardware.devices import Kind
from bert.inputs import dynamic_masking, rules, sampler, vocabulary
from bert.inputs.dynamic_masking import DynamicMasking
from bert.inputs.records import Dataset
from bert.inputs.tokenization import WordPieceTokenizer, tokenizer_for
from bert.masked_words import Compute, MaskedWords, check_head, has_head
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.pretrain import Pretraining, pairs_of
from bert.ranges import BatchSize, Range
from bert.storage import files
from bert.training import checkpoint
from bert.training.step import has_figures, without_figures

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
    config = ModelConfig.load(options.run / "bert_config.json")
    check_head(options.run, "masked_lm")
    data = dynamic_masking.source(folder, options.split, _seed(options.run), rules=rules.of(options.run))
    _check(options.run, config, data, folder)
    task = _task(options.run, config, data)
    mode = Mode(tf.as_dtype(options.compute), DropoutRng(None))
    measure = graphs.function(lambda batch: (task.weights(batch), task.measure(batch, mode)), reduce_retracing=True)
    # Of each source: weight, loss, correct predictions and labels 1 of the objectives.
    totals = {source: {name: np.zeros(4) for name in task.objectives} for source in data.sources}
    samples = dict.fromkeys(data.sources, 0)
    count = min(options.sequences or len(data), len(data))
    for source, batch in sampler.evaluation(data, BatchConfig(total=options.batch, per_device=options.batch), count):
        samples[source] += len(batch["input_ids"])
        weights, measures = measure(batch)
        for name, total in totals[source].items():
            ones = tf.reduce_sum(batch[task.two_classes[name]]) if name in task.two_classes else 0
            total += [float(x) for x in (weights[name], measures[name].loss, measures[name].correct, ones)]
    figures = _figures(task, {name: np.sum([sums[name] for sums in totals.values()], 0) for name in task.objectives})
    for name in task.objectives:
        if f"{name}_loss" not in figures:
            print(f"note: {folder}: {without_figures(name)}", file=sys.stderr)
    if len(totals) > 1:
        for source, sums in totals.items():
            of_source = {"samples": samples[source]} | _figures(task, sums)
            figures |= {f"{name}/{source}": value for name, value in of_source.items()}
    return {"samples": count} | figures


def _check(run: Path, config: ModelConfig, data: Source, folder: Path) -> None:
    """Raise InputError if the samples are not for the model."""
    tokenizer = tokenizer_for(vocabulary.path_in(run), config)
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise InputError(f"{run}: a byte-level BPE, of which data.tfrecords makes no samples; give --text")
    if data.description.vocab_sha256 not in (None, tokenizer.vocab_sha256):
        raise InputError(f"{folder}: made with another vocabulary than that of {run}; make the data with its vocab.txt")
    length, positions = data.spec["input_ids"]["shape"][0], config.max_position_embeddings
    if length > positions:
        raise InputError(f"{folder}: its samples have {length} tokens, and the model {positions} positions")


def _task(run: Path, config: ModelConfig, data: Source) -> Pretraining:
    """Return the objectives of the data with the weights of the run; without pairs if it has no head for them."""
    pairs = pairs_of(data)
    if pairs != "none" and not (has_head(run, "next_sentence") and has_head(run, "pooler")):
        print(f"note: {run}: has no head for sentence pairs; only masked words are evaluated", file=sys.stderr)
        pairs = "none"
    task = Pretraining(dataclasses.replace(config, fused_attention=False, recompute_activations=False), 0, pairs)
    checkpoint.load_weights(run, variables(task.module))
    return task


def _figures(task: Pretraining, totals: dict[str, np.ndarray]) -> dict[str, float]:
    """Return the figures of the objectives that have some, from the sums of `of_samples`."""
    figures: dict[str, float] = {}
    for name, (weight, loss, correct, ones) in totals.items():
        if has_figures(weight, ones if name in task.two_classes else None):
            figures |= {f"{name}_loss": float(loss / weight), f"{name}_accuracy": float(correct / weight)}
    if not all(map(math.isfinite, figures.values())):
        raise IntegrityError("the losses are not finite: the model's training failed; use another checkpoint")
    return figures | ({"mlm_perplexity": _exp(figures["mlm_loss"])} if "mlm_loss" in figures else {})


def _seed(run: Path) -> int:
    """Return the seed of the run, by which documents are masked; the default one for an import."""
    try:
        settings = files.read_json(run / "config.json")["config"]
        return int(settings.get("run.seed", RunConfig.seed))
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return RunConfig.seed


def of_texts(options: Options, path: Path) -> dict[str, Any]:
    """Return the pseudo-perplexity of the lines of a file; empty lines do not count."""
    model = MaskedWords(options.run, options.compute, options.batch)
    texts = tokens = words = 0
    total = 0.0
    with files.open_text(path) as stream:
        lines = (line.strip() for line in files.read_lines(stream, path))
        rest = (line for line in lines if line)
        while chunk := list(itertools.islice(rest, CHUNK)):
            for scores in _scores(model, chunk):
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


def _scores(model: MaskedWords, texts: list[str]) -> Iterator[np.ndarray]:
    """Yield for each window of each text the log probabilities of its tokens, each masked in turn."""
    tokenizer, room = model.tokenizer, model.config.max_position_embeddings - 2
    flat, splits = tokenizer.encode(texts)
    for begin, end in itertools.pairwise(splits):
        for first in range(int(begin), int(end), room):
            inner = flat[first : min(first + room, int(end))]
            yield _window(model, tokenizer.row(inner).ids)


def _window(model: MaskedWords, row: np.ndarray) -> np.ndarray:
    """Return the log probability of each token between [CLS] and [SEP], masked in turn."""
    found = []
    places = range(1, len(row) - 1)
    for begin in range(0, len(places), model.batch):
        here = list(places[begin : begin + model.batch])
        masked = np.repeat(row[None], len(here), axis=0)
        masked[np.arange(len(here)), here] = model.tokenizer.mask_id
        rows = model.log_probabilities(list(masked), [[place] for place in here])
        found += [float(scores[0, row[place]]) for place, scores in zip(here, rows, strict=True)]
    return np.array(found)


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
