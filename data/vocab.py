"""Train a WordPiece vocabulary on the training shards, or check and copy an existing one.

    python -m data.vocab --source workdir/corpus/shards --output workdir/corpus/vocab --size 30522
    python -m data.vocab --source workdir/corpus/shards --output workdir/corpus/vocab --vocab bert-vocab.txt

Training uses Hugging Face `tokenizers`, which is about 85 times as fast as TensorFlow Text. The same text gives the
same bytes.
"""

import dataclasses
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bert.core import cli, ending, manifest, outputs, ranges, stores
from bert.core.errors import InputError, UsageError
from bert.core.progress import MB, Progress
from bert.core.ranges import Range
from bert.text import tokenization, vocabulary
from bert.text.normalization import Normalizer, TokenizerConfig
from bert.text.tokenization import WordPieceTokenizer
from bert.text.vocabulary import SPECIAL
from bert.text.wordpiece import LONGEST_CACHED, MAX_CACHED, WordPiece
from data.pipeline import document_files, drop_counts, tasks
from data.pipeline.document_files import Part

CODE_POINTS = 0x110000
MEGABYTE = 1_000_000
MIN_FREQUENCY = 2
COVERAGE = 0.9995  # share of all characters that are tokens, as in SentencePiece for Chinese and Japanese
MOST_STRIPPED = 0.02  # share of words above which the command says that their accents go; in English it is less
CHECKED_MEGABYTES, MOST_UNKNOWN = 2, 0.01  # more unknown tokens than one in a hundred hide what the model could learn
NEWER = ("strip_accents", "split_ideographs", "special")  # flags that version 1.0 did not have


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.vocab`."""

    source: cli.Stored[Path | None] = None
    """folder written by data.shards; required with --size"""
    output: cli.Stored[Path]
    """folder to write"""
    size: Annotated[int, Range(100, 10_000_000)] | None = None
    """number of tokens of the vocabulary to train"""
    vocab: cli.Stored[Path | None] = None
    """use this vocab.txt, or the tokenizer.json of an imported model, instead of training one"""
    lower_case: bool = True
    """lower-case the text and, unless --strip_accents false, strip accents"""
    strip_accents: bool | None = None
    """strip accents; none: if the text is lower-cased"""
    split_ideographs: bool = True
    """make each Chinese character a word by itself"""
    special: tuple[str, ...] = ()
    """further special tokens, which the texts have as they are written, such as [E1]"""
    max_megabytes: Annotated[int, Range(1, 1_000_000)] = 200
    """train on at most this much text, an even sample of the documents"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.size is None) == (self.vocab is None):
            raise UsageError("data.vocab: give either --size N to train a vocabulary or --vocab FILE to use one")
        if self.size is not None and self.source is None:
            raise UsageError("data.vocab: --size needs --source, a folder written by data.shards")
        if wrong := [token for token in self.special if len(token.split()) != 1 or token in SPECIAL]:
            raise UsageError(
                f"--special {wrong[0]!r}: a special token has no white space, and is not one of BERT's own"
            )
        if self.size and self.size < 2 * (len(SPECIAL) + len(self.special)):
            raise UsageError(
                f"--size {self.size}: too small for {len(self.special)} tokens of --special beside characters"
            )
        if self.vocab and (self.strip_accents is not None or not self.split_ideographs or self.special):
            raise UsageError(
                "--strip_accents, --split_ideographs and --special have no effect on a given vocabulary, whose rules "
                f"are in {vocabulary.RULES} beside it; leave them out"
            )

    def rules(self) -> TokenizerConfig:
        """Return the rules by which texts become words."""
        return TokenizerConfig(
            lower_case=self.lower_case,
            strip_accents=self.lower_case if self.strip_accents is None else self.strip_accents,
            split_ideographs=self.split_ideographs,
            special=self.special,
        )


def train(texts: Callable[[], Iterable[str]], size: int, rules: TokenizerConfig) -> list[str]:
    """Return up to `size` tokens: special tokens, characters inside words, characters that begin words, merged pieces.

    `texts()` is called twice: to count the characters and to train on the words. `rules` make the words.

    By default the trainer numbers the characters in the random order of a hash map and breaks ties by these numbers, so
    each run gives another vocabulary (tokenizers issue 1794). Here the characters are counted and ordered beforehand.
    """
    normalizer = Normalizer(rules)
    spaced = _Spaced(normalizer)
    most = (size - len(SPECIAL) - len(rules.special)) // 2  # each character may be there twice
    characters = _alphabet(map(spaced, document_files.training_pieces(texts())), min(1000, size // 8), most)
    inside = ["##" + character for character in characters if len(normalizer.words("a" + character)) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[*SPECIAL, *rules.special, *inside],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
    )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.train_from_iterator(map(spaced, document_files.training_pieces(texts())), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


class _Spaced(dict[str, str]):
    """Return the words of a text with spaces between them, without special tokens. Caches what the parts become."""

    def __init__(self, normalizer: Normalizer) -> None:
        super().__init__()
        self._normalizer = normalizer

    def __call__(self, text: str) -> str:
        return " ".join(map(self.__getitem__, self._normalizer.tokens(text)))

    def __missing__(self, token: str) -> str:
        special = self._normalizer.rules.special
        words = " ".join(word for word in self._normalizer.words(token) if word not in special)
        if len(token) <= LONGEST_CACHED:
            if len(self) >= MAX_CACHED:
                self.clear()
            self[token] = words
        return words


def _alphabet(texts: Iterable[str], least: int, most: int) -> list[str]:
    """Return the most frequent characters of words; ties are broken by code point.

    Return at least `least` characters and enough to cover `COVERAGE` of all text, but at most `most`.
    """
    counts = np.zeros(CODE_POINTS, np.int64)
    for text in texts:
        of_text = np.bincount(np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32))
        counts[: len(of_text)] += of_text
    counts[ord(" ")] = 0
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    covering = np.searchsorted(np.cumsum(counts[order]), COVERAGE * counts.sum()) + 1
    return [chr(code) for code in order[: min(max(least, covering), most)]]


def unknown_share(texts: Iterable[str], tokens: Sequence[str], rules: TokenizerConfig) -> float:
    """Return the share of [UNK] among the tokens of some texts."""
    ids, _ = WordPiece(tokens, rules).encode(list(texts))
    return float(np.mean(ids == tokens.index("[UNK]"))) if len(ids) else 0.0


def without_accents(texts: Iterable[str], rules: TokenizerConfig) -> tuple[float, str]:
    """Return the share of words that change when their accents are stripped, and the most frequent such word."""
    keeping = Normalizer(dataclasses.replace(rules, strip_accents=False))
    words = Counter(word for text in texts for token in keeping.tokens(text) for word in keeping.words(token))
    stripping = Normalizer(rules)
    changed = Counter({word: n for word, n in words.items() if stripping.words(word) != [word]})
    return changed.total() / max(1, words.total()), changed.most_common(1)[0][0] if changed else ""


def check_case(vocab: Path, lower_case: bool) -> tokenization.Tokenizer:
    """Return the tokenizer of a vocabulary. Raise InputError if it is cased and the text lower-cased, or the reverse.

    Most words would be unknown tokens.
    """
    tokenizer = tokenization.read(vocab)
    if lower_case and not tokenizer.lower_case:
        raise InputError(f"{vocab}: a cased vocabulary, but --lower_case is true; give --lower_case false")
    if tokenizer.lower_case and not lower_case:
        raise InputError(f"{vocab}: an uncased vocabulary, but --lower_case is false; give --lower_case true")
    return tokenizer


def make(options: Options, sources: Sequence[Part], partial: Path) -> outputs.StageResult:
    """Train or check the vocabulary and write `vocab.txt`; or copy a `tokenizer.json`."""
    extra: dict[str, Any] = {}
    if options.vocab:
        tokenizer = check_case(options.vocab, options.lower_case)
        tokens = tokenizer.vocab
        print(f"vocab: {len(tokens):,} tokens of {options.vocab}", file=sys.stderr)
        if isinstance(tokenizer, WordPieceTokenizer):
            vocabulary.write(tokens, tokenizer.rules, partial)
        else:
            vocabulary.copy(options.vocab, partial)
    else:
        assert options.size is not None and options.source is not None
        lost, rules = drop_counts.DropCounts(), options.rules()
        size = document_files.sampled_size(sources, options.max_megabytes * MEGABYTE)
        with tempfile.TemporaryFile(dir=partial) as stream, Progress("vocab", MB, 2 * size) as progress:
            texts_looked_at: list[str] = []
            sampled = _sample(sources, options.max_megabytes, stream, texts_looked_at)
            passes = iter((texts(sampled, progress, lost), texts(_read_again(stream), progress)))
            tokens = train(lambda: next(passes), options.size, rules)
        fewer = f" instead of {options.size:,}: no more pieces occur twice" if len(tokens) < options.size else ""
        extra["losses"] = _not_sampled(options.source, lost)
        drop_counts.tell("vocab", extra["losses"])
        print(f"vocab: {len(tokens):,} tokens{fewer}", file=sys.stderr)
        unknown = unknown_share(texts_looked_at, tokens, rules)
        remedy = "; give a larger --size" if unknown > MOST_UNKNOWN else ""
        print(f"vocab: {'warning: ' if remedy else ''}{unknown:.2%} of the tokens are [UNK]{remedy}", file=sys.stderr)
        if rules.strip_accents and options.strip_accents is None:
            share, word = without_accents(texts_looked_at, rules)
            if share > MOST_STRIPPED:
                stripped = f"{share:.1%} of the words are others without their accents, most often {word!r}"
                print(f"vocab: {stripped}; --strip_accents false keeps them", file=sys.stderr)
        vocabulary.write(tokens, rules, partial)
    name = vocabulary.path_in(partial).name
    return outputs.StageResult(counts={"tokens": len(tokens)}, records={name: len(tokens)}, extra=extra)


def _not_sampled(shards: Path, lost: drop_counts.DropCounts) -> drop_counts.Report:
    """Count as dropped the training text of the shards that is not in the sample.

    The manifest of the shards has their documents and characters. A manifest of version 1.0 has no characters; then
    only the characters of the sample are counted.
    """
    used = lost.report()
    counts = manifest.load(shards, "shards").counts
    have = {unit: counts.get(f"train_{unit}") for unit in drop_counts.UNITS}
    left = {unit: number - used[unit][drop_counts.OUT] for unit, number in have.items() if isinstance(number, int)}
    documents, characters = (left.get(unit, 0) for unit in drop_counts.UNITS)
    if documents or characters:
        lost.read(documents, characters)
        lost.drop("not in the sample (--max_megabytes)", documents, characters)
    return lost.report()


def _sample(
    sources: Sequence[Part], max_megabytes: int, stream: IO[bytes], texts_looked_at: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield an even sample of the documents, and write its lines to `stream`, so that the shards are read only once.

    Every n-th text, about `CHECKED_MEGABYTES` in all, is added to `texts_looked_at`.
    """
    size = min(sum(source.path.stat().st_size for source in sources), max_megabytes * MEGABYTE)
    step = max(1, -(-size // (CHECKED_MEGABYTES * MEGABYTE)))
    for index, document in enumerate(document_files.sample(sources, max_megabytes * MEGABYTE, "sentences")):
        if index % step == 0:
            texts_looked_at.append(" ".join(document["sentences"]))
        stream.write(json.dumps(document).encode() + b"\n")  # with lone surrogates, as they were read
        yield document


def _read_again(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    stream.seek(0)
    yield from map(json.loads, stream)


def texts(
    documents: Iterable[dict[str, Any]], progress: Progress | None = None, lost: drop_counts.DropCounts | None = None
) -> Iterator[str]:
    """Yield the texts of documents. Count them in `progress` and `lost`, if these are given."""
    for document in documents:
        text = " ".join(document["sentences"])
        if progress:
            progress.add(len(text))
        if lost is not None:
            characters = sum(map(len, document["sentences"]))
            lost.read(1, characters)
            lost.wrote(1, characters)
        yield text


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.vocab", description=__doc__)
    if options.vocab:  # then the text is not read
        options = dataclasses.replace(options, source=None)
    sources = document_files.find(options.source, "train", "shards") if options.source else []
    outputs.build(
        options.output,
        stage="vocab",
        parameters=tasks.parameters(options, newer=NEWER)
        | (vocabulary.rules_parameter(options.vocab) if options.vocab else {}),
        inputs=tasks.inputs(options),
        make=lambda partial: make(options, sources, partial),
    )
    shards, vocab = options.source or "SHARDS", vocabulary.path_in(options.output)
    then = ("python", "-m", "data.tfrecords", "--source", shards, "--vocab", vocab, "--output", "FOLDER")
    stores.send(options.output)
    ending.print_next_command(options.output, "", *then)


if __name__ == "__main__":
    cli.main(main)
