"""Extend the vocabulary of a trained model by the words of a domain, to go on with its pretraining.

    python -m data.words --source workdir/corpus/shards --vocab RUN/vocab.txt --new 1000 --output workdir/words
    python -m bert.adapt RUN --words workdir/words/words.txt --output ADAPTED
    python -m data.tfrecords --source workdir/corpus/shards --vocab ADAPTED/vocab.txt --output workdir/domain ...
    python -m bert.pretrain bert_domain --init.checkpoint ADAPTED --data.train workdir/domain

The words, one a line, first take the places of the entries [unused0], [unused1], ...; the others are appended. No other
entry changes its place. A word may be a piece that continues a word (##ase). The embedding of a new entry, and what the
masked-LM head has of it, is the mean of the old pieces that it replaces; a word that was unknown begins as [UNK]. All
other weights are copied bit by bit, without the state of the optimizer.

The output is a run directory with one checkpoint, of step 0, as an import makes it.
"""

import dataclasses
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert import labels
from bert.convert import names
from bert.core import cli, ending, files, outputs, stores
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.heads import GENERATOR
from bert.model.weights import HEADS, WORDS
from bert.text.vocabulary import MAX_CHARACTERS, load_vocab, rules_of
from bert.text.wordpiece import WordPiece

UNUSED = re.compile(r"\[unused[0-9]+\]")
# Beside the embeddings: the weights with an entry for each token, [V] and [V, D].
SCORES = tuple(f"{of}{part.name}" for of in ("", f"{GENERATOR}/") for part in HEADS if part.axes.startswith("V"))
KNOWN, REPEATED, DIVIDED, LONG = (
    "already in the vocabulary",
    "repeated",
    "not one word to the tokenizer",
    "longer than the longest word of the tokenizer",
)
SHOWN = 3  # examples in a message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.adapt`."""

    run: cli.Run
    """run directory of a trained model, or an import"""
    output: Path
    """run directory to write"""
    words: Path
    """new words, one a line, such as words.txt of data.words"""
    unused: bool = True
    """put new words in the places of [unusedN] entries, as long as there are any; false appends all"""


class Choice(NamedTuple):
    """The words of a list that can be added to a vocabulary."""

    words: list[str]
    normalised: int  # words that were written otherwise, such as with capital letters
    left_out: dict[str, list[str]]  # reason -> lines


class Extended(NamedTuple):
    """A vocabulary with new words, and the ids of these words."""

    tokens: list[str]
    ids: list[int]
    renamed: int  # words in place of an [unusedN] entry: the first ones


def choose(lines: Iterable[str], vocabulary: Sequence[str], splitter: WordPiece) -> Choice:
    """Return the words of a list that the vocabulary lacks, normalised by its tokenizer, in the order of the list."""
    entries, chosen = set(vocabulary), dict[str, None]()
    normalised, left_out = 0, dict[str, list[str]]()
    for line in lines:
        if not (written := line.strip()):
            continue
        word = written if written in entries else _normal(written, splitter)
        if reason := _reason(word, entries, chosen, splitter):
            left_out.setdefault(reason, []).append(written)
        else:
            chosen[word] = None
            normalised += word != written
    return Choice(list(chosen), normalised, left_out)


def _normal(written: str, splitter: WordPiece) -> str:
    """Return a word or a continuation, normalised by the tokenizer; "" if the result is not exactly one word."""
    before = "a" if written.startswith("##") and written != "##" else ""  # what stands before a continuation
    words = splitter.words(before + written.removeprefix("##") if before else written)
    if len(words) != 1 or not words[0].startswith(before) or words[0] == before:
        return ""
    return f"##{words[0].removeprefix(before)}" if before else words[0]


def _reason(word: str, entries: set[str], chosen: dict[str, None], splitter: WordPiece) -> str:
    """Return why a word cannot be a new entry, or "" if it can."""
    if not word:
        return DIVIDED
    if splitter.is_too_long(word.removeprefix("##")):
        return LONG
    return KNOWN if word in entries else REPEATED if word in chosen else ""


def extend(vocabulary: Sequence[str], words: Sequence[str], unused: bool = True) -> Extended:
    """Return the vocabulary with new words. If `unused`, they replace [unusedN] entries first; others are appended."""
    tokens = list(vocabulary)
    free = [number for number, token in enumerate(tokens) if UNUSED.fullmatch(token)] if unused else []
    renamed = min(len(free), len(words))
    for number, word in zip(free, words, strict=False):
        tokens[number] = word
    ids = [*free[:renamed], *range(len(tokens), len(tokens) + len(words) - renamed)]
    return Extended([*tokens, *words[renamed:]], ids, renamed)


def with_means(values: np.ndarray, extended: Extended, pieces: Sequence[Sequence[int]]) -> np.ndarray:
    """Return float32 values for each token of an extended vocabulary [V, ...]. values: of the old one [U, ...].

    Rows after the last entry stay, unless new words take them. pieces: for each new word the ids of the old tokens that
    it replaces; the word gets the mean of their values.
    """
    result = np.zeros((max(len(values), len(extended.tokens)), *values.shape[1:]), np.float32)
    result[: len(values)] = values
    for number, replaced in zip(extended.ids, pieces, strict=True):
        result[number] = values[list(replaced)].mean(axis=0, dtype=np.float64)
    return result


