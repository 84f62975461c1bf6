"""Convert documents to the tokens that a causal model is trained on.

    python -m data.tokens --source workdir/corpus/wikipedia workdir/corpus/books --tokenizer workdir/corpus/bpe \\
        --output workdir/tokens

The texts are those of data.wikipedia, data.books and data.text, unchanged: sentences are not split, line ends stay.
Each document is followed by `<|endoftext|>`. The files of a split are one stream, from which the trainer cuts samples
of any length (extensions/gpt/token_stream.py). The documents keep their order, because it reads the samples in random
order.

Documents with the same text (white space is ignored) or the same id as an earlier one are dropped. Which documents are
held out depends only on a hash of their text, so a text that is held out is never trained on.

There are two passes, each over all parts in parallel; between them about 45 bytes per document are held in memory.
"""

import dataclasses
import functools
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from bert.core import cli, files, manifest, outputs
from bert.core.errors import InputError, IntegrityError
from bert.core.ranges import Range
from bert.core.workspace import Work
from bert.text import causal_tokenizer, token_file
from bert.text.causal_tokenizer import CausalTokenizer
from bert.text.vocabulary import TOKENIZER
from data.pipeline import document_files, tasks
from data.pipeline.document_files import Part
from data.pipeline.duplicates import VERDICTS, Survey, is_held_out, saved_verdicts, survey
from data.pipeline.tasks import TaskResult
from data.pipeline.workers import ONE_THREAD

HELD_OUT_PARTS = 16  # parts whose held-out documents are in one file; the lines of other documents are not decoded
TRAIN, HELD_OUT = 100, 101  # further verdicts, beside VERDICTS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.tokens`."""

    source: cli.Stored[tuple[Path, ...]]
    """folders written by data.wikipedia, data.books, data.pubmed, data.text"""
    tokenizer: cli.Stored[Path]
    """folder written by data.bpe"""
    output: cli.Stored[Path]
    """folder to write"""
    heldout: Annotated[float, Range(0, 1, above=True, below=True)] = 0.01
    """fraction of the documents to hold out from training; at least one document is held out"""


class TokenTask(NamedTuple):
    """One file of tokens to write, from the documents of some parts with a certain verdict."""

    sources: tuple[Part, ...]
    verdicts: tuple[bytes, ...]  # of each part, for each of its documents
    verdict: int
    target: Path
    tokenizer: Path
    tokenizer_sha256: str


def write_tokens(task: TokenTask) -> Counter[str]:
    """Write the tokens of a file and the checksums of its blocks. Return counts of its content."""
    tokenizer = _load_tokenizer(task.tokenizer, task.tokenizer_sha256)
    counts: Counter[str] = Counter(documents=0, tokens=0, bytes=0)
    with token_file.TokenWriter(task.target, tokenizer.size) as writer:
        for texts in document_files.batches(_texts(task), len):
            for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
                writer.write([*ids, tokenizer.end])
                counts.update(documents=1, bytes=len(text.encode("utf-8", "replace")))
        counts["tokens"] = writer.count
    return counts


@functools.cache  # a worker writes many files
def _load_tokenizer(path: Path, sha256: str) -> CausalTokenizer:
    if files.sha256(path) != sha256:
        raise IntegrityError(f"{path}: has changed while the stage was running; repeat the command")
    return causal_tokenizer.read(path)


def _texts(task: TokenTask) -> Iterator[str]:
    for source, verdicts in zip(task.sources, task.verdicts, strict=True):
        for (path, number, line), verdict in zip(document_files.lines([source]), verdicts, strict=True):
            if verdict == task.verdict:
                yield document_files.decode(line, path, number, "text")["text"]


def divide(surveyed: Survey, share: float) -> np.ndarray:
    """Return a verdict for each document: TRAIN, HELD_OUT, or why it is dropped, as an index into VERDICTS [D] uint8.

    If the share is too small for any document, hold out the one with the smallest key.
    """
    is_kept = surveyed.verdicts == 0
    held_out = is_kept & is_held_out(surveyed.keys, share)
    if is_kept.any() and not held_out.any():
        held_out[np.flatnonzero(is_kept)[surveyed.keys[is_kept].argmin()]] = True
    return np.where(is_kept, np.where(held_out, HELD_OUT, TRAIN), surveyed.verdicts).astype(np.uint8)


