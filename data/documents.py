"""Documents to sentences: NLTK's Punkt, trained on the corpus itself or loaded, never downloaded.

    python -m data.documents --source workdir/corpus/wikipedia workdir/corpus/books --output workdir/corpus/documents

Very short documents are dropped. What Punkt learned is kept beside the sentences, in `punkt/`.
"""

import dataclasses
import functools
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nltk.tokenize.punkt import PunktSentenceTokenizer

from bert import cli, manifest
from bert.errors import InputError, IntegrityError
from data import parts, sentences, workers
from data.progress import Progress

PUNKT = "punkt"  # the folder of parameters within the output
PUNKT_SAMPLE = 3_000_000  # characters; Punkt's lists grow no better with more, its training takes 2 s a million


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.documents`."""

    source: tuple[Path, ...]
    """folders written by data.wikipedia, data.books"""
    output: Path
    """folder to write"""
    punkt: Path | None = None
    """folder of Punkt parameters (as NLTK's punkt_tab/english); none trains them on the corpus"""
    minimum_characters: int = 64
    """shorter documents are dropped"""
    workers: int = workers.available()
    """processes"""

    def __post_init__(self) -> None:
        workers.check(self.workers)


class Task(NamedTuple):
    """One part to split."""

    source: Path
    target: Path
    punkt: Path
    minimum_characters: int


def split_part(task: Task) -> Counter[str]:
    """Writes the sentences of one part; counts its documents by what became of them."""
    punkt = _splitter(task.punkt)
    counts: Counter[str] = Counter()
    with open(task.target, "wb") as stream:
        for document in parts.read(task.source):
            found = sentences.split(punkt, _text(document, task.source))
            size = sum(map(len, found))
            if not found or size < task.minimum_characters:
                counts["without a sentence" if not found else "too short"] += 1
                continue
            stream.write(parts.encode({"id": document["id"], "sentences": found}))
            counts.update(documents=1, sentences=len(found), characters=size)
    return counts


@functools.cache  # a worker splits many parts
def _splitter(folder: Path) -> PunktSentenceTokenizer:
    return sentences.splitter(sentences.load(folder))


def _text(document: dict[str, object], source: Path) -> str:
    text = document.get("text")
    if not isinstance(text, str):
        raise IntegrityError(f"{source}: a document without text; give folders of data.wikipedia or data.books")
    return text


def make(options: Options, sources: Sequence[Path], partial: Path) -> manifest.Made:
    """Trains or copies Punkt's parameters, then splits each part."""
    punkt = partial / PUNKT
    if options.punkt:
        sentences.load(options.punkt)
        shutil.copytree(options.punkt, punkt)
    else:
        sentences.save(sentences.train(list(_sample(sources))), punkt)
    targets = [partial / f"part-{number:05d}.jsonl" for number in range(len(sources))]
    tasks = [Task(*pair, punkt, options.minimum_characters) for pair in zip(sources, targets, strict=True)]
    counts: Counter[str] = Counter({"documents": 0, "without a sentence": 0, "too short": 0})
    records = {}
    progress = Progress("documents")
    for task, count in zip(tasks, workers.run(split_part, tasks, options.workers), strict=True):
        counts.update(count)
        records[task.target.name] = count["documents"]
        progress.add(count["documents"], task.source.stat().st_size)
    if not counts["documents"]:
        raise InputError(f"{sources[0].parent}: no document has a sentence and {options.minimum_characters} characters")
    dropped = counts["without a sentence"] + counts["too short"]
    progress.done(f"{counts['sentences']:,} sentences, {dropped:,} documents dropped")
    return manifest.Made(counts=dict(counts), records=records)


def _sample(sources: Sequence[Path]) -> Iterator[str]:
    """Texts spread over the parts, `PUNKT_SAMPLE` characters in all, however long a single one is."""
    left = PUNKT_SAMPLE
    for document in parts.sample(sources, PUNKT_SAMPLE):
        yield _text(document, sources[0])[:left]
        left -= len(str(document["text"]))
        if left <= 0:
            return


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.documents", description=__doc__)
    sources = [path for folder in options.source for path in parts.paths(folder, "part")]
    manifest.build(
        options.output,
        stage="documents",
        parameters={"minimum_characters": options.minimum_characters, "punkt": "given" if options.punkt else "trained"},
        inputs=[*options.source, *([options.punkt] if options.punkt else [])],
        make=lambda partial: make(options, sources, partial),
    )


if __name__ == "__main__":
    cli.main(main)
