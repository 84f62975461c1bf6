"""Train a WordPiece vocabulary on the training shards, or check and copy an existing one.

    python -m data.vocab --source workdir/corpus/shards --output workdir/corpus/vocab --size 30522
    python -m data.vocab --source workdir/corpus/shards --output workdir/corpus/vocab --vocab bert-vocab.txt

Training uses Hugging Face `tokenizers`, which is about 85 times as fast as TensorFlow Text. The same text gives the
same bytes.
"""

import collections
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bert import cli, ranges
from bert.errors import InputError, UsageError
from bert.inputs.vocabulary import SPECIAL, is_lower_case, load_vocab
from bert.ranges import Range
from bert.storage import files, outputs
from data.pipeline import parts, tasks
from data.pipeline.parts import Part
from data.pipeline.progress import Progress

CODE_POINTS = 0x110000
MIN_FREQUENCY = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.vocab`."""

    source: Path | None = None
    """folder written by data.shards; required with --size"""
    output: Path
    """folder to write"""
    size: Annotated[int, Range(100, 10_000_000)] | None = None
    """number of tokens of the vocabulary to train"""
    vocab: Path | None = None
    """use this vocab.txt instead of training one"""
    lower_case: bool = True
    """lower-case the text and strip accents"""
    max_megabytes: Annotated[int, Range(1, 1_000_000)] = 200
    """train on at most this much text, an even sample of the documents"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.size is None) == (self.vocab is None):
            raise UsageError("data.vocab: give either --size N to train a vocabulary or --vocab FILE to use one")
        if self.size is not None and self.source is None:
            raise UsageError("data.vocab: --size needs --source, a folder written by data.shards")


def train(texts: Callable[[], Iterable[str]], size: int, lower_case: bool) -> list[str]:
    """Return up to `size` tokens: special tokens, characters inside words, characters that begin words, merged pieces.

    `texts()` is called twice: to count the characters and to train on the words.

    By default the trainer numbers the characters in the random order of a hash map and breaks ties by these numbers, so
    each run gives another vocabulary (tokenizers issue 1794). Here the characters are counted and ordered beforehand.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    characters = _alphabet(texts(), normalizer, limit=min(1000, size // 8))
    inside = ["##" + character for character in characters if _is_word_character(character, tokenizer.pre_tokenizer)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[*SPECIAL, *inside],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
    )
    tokenizer.train_from_iterator(texts(), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _alphabet(texts: Iterable[str], normalizer: normalizers.Normalizer, limit: int) -> list[str]:
    """Return the `limit` most frequent characters after normalisation; ties are broken by code point."""
    raw = np.zeros(CODE_POINTS, np.int64)
    for text in texts:
        counts = np.bincount(np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32))
        raw[: len(counts)] += counts
    normal: collections.Counter[str] = collections.Counter()
    for code in np.flatnonzero(raw):
        for character in normalizer.normalize_str(chr(code)):
            normal[character] += int(raw[code])
    del normal[" "]
    return sorted(normal, key=lambda character: (-normal[character], character))[:limit]


def _is_word_character(character: str, pre_tokenizer: pre_tokenizers.PreTokenizer) -> bool:
    """Whether a character can be inside a word; a punctuation mark or Chinese character is a word by itself."""
    return len(pre_tokenizer.pre_tokenize_str("a" + character)) == 1


def check_case(tokens: Sequence[str], lower_case: bool, where: Path) -> None:
    """Raise InputError if the vocabulary is cased and the text lower-cased, or the reverse.

    Most words would be unknown tokens.
    """
    cased = not is_lower_case(tokens)
    if cased and lower_case:
        raise InputError(f"{where}: a cased vocabulary, but --lower_case is true; give --lower_case false")
    if not cased and not lower_case and any(token.isalpha() for token in tokens):
        raise InputError(f"{where}: an uncased vocabulary, but --lower_case is false; give --lower_case true")


def make(options: Options, sources: Sequence[Part], partial: Path) -> outputs.StageResult:
    """Train or check the vocabulary and write `vocab.txt`."""
    if options.vocab:
        tokens = load_vocab(options.vocab)
        check_case(tokens, options.lower_case, options.vocab)
        print(f"vocab: {len(tokens):,} tokens of {options.vocab}", file=sys.stderr)
    else:
        assert options.size is not None
        progress = Progress("vocab")
        sample = functools.partial(texts, sources, options.max_megabytes, progress)
        tokens = train(sample, options.size, options.lower_case)
        fewer = f" instead of {options.size:,}, because the text is small" if len(tokens) < options.size else ""
        progress.done(f"{len(tokens):,} tokens{fewer}")
    with files.atomic_write(partial / "vocab.txt") as stream:
        stream.writelines(token + "\n" for token in tokens)
    return outputs.StageResult(counts={"tokens": len(tokens)}, records={"vocab.txt": len(tokens)})


def texts(sources: Sequence[Part], max_megabytes: int, progress: Progress) -> Iterator[str]:
    """Yield the texts of an even sample of the documents, and count them."""
    for document in parts.sample(sources, max_megabytes * 1_000_000, "sentences"):
        text = " ".join(document["sentences"])
        progress.add(1, len(text))
        yield text


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.vocab", description=__doc__)
    if options.vocab:  # then the text is not read
        options = dataclasses.replace(options, source=None)
    sources = parts.find(options.source, "train", "shards") if options.source else []
    outputs.build(
        options.output,
        stage="vocab",
        parameters=tasks.parameters(options),
        inputs=tasks.inputs(options),
        make=lambda partial: make(options, sources, partial),
    )


if __name__ == "__main__":
    cli.main(main)