def read_words(path: Path) -> list[str]:
    """Return the lines of a list of words. Raise InputError if the list is longer than any vocabulary."""
    text = files.read_text(path, MAX_CHARACTERS, "give a list of words, one a line")
    return text.split("\n")


def make(options: Options, folder: Path, partial: Path) -> outputs.StageResult:
    """Write the extended model of the checkpoint `folder` to `partial`. Raise InputError if no word is new."""
    from bert.convert import run

    config = ModelConfig.load(options.run / "bert_config.json")
    config.refuse_causal(options.run, "; its tokens spell every word, so it needs no new ones")
    if not (options.run / "vocab.txt").exists():
        raise InputError(
            f"{options.run}: has no vocab.txt, and its tokenizer.json needs no new words, since its tokens spell all; "
            "give that file to data.tfrecords as --vocab, and the run to bert.pretrain as --init.checkpoint"
        )
    vocabulary = load_vocab(options.run / "vocab.txt")
    rules = rules_of(options.run / "vocab.txt", vocabulary)
    run.check_vocab_size(config, vocabulary, options.run / "vocab.txt")
    splitter = WordPiece(vocabulary, rules)
    choice = choose(read_words(options.words), vocabulary, splitter)
    _print_left_out(choice)
    if not choice.words:
        raise InputError(f"{options.words}: no word that the vocabulary of {options.run} lacks; give other words")
    extended = extend(vocabulary, choice.words, options.unused)
    pieces = [splitter.pieces(word) for word in choice.words]
    values, ignored = _weights(folder, config.vocab_size)
    for name in {WORDS, *SCORES} & values.keys():
        values[name] = with_means(values[name], extended, pieces)
    heads = {name.split("/")[0] for name in values}
    match = names.Match([], [], [head for head in names.HEAD_NAMES if head not in heads], ignored)
    appended = len(choice.words) - extended.renamed
    adapted = {"words": options.words.name, "renamed": extended.renamed, "appended": appended}
    before = labels.settings(options.run)
    model = run.Model(
        config=dataclasses.replace(config, vocab_size=len(values[WORDS])),
        vocab=extended.tokens,
        rules=rules,
        match=match,
        values=values,
        settings=run.import_settings(f"adapt {options.run.name}", match) | {"adapted": adapted} | run.of_texts(before),
        head=labels.of(before, options.run / "config.json"),
    )
    run.write_model(model, partial)
    unknown = sum(replaced == (vocabulary.index("[UNK]"),) for replaced in pieces)
    print(
        f"adapt: {options.output}: {len(choice.words):,} new words, {extended.renamed:,} in place of [unused] entries "
        f"and {appended:,} appended; {len(extended.tokens):,} entries; a new word replaces "
        f"{np.mean([len(replaced) for replaced in pieces]):.1f} pieces on average; {unknown:,} were unknown",
        file=sys.stderr,
    )
    return outputs.StageResult(counts={"words": len(choice.words), "renamed": extended.renamed, "appended": appended})


def _weights(folder: Path, rows: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the weights of a checkpoint, and the names of its other variables, which belong to training.

    rows: of the word embeddings, as the model's configuration gives them. Raise InputError if the checkpoint has
    others.
    """
    from bert.training import checkpoint

    stored = checkpoint.Stored(folder)
    shapes = stored.shapes
    for name in (WORDS, *SCORES):
        if shapes.get(name, [rows])[0] != rows:
            raise InputError(f"{folder}: {name} has shape {shapes[name]}, but vocab_size is {rows}")
    if WORDS not in shapes:
        raise InputError(f"{folder}: no variable {WORDS}; give the run directory of a model")
    ignored = sorted(name for name in shapes if name.split("/")[0] in checkpoint.STATE)
    return {name: stored.get(name) for name in sorted(shapes.keys() - set(ignored))}, ignored


def _print_left_out(choice: Choice) -> None:
    """Print how many words were left out, by reason, and how many are spelt differently than in the list."""
    notes = [
        f"{len(lines):,} {reason} ({', '.join(repr(line[:40]) for line in lines[:SHOWN])}"
        + (", ...)" if len(lines) > SHOWN else ")")
        for reason, lines in choice.left_out.items()
    ]
    if notes:
        print(f"adapt: left out: {'; '.join(notes)}", file=sys.stderr)
    if choice.normalised:
        print(f"adapt: {choice.normalised:,} words taken as the tokenizer normalises them", file=sys.stderr)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.adapt", description=__doc__)
    from bert.convert import run
    from bert.hardware import devices

    devices.hide_gpus()  # nothing is computed
    stores.fetch_run(options.run)
    inputs = run.input_files(options.run)
    outputs.build(
        options.output,
        stage="adapt",
        parameters={"run": options.run.name, "unused": options.unused},
        inputs=[*inputs, options.words],
        make=lambda partial: make(options, inputs[0], partial),
    )
    vocab = options.output / "vocab.txt"
    then = ("python", "-m", "data.tfrecords", "--source", "SHARDS", "--vocab", vocab, "--output", "FOLDER")
    ending.print_next_command(options.output, "", *then)


if __name__ == "__main__":
    cli.main(main)