class TokensStage(tasks.Stage[TokenTask]):
    """Documents to tokens. sources: all parts of the source folders, in order."""

    name = "tokens"

    def __init__(self, options: Options, sources: Sequence[Part]) -> None:
        self.options, self.sources = options, sources

    def tasks(self, work: Work) -> list[TokenTask]:
        """Copy the tokenizer, and divide the documents. Return one task for each file of tokens."""
        copy = work.output / TOKENIZER
        manifest.verify(manifest.load(self.options.tokenizer, "bpe"))
        shutil.copyfile(self.options.tokenizer / TOKENIZER, copy)
        self.tokenizer, self.sha256 = causal_tokenizer.read(copy), files.sha256(copy)

        def find() -> list[np.ndarray]:
            surveyed = survey(self.sources, self.options)
            return surveyed.split(divide(surveyed, self.options.heldout))

        self.verdicts = saved_verdicts(work, find)
        trained = self._tasks(work, "train", TRAIN, 1)
        return trained + self._tasks(work, "heldout", HELD_OUT, HELD_OUT_PARTS)

    def _tasks(self, work: Work, split: str, verdict: int, group: int) -> list[TokenTask]:
        """Return the tasks of a split, one for each `group` parts of those that have a document of it."""
        having = [pair for pair in zip(self.sources, self.verdicts, strict=True) if verdict in pair[1]]
        return [
            TokenTask(
                tuple(part for part, _ in having[first : first + group]),
                tuple(verdicts for _, verdicts in having[first : first + group]),
                verdict,
                work.output / f"{split}-{first // group:05d}{token_file.SUFFIX}",
                work.output / TOKENIZER,
                self.sha256,
            )
            for first in range(0, len(having), group)
        ]

    @classmethod
    def run(cls, task: TokenTask) -> TaskResult:
        return write_tokens(task)

    @classmethod
    def written(cls, task: TokenTask, result: TaskResult) -> Sequence[Path]:
        return [task.target, token_file.checks_path(task.target)]

    def finish(self, tasks: Sequence[TokenTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        by_split = document_files.by_split(tasks, results)
        if not all(by_split.values()):
            where = self.options.source[0]
            raise InputError(f"{where}: fewer than two different documents, of which one is held out; give more text")
        counts: dict[str, Any] = {split: document_files.total(some) for split, some in by_split.items()}
        verdicts = Counter(verdict for some in self.verdicts for verdict in some)
        dropped = {name: verdicts[verdict] for verdict, name in enumerate(VERDICTS) if name}
        for split, sums in counts.items():
            print(
                f"tokens: {split}: {sums['tokens']:,} of {sums['documents']:,} documents, "
                f"{sums['bytes'] / (sums['tokens'] - sums['documents'] or 1):.2f} bytes of text each",
                file=sys.stderr,
            )
        print("tokens: " + ", ".join(f"{number:,} {name}" for name, number in dropped.items()), file=sys.stderr)
        stream = token_file.Stream(
            kind="tokens",
            dtype=token_file.dtype_for(self.tokenizer.size),
            vocab_size=self.tokenizer.size,
            end_id=self.tokenizer.end,
            tokenizer_sha256=self.sha256,
        )
        written = {task.target.name: result["tokens"] for task, result in zip(tasks, results, strict=True)}
        return outputs.StageResult(counts=counts | dropped, records=written, extra=dataclasses.asdict(stream))

    def then(self, made: Path) -> Sequence[object]:
        return ("python", "-m", "bert.pretrain", "RECIPE", "--data.train", made)

    def size(self, task: TokenTask) -> int:
        return sum(part.path.stat().st_size for part in task.sources)


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.tokens", description=__doc__)
    os.environ.update(ONE_THREAD)  # inherited by the workers
    manifest.load(options.tokenizer, "bpe")
    sources = [part for folder in options.source for part in document_files.find(folder, "part")]
    tasks.build(TokensStage(options, sources), options.output, options)


if __name__ == "__main__":
    from data import tokens  # a Dask worker can load a task of this module, not one of __main__

    cli.main(tokens.main)
