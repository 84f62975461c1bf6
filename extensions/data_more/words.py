"""Find the words of a corpus that a vocabulary splits into pieces, to extend it with `python -m bert.adapt`.

    python -m data.words --source workdir/corpus/shards --vocab RUN/vocab.txt --new 1000 --output workdir/words

The words are those of the training shards, as the tokenizer of the vocabulary normalises them: lower-cased if the
vocabulary is. A word saves tokens where it occurs: its pieces less one; an unknown word ([UNK]) counts as two pieces.
The words that save most are chosen. `words.txt` has them one a line, the best first; `words.tsv` also has how often
each one occurs, and its pieces. The same text gives the same bytes.
"""

import collections
import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from bert.core import cli, ending, files, outputs, ranges, stores
from bert.core.errors import InputError
from bert.core.progress import MB, Progress
from bert.core.ranges import Range
from bert.text.vocabulary import load_vocab, rules_of, rules_parameter
from bert.text.wordpiece import WordPiece
from data.pipeline import document_files, tasks
from data.pipeline.document_files import Part
from data.vocab import MEGABYTE, texts

MAX_COUNTED = 2_000_000  # different words held in memory, about 250 MB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.words`."""

    source: cli.Stored[Path]
    """folder written by data.shards"""
    vocab: cli.Stored[Path]
    """vocab.txt of the trained model"""
    output: cli.Stored[Path]
    """folder to write"""
    new: Annotated[int, Range(1, 1_000_000)] = 1000
    """number of words to choose, at most"""
    minimum: Annotated[int, Range(1, 10**9)] = 20
    """leave out words that occur less often than this"""
    max_megabytes: Annotated[int, Range(1, 1_000_000)] = 200
    """count in at most this much text, an even sample of the documents"""

    def __post_init__(self) -> None:
        ranges.check(self)


class Found(NamedTuple):
    """A word, how often it occurs, and the old tokens that spell it."""

    word: str
    frequency: int
    pieces: tuple[int, ...]
    saved: int  # tokens, in the whole text


class WordCounter:
    """Count words in bounded memory (lossy counting: Manku and Motwani 2002).

    If there are more than `limit` different words, the rarest are forgotten, so that at most half of the limit is left.
    A count is then too low by at most `missed`.
    """

    def __init__(self, limit: int = MAX_COUNTED) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.missed, self._limit = 0, limit

    def add(self, words: Iterable[str]) -> None:
        """Count the words of a text."""
        self.counts.update(words)
        if len(self.counts) > self._limit:
            self._forget()

    def _forget(self) -> None:
        values = np.fromiter(self.counts.values(), np.int64, len(self.counts))
        floor = int(np.partition(values, -(self._limit // 2))[-(self._limit // 2)])
        self.counts = collections.Counter({word: count for word, count in self.counts.items() if count > floor})
        self.missed += floor


def choose(counts: Mapping[str, int], splitter: WordPiece, unknown: int, new: int, minimum: int) -> list[Found]:
    """Return the words that save most tokens, the best first; of equal ones the first in the order of code points.

    unknown: the id of [UNK]. A word without a letter is not chosen, nor one that is too long for the tokenizer.
    """
    candidates = []
    for word, count in counts.items():
        if count < minimum or not any(map(str.isalpha, word)) or splitter.is_too_long(word):
            continue
        pieces = splitter.pieces(word)
        if len(pieces) > 1 or pieces == (unknown,):
            candidates.append(Found(word, count, pieces, count * max(1, len(pieces) - 1)))
    return sorted(candidates, key=lambda one: (-one.saved, one.word))[:new]


def make(options: Options, sources: Sequence[Part], partial: Path) -> outputs.StageResult:
    """Count the words, choose, and write `words.txt` and `words.tsv`. Raise InputError if there is no such word."""
    vocabulary = load_vocab(options.vocab)
    splitter = WordPiece(vocabulary, rules_of(options.vocab, vocabulary))
    counter, total, most = WordCounter(), 0, options.max_megabytes * MEGABYTE
    with Progress("words", MB, document_files.sampled_size(sources, most)) as progress:
        for text in texts(document_files.sample(sources, most, "sentences"), progress):
            words = splitter.words(text)
            counter.add(words)
            total += len(words)
    chosen = choose(counter.counts, splitter, vocabulary.index("[UNK]"), options.new, options.minimum)
    if not chosen:
        raise InputError(
            f"{options.source}: {options.vocab} splits no word that occurs {options.minimum} times; give more text, or "
            "a lower --minimum"
        )
    with files.atomic_write(partial / "words.txt") as stream:
        stream.writelines(f"{one.word}\n" for one in chosen)
    with files.atomic_write(partial / "words.tsv") as stream:
        for one in chosen:
            stream.write(f"{one.word}\t{one.frequency}\t{' '.join(vocabulary[number] for number in one.pieces)}\n")
    saved = sum(one.saved for one in chosen)
    lossy = f"; counts are up to {counter.missed:,} too low" if counter.missed else ""
    print(f"words: {len(chosen):,} words save {saved:,} tokens in a text of {total:,} words{lossy}", file=sys.stderr)
    return outputs.StageResult(counts={"words": len(chosen), "saved tokens": saved, "words of text": total})


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.words", description=__doc__)
    sources = document_files.find(options.source, "train", "shards")
    outputs.build(
        options.output,
        stage="words",
        parameters=tasks.parameters(options) | rules_parameter(options.vocab),
        inputs=tasks.inputs(options),
        make=lambda partial: make(options, sources, partial),
    )
    words = options.output / "words.txt"
    stores.send(options.output)
    ending.print_next_command(
        options.output, "", "python", "-m", "bert.adapt", "RUN", "--words", words, "--output", "ADAPTED"
    )
