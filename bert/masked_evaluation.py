"""What a masked language model predicts: figures of held-out samples, and the pseudo-perplexity of texts."""

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import tensorflow as tf

from bert.core import files, rows
from bert.core.config import BatchConfig, DataConfig, RunConfig
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.progress import Progress
from bert.heads import GENERATOR, REPLACED_TOKEN
from bert.masked_words import MaskedWords, check_head
from bert.pretraining import Pretraining, pairs_of
from bert.runs import Compute, Run
from bert.text import records, rules, sampler, tokenizer_kind, vocabulary
from bert.text.records import Samples
from bert.text.tokenization import WordPieceTokenizer
from bert.training.communicator import Communicator
from bert.training.evaluation import Evaluation
from bert.training.task import Execution, Task

LogProbabilities = Callable[[MaskedWords, Sequence[np.ndarray], Literal["masked"]], Iterator[tuple[int, np.ndarray]]]
LOG_PROBABILITIES = "extensions.minimal_pairs.pseudo_likelihood:log_probabilities"  # of the tokens of texts
REPLACED_TOKENS = "extensions.replaced_tokens.task:trained"  # the task of a run that detects them
CHUNK = 256  # texts that are read and encoded at once


def of_samples(
    run: Run,
    folder: Path,
    split: str,
    sequences: int,
    batch_size: int,
    compute: Compute,
    mask_shares: tuple[float, ...] = (),
) -> dict[str, Any]:
    """Return losses and accuracies on the samples of a folder. Raise InputError if they are not for the model.

    sequences: number of samples, spread over all; 0: all. batch_size: maximum number of samples at once. mask_shares:
    shares of the selected tokens that become [MASK], become a random token, or stay; (): as in training. Raise
    UsageError for shares if the samples are already masked.
    """
    detects = run.has(REPLACED_TOKEN) and run.has(GENERATOR)
    if not detects:
        check_head(run)
    seed, shares_of_training = _masking(run.path)
    shares = mask_shares or shares_of_training
    rules.check(run.path)
    data = records.samples(folder, split, seed, mask_shares=shares)
    check_shares(mask_shares, data, folder)
    _check(run, data, folder)
    task: Task = rows.load(REPLACED_TOKENS)(run) if detects else _task(run, data)
    evaluation = Evaluation(task, Execution(tf.as_dtype(compute)), Communicator())
    totals = {source: dict.fromkeys(evaluation.names, 0.0) for source in data.sources}
    samples = dict.fromkeys(data.sources, 0)
    count = min(sequences or len(data), len(data))
    batches = sampler.evaluation(data, BatchConfig(total=batch_size, per_device=batch_size, pack=True), count)
    with Progress("evaluate", "samples", count) as progress:
        for source, batch in batches:
            for name, value in evaluation.sums(batch).items():
                totals[source][name] += float(value)
            samples[source] += sampler.samples_in(batch)
            progress.add(sampler.samples_in(batch))
    figures = _figures(evaluation, {name: sum(sums[name] for sums in totals.values()) for name in evaluation.names})
    for objective in task.objectives:
        if f"{objective.name}_loss" not in figures:
            print(f"note: {folder}: {objective.without_figures()}", file=sys.stderr)
    if len(totals) > 1:
        for source, sums in totals.items():
            of_source = {"samples": samples[source]} | _figures(evaluation, sums)
            figures |= {f"{name}/{source}": value for name, value in of_source.items()}
    return {"samples": count} | figures


def check_shares(mask_shares: tuple[float, ...], data: Samples, folder: Path) -> None:
    """Raise UsageError if shares are given for samples that are already masked."""
    if mask_shares and data.description.kind != "documents":
        raise UsageError(f"--mask_shares: the samples in {folder} are masked already; make it with --kind documents")


