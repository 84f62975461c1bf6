"""Score sentences by a run: a pseudo-log-likelihood by a masked language model, a log-likelihood by a causal one."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert.core.errors import InputError, UsageError
from bert.core.progress import Progress
from bert.engines import engine as engines
from bert.hardware.choices import Compute, EngineName
from bert.masked_words import MaskedWords
from bert.runs import Run
from bert.text.batches import LENGTH_MULTIPLE
from extensions.gpt import trained
from extensions.gpt.scoring import Passage, Scorer
from extensions.minimal_pairs import pseudo_likelihood
from extensions.minimal_pairs.reading import Method, Pair


class Scores(NamedTuple):
    """The scores of all pairs, and by what they were computed."""

    good: np.ndarray  # [pairs]
    bad: np.ndarray
    method: Method  # not "auto"
    checkpoint: Path
    unknown: int | None  # pairs with [UNK] in them; None if the tokenizer has no such token


def score(
    path: Path, pairs: Sequence[Pair], method: Method, batch: int, compute: Compute, engine: EngineName = "tensorflow"
) -> Scores:
    """Score both sentences of each pair by the run at `path`.

    `masked` and `word_l2r` are sums of the log probabilities of `pseudo_likelihood`, `unmasked` is their mean.
    `causal` is the sum of log p of each token after those before it, the first one after <|endoftext|>. Raise
    UsageError if the run cannot score by `method`, or `engine` cannot compute it, InputError for a sentence that has no
    tokens or too many.
    """
    run = Run.open(path)
    if method != "auto" and run.config.causal != (method == "causal"):
        kind, fitting = ("causal", "causal") if run.config.causal else ("masked", "masked, word_l2r or unmasked")
        raise UsageError(f"--score {method}: {path} is a {kind} language model; give --score {fitting}")
    if run.config.causal:
        engines.choose(engine, run.config, compute)  # raises an error if it is openvino
        return _causal(path, pairs, batch, compute)
    return _masked(run, pairs, method, MaskedWords(run, compute, batch, engine))


def _masked(run: Run, pairs: Sequence[Pair], method: Method, model: MaskedWords) -> Scores:
    by: pseudo_likelihood.Method = "masked" if method == "auto" or method == "causal" else method
    flat, splits = model.tokenizer.encode(_sentences(pairs))
    rows = [model.tokenizer.row(flat[begin:end]).ids for begin, end in itertools.pairwise(splits)]
    _check(pairs, rows, 2, model.config.max_position_embeddings)
    total = np.mean if by == "unmasked" else np.sum

    def scores(chosen: Sequence[np.ndarray]) -> Iterator[tuple[int, float]]:
        for number, log_probabilities in pseudo_likelihood.log_probabilities(model, chosen, by):
            yield number, float(total(log_probabilities))

    unknown = np.array([model.tokenizer.unk_id in row for row in rows]).reshape(-1, 2).any(axis=1)
    return Scores(*_each(rows, scores), by, run.checkpoint, int(unknown.sum()))


def _causal(path: Path, pairs: Sequence[Pair], batch: int, compute: Compute) -> Scores:
    if compute != "float32":
        raise UsageError(f"--compute {compute}: causal models are scored in float32; leave it out")
    model = trained.load(path)
    rows = [np.array([model.tokenizer.end, *ids]) for ids in model.tokenizer.encode_batch(_sentences(pairs))]
    _check(pairs, rows, 1, model.encoder.config.max_position_embeddings + 1)
    scorer = Scorer(model, batch, LENGTH_MULTIPLE)

    def scores(chosen: Sequence[np.ndarray]) -> Iterator[tuple[int, float]]:
        order = sorted(range(len(chosen)), key=lambda number: len(chosen[number]), reverse=True)
        scored = scorer(Passage(chosen[number]) for number in order)
        for number, of_tokens in zip(order, scored, strict=True):
            yield number, -float(of_tokens.losses.sum())

    return Scores(*_each(rows, scores), "causal", model.checkpoint, None)


def _sentences(pairs: Sequence[Pair]) -> list[str]:
    return [sentence for pair in pairs for sentence in (pair.good, pair.bad)]


def _each(
    rows: Sequence[np.ndarray], scores: Callable[[Sequence[np.ndarray]], Iterator[tuple[int, float]]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the good and of the bad sentences; equal rows are scored once, so their scores are equal."""
    numbers: dict[bytes, int] = {}
    places = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    chosen = [rows[place] for place in np.unique(places, return_index=True)[1]]
    of_rows = np.empty(len(chosen))
    with Progress("score", "sentences", len(chosen)) as progress:
        for number, value in progress.each(scores(chosen)):
            of_rows[number] = value
    good, bad = of_rows[places].reshape(-1, 2).T
    return good, bad


def _check(pairs: Sequence[Pair], rows: Sequence[np.ndarray], special: int, limit: int) -> None:
    """Raise InputError if a row, two for each pair, has nothing but its `special` tokens, or more than the `limit`."""
    for number, row in enumerate(rows):
        where, which = pairs[number // 2].where, ("good", "bad")[number % 2]
        if len(row) == special:
            raise InputError(f"{where}: the {which} sentence has no tokens; mend it")
        if len(row) > limit:
            raise InputError(
                f"{where}: the {which} sentence has {len(row)} tokens with the special ones, and the model takes "
                f"{limit}; leave the pair out"
            )
