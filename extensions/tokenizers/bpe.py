"""Train a byte-level BPE for a causal model, or take that of GPT-2.

    python -m data.bpe --source workdir/corpus/wikipedia workdir/corpus/books --output workdir/corpus/bpe --size 50257
    python -m data.bpe --import gpt2/ --output workdir/corpus/bpe

The vocabulary has the layout of GPT-2's: the 256 bytes, the merges in their order, and `<|endoftext|>` last. The same
text gives the same bytes. With --import, the folder has a `tokenizer.json`, or GPT-2's `vocab.json` and
`merges.txt`, or the same files under OpenAI's names, `encoder.json` and `vocab.bpe`; all ids stay as they are.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bert.core import cli, ending, files, outputs, ranges, stores
from bert.core.errors import UsageError
from bert.core.progress import MB, Progress
from bert.core.ranges import Range
from bert.text.vocabulary import TOKENIZER
from data.pipeline import document_files, duplicates, tasks
from data.pipeline.document_files import Part
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.byte_bpe import Merges, Vocabulary

MIN_FREQUENCY = 2
ENDLESS = re.compile(r"\S{200,}")  # not a word; the time to merge within a word grows with the square of its length


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.bpe`."""

    source: cli.Stored[tuple[Path, ...]] = ()
    """folders written by data.wikipedia, data.books, data.pubmed, data.text; required with --size"""
    output: cli.Stored[Path]
    """folder to write"""
    size: Annotated[int, Range(257, byte_bpe.LARGEST)] | None = None
    """number of tokens of the vocabulary to train, with the 256 bytes and <|endoftext|>; GPT-2 has 50257"""
    import_: cli.Stored[Path | None] = None
    """folder with the tokenizer.json, or the vocab.json and merges.txt, of GPT-2, to use instead of training"""
    heldout: Annotated[float, Range(0, 1, below=True)] = 0.01
    """the same as for data.tokens: texts that it holds out are not trained on"""
    max_megabytes: Annotated[int, Range(1, 1_000_000)] = 200
    """train on at most this much text, an even sample of the documents"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.size is None) == (self.import_ is None):
            raise UsageError("data.bpe: give either --size N to train a vocabulary or --import FOLDER to use one")
        if self.size is not None and not self.source:
            raise UsageError("data.bpe: --size needs --source, folders written by data.wikipedia, books or text")


def train(texts: Iterable[str], size: int) -> tuple[Vocabulary, Merges]:
    """Return a vocabulary of up to `size` tokens, and its merges.

    Pairs that are equally frequent are merged in the order of their ids, which begin with the 256 bytes: nothing
    depends on the order of a hash map or on threads.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=list(byte_bpe.BYTES),
    )
    tokenizer.train_from_iterator(document_files.training_pieces(texts), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary: Vocabulary = model["vocab"]
    return vocabulary | {byte_bpe.END: len(vocabulary)}, [(left, right) for left, right in model["merges"]]


def make(options: Options, sources: Sequence[Part], given: Sequence[Path], partial: Path) -> outputs.StageResult:
    """Train or read the vocabulary and write `tokenizer.json`. given: the files to read."""
    if given:
        assert options.import_ is not None
        tables, (where, *_) = byte_bpe.tables_of(options.import_)
        vocabulary, merges = tables.vocabulary, tables.merges
        print(f"bpe: {len(vocabulary):,} tokens of {where}", file=sys.stderr)
    else:
        assert options.size is not None
        where, size = options.output, document_files.sampled_size(sources, options.max_megabytes * 1_000_000)
        with Progress("bpe", MB, size) as progress:
            vocabulary, merges = train(_texts(sources, options, progress), options.size)
        tables = byte_bpe.Tables(vocabulary, merges)
        fewer = f" instead of {options.size:,}, because the text is small" if len(vocabulary) < options.size else ""
        print(f"bpe: {len(vocabulary):,} tokens{fewer}", file=sys.stderr)
    with files.atomic_write(partial / TOKENIZER) as stream:
        stream.write(byte_bpe.text_of_tables(tables, where))
    extra = {"vocab_size": len(vocabulary), "end_id": vocabulary[byte_bpe.END]}
    return outputs.StageResult(counts={"tokens": len(vocabulary), "merges": len(merges)}, extra=extra)


def _texts(sources: Sequence[Part], options: Options, progress: Progress) -> Iterator[str]:
    for document in document_files.sample(sources, options.max_megabytes * 1_000_000, "text"):
        if not duplicates.is_text_held_out(document["text"], options.heldout):
            progress.add(len(document["text"]))
            yield ENDLESS.sub("", document["text"].encode("utf-8", "replace").decode())


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.bpe", description=__doc__)
    given = byte_bpe.tables_of(options.import_)[1] if options.import_ else []
    train_on = () if given else options.source
    sources = [part for folder in train_on for part in document_files.find(folder, "part")]
    outputs.build(
        options.output,
        stage="bpe",
        parameters=tasks.parameters(options, ["max_megabytes", "heldout"] if given else []),
        inputs=[*given, *train_on],
        make=lambda partial: make(options, sources, given, partial),
    )
    texts = options.source or ("DOCUMENTS",)
    then = ("python", "-m", "data.tokens", "--source", *texts, "--tokenizer", options.output, "--output", "FOLDER")
    stores.send(options.output)
    ending.print_next_command(options.output, "", *then)