def _check(run: Run, data: Samples, folder: Path) -> None:
    """Raise InputError if the samples have another vocabulary than the model, or more tokens than it has positions."""
    tokenizer, ours, theirs = run.tokenizer, vocabulary.path_in(run.path), vocabulary.path_in(folder)
    stored = data.manifest.files.get(theirs.name)
    vocab_sha256, size = data.description.vocab_sha256 or (stored and stored.sha256), data.description.vocab_size
    differs = vocab_sha256 not in (None, tokenizer.vocab_sha256)
    if differs and stored and ours.name == theirs.name == vocabulary.TOKENIZER:  # an import writes it in another form
        differs = tokenizer_kind.content(ours) != tokenizer_kind.content(theirs)
    if differs or size > run.config.vocab_size:
        raise InputError(
            f"{folder}: made with another vocabulary than that of {run.path}; make the data with its {ours.name}"
        )
    own = tokenizer.rules if stored and isinstance(tokenizer, WordPieceTokenizer) else None
    if own and not vocabulary.rules_of(theirs, tokenizer.vocab).agrees(own):
        print(
            f"note: {folder}: its texts became words by other rules than those of {run.path} (tokenizer_config.json)",
            file=sys.stderr,
        )
    length, positions = data.spec["input_ids"]["shape"][0], run.config.max_position_embeddings
    if length > positions:
        raise InputError(f"{folder}: its samples have {length} tokens, and the model {positions} positions")


def _task(run: Run, data: Samples) -> Pretraining:
    """Return the task of the data with the run's weights; without pairs if the run has no head for them."""
    pairs = pairs_of(data)
    if pairs != "none" and not (run.has("next_sentence") and run.has("pooler")):
        print(f"note: {run.path}: has no head for sentence pairs; only masked words are evaluated", file=sys.stderr)
        pairs = "none"
    task = Pretraining(run.config, 0, pairs)
    run.load(task.module)
    return task


def _figures(evaluation: Evaluation, sums: dict[str, float]) -> dict[str, float]:
    """Return the figures of the objectives that have figures, and the perplexity."""
    figures = evaluation.figures(sums)
    del figures["loss"]  # of an evaluation in training: the sum of the others
    if not all(map(math.isfinite, figures.values())):
        raise IntegrityError("the losses are not finite: the model's training failed; use another checkpoint")
    return figures | ({"mlm_perplexity": _exp(figures["mlm_loss"])} if "mlm_loss" in figures else {})


def _masking(run: Path) -> tuple[int, tuple[float, ...]]:
    """Return the seed and the shares with which the run masks documents; the defaults for an import."""
    try:
        settings = files.read_json(run / "config.json")["config"]
        shares = tuple(map(float, settings.get("data.mask_shares", DataConfig.mask_shares)))
        return int(settings.get("run.seed", RunConfig.seed)), DataConfig(mask_shares=shares).mask_shares
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return RunConfig.seed, DataConfig.mask_shares


def of_texts(run: Run, path: Path, batch_size: int, compute: Compute) -> dict[str, Any]:
    """Return the pseudo-perplexity of the lines of a file. Empty lines are skipped."""
    model = MaskedWords(run, compute, batch_size)
    log_probabilities: LogProbabilities = rows.load(LOG_PROBABILITIES)
    texts = tokens = words = 0
    total = 0.0
    with files.open_text(path) as stream, Progress("evaluate", "texts", _count(path)) as progress:
        rest = _texts(stream, path)
        while chunk := list(itertools.islice(rest, CHUNK)):
            for _, scores in log_probabilities(model, _windows(model, chunk), "masked"):
                total, tokens = total + float(scores.sum()), tokens + len(scores)
                progress.add(1)
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


def _texts(stream: IO[str], path: Path) -> Iterator[str]:
    lines = (line.strip() for line in files.read_lines(stream, path))
    return (line for line in lines if line)


def _count(path: Path) -> int | None:
    """Return the number of texts in a file; None for a pipe."""
    if not path.is_file():
        return None
    with files.open_text(path) as stream:
        return sum(1 for _ in _texts(stream, path))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # the largest that float64 holds


def _windows(model: MaskedWords, texts: list[str]) -> list[np.ndarray]:
    """Return the tokens of the texts, divided into rows that fit the model."""
    tokenizer, room = model.tokenizer, model.config.max_position_embeddings - 2
    flat, splits = tokenizer.encode(texts)
    return [
        tokenizer.row(flat[first : min(first + room, int(end))]).ids
        for begin, end in itertools.pairwise(splits)
        for first in range(int(begin), int(end), room)
    ]
