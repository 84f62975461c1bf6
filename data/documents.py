"""Split documents into sentences with NLTK's Punkt, and drop duplicates and very short documents.

    python -m data.documents --source workdir/corpus/wikipedia workdir/corpus/books --output workdir/corpus/documents

Punkt's parameters are trained on the corpus itself or loaded from a folder (--punkt); they are never downloaded. The
parameters are saved with the sentences, in `punkt/`. Texts are normalised to Unicode's composed form (NFC).

The manifest names the source of each part: the name of its folder. data.shards holds documents out of each source.

Of several documents with the same text (white space is ignored), only the first is kept, in the order of the sources
and their parts. The same holds for documents with the same id. There are two passes, each over all parts in parallel;
between them about 40 bytes per document are held in memory.
"""

import dataclasses
import functools
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from bert import cli
from bert.errors import InputError
from bert.ranges import Range
from bert.storage import files, outputs
from bert.storage.workspace import Work
from data.pipeline import parts, tasks
from data.pipeline.duplicates import VERDICTS, normalise, saved_verdicts, survey
from data.pipeline.parts import Part
from data.pipeline.sources import MAX_DOCUMENT
from data.pipeline.tasks import TaskResult
from data.splitting import sentences
from data.splitting.punkt import Splitter

PUNKT = "punkt"  # the folder of parameters within the output
PUNKT_SAMPLE = 3_000_000  # characters; more text does not improve Punkt's lists, and training takes 2 s per million
DROPPED = (*VERDICTS[1:], "without a sentence", "too short")
ENDLESS = re.compile(r"\S{200,}")  # not a word; the time of Punkt's training grows with the square of its length


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.documents`."""

    source: tuple[Path, ...]
    """folders written by data.wikipedia, data.books, data.pubmed, data.text"""
    output: Path
    """folder to write"""
    punkt: Path | None = None
    """folder of Punkt parameters, such as NLTK's punkt_tab/english; without it they are trained on the corpus"""
    minimum_characters: Annotated[int, Range(0, MAX_DOCUMENT)] = 64
    """drop documents with fewer characters than this"""


class SplitTask(NamedTuple):
    """One part to split into sentences."""

    source: Part
    target: Path
    punkt: Path
    minimum_characters: int
    verdicts: bytes  # for each document an index into VERDICTS


def split_part(task: SplitTask) -> Counter[str]:
    """Write the sentences of one part. Return the number of its documents by outcome."""
    punkt = _load_splitter(task.punkt)
    counts: Counter[str] = Counter()
    with open(task.target, "wb") as stream:
        for document, verdict in zip(parts.read_records(task.source, "text"), task.verdicts, strict=True):
            counts["read"] += 1
            if verdict:
                counts[VERDICTS[verdict]] += 1
                continue
            split = sentences.split(punkt, normalise(document["text"]))
            size = sum(map(len, split))
            if not split or size < task.minimum_characters:
                counts["without a sentence" if not split else "too short"] += 1
                continue
            stream.write(parts.encode({"id": document["id"], "sentences": split}))
            counts.update(documents=1, sentences=len(split), characters=size)
    return counts


@functools.cache  # a worker splits many parts
def _load_splitter(folder: Path) -> Splitter:
    return Splitter(sentences.load(folder))


class DocumentsStage(tasks.Stage[SplitTask]):
    """Documents to sentences. sources: all parts of the source folders, in order."""

    name = "documents"

    def __init__(self, options: Options, sources: Sequence[Part]) -> None:
        self.options, self.sources = options, sources

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"punkt": "given" if self.options.punkt else "trained"}

    def tasks(self, work: Work) -> list[SplitTask]:
        """Train or copy Punkt's parameters and find the duplicates. Return one task for each part."""
        punkt = work.output / PUNKT

        def find() -> list[np.ndarray]:
            shutil.rmtree(punkt, ignore_errors=True)
            if self.options.punkt:
                sentences.load(self.options.punkt)
                shutil.copytree(self.options.punkt, punkt)
            else:
                sentences.save(sentences.train(list(_sample(self.sources))), punkt)
            for path in punkt.iterdir():
                files.flush(path)
            found = survey(self.sources, self.options)
            return found.split(found.verdicts)

        verdicts = saved_verdicts(work, find)
        return [
            SplitTask(source, work.output / f"part-{number:05d}.jsonl", punkt, self.options.minimum_characters, verdict)
            for number, (source, verdict) in enumerate(zip(self.sources, verdicts, strict=True))
        ]

    @classmethod
    def run(cls, task: SplitTask) -> TaskResult:
        return split_part(task)

    def finish(self, tasks: Sequence[SplitTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        counts = dict.fromkeys(("read", "documents", *DROPPED), 0) | parts.total(results)
        if not counts["documents"]:
            where, least = self.sources[0].path.parent, self.options.minimum_characters
            raise InputError(f"{where}: no document has a sentence and {least} characters; give more text")
        dropped = ", ".join(f"{counts[key]:,} {key}" for key in DROPPED)
        print(
            f"documents: {counts['documents']:,} of {counts['read']:,}, {counts['sentences']:,} sentences; {dropped}",
            file=sys.stderr,
        )
        records = {task.target.name: result.get("documents", 0) for task, result in zip(tasks, results, strict=True)}
        sources = {task.target.name: task.source.source for task in tasks}
        return outputs.StageResult(counts=counts, records=records, sources=sources)

    def processed(self, task: SplitTask, result: TaskResult) -> tuple[int, int]:
        return result.get("documents", 0), task.source.path.stat().st_size


def _sample(sources: Sequence[Part]) -> Iterator[str]:
    """Yield texts spread over the parts, at most `PUNKT_SAMPLE` characters in all, even if a single one is longer."""
    left = PUNKT_SAMPLE
    for document in parts.sample(sources, PUNKT_SAMPLE, "text"):
        yield ENDLESS.sub("", document["text"][:left])
        left -= len(document["text"])
        if left <= 0:
            return


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.documents", description=__doc__)
    sources = [
        part._replace(source=outputs.input_name(folder, options.source))
        for folder in options.source
        for part in parts.find(folder, "part")
    ]
    tasks.build(DocumentsStage(options, sources), options.output, options)


if __name__ == "__main__":
    from data import documents  # a Dask worker can load a task of this module, not one of __main__

    cli.main(documents.main)
