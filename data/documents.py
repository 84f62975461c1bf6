"""Split documents into sentences with NLTK's Punkt, and drop duplicates and very short documents.

    python -m data.documents --source workdir/corpus/wikipedia workdir/corpus/books --output workdir/corpus/documents

Punkt's parameters are trained on the corpus itself, loaded from a folder (--punkt), or those of NLTK's model of the
language, if that is given (--language) and the model is installed; they are never downloaded. The parameters are saved
with the sentences, in `punkt/`. Texts are normalised to Unicode's composed form (NFC).

With --near_duplicates 0.8, a document is dropped, too, if about 80 % of the runs of five words that it or an earlier
document has are in both (extensions/data_more/near_duplicates.py). All parts are then read once more.

With --filter gopher or c4, the published rules of these names drop documents, and lines, of low quality
(extensions/data_more/quality.py). They are for English; other text is refused.

The manifest names the source of each part: the name of its folder. data.shards holds documents out of each source.

Of several documents with the same text (white space is ignored), only the first is kept, in the order of the sources
and their parts. The same holds for documents with the same id, which names their wiki or file too. There are two
passes, each over all parts in parallel; between them about 45 bytes per document are held in memory.
"""

import dataclasses
import functools
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from bert.core import cli, files, outputs, rows
from bert.core.errors import InputError, UsageError
from bert.core.progress import MB, Progress
from bert.core.ranges import Range
from bert.core.workspace import Work
from data.pipeline import document_files, drop_counts, languages, tasks, workers
from data.pipeline.document_files import Part
from data.pipeline.duplicates import VERDICTS, normalise, saved_verdicts, survey
from data.pipeline.sources import MAX_DOCUMENT
from data.pipeline.tasks import TaskResult
from data.splitting import sentences
from data.splitting.punkt import Splitter

PUNKT = "punkt"  # the folder of parameters within the output
PUNKT_SAMPLE = 3_000_000  # characters; more text does not improve Punkt's lists, and training takes 2 s per million
WITHOUT_SENTENCE, TOO_SHORT = "without a sentence", "too short"
NEAR = "near duplicates"
REASONS = (*VERDICTS, NEAR)
DROPPED = (*VERDICTS[1:], WITHOUT_SENTENCE, TOO_SHORT)
BETWEEN = "white space and composed accents"
NEWER = ("language", "near_duplicates", "filter")  # flags that version 1.0 did not have
CAUSES = {VERDICTS[1]: "a source is perhaps given twice", VERDICTS[2]: "two versions of a source are perhaps given"}
NEAR_DUPLICATES = "extensions.data_more.near_duplicates:SEARCH"  # imported only if --near_duplicates is given
QUALITY = "extensions.data_more.quality:FILTER"  # imported only if --filter is given
ENDLESS = re.compile(r"\S{200,}")  # not a word; the time of Punkt's training grows with the square of its length


class Search(NamedTuple):
    """How documents that resemble an earlier one are found."""

    signatures: Callable[[Part], bytes]
    """those of the documents of a part, in order"""
    find: Callable[[Path, float, np.ndarray], np.ndarray]
    """of a file of signatures, a threshold and what is considered [D] bool: which resemble an earlier one [D] bool"""


class Filter(NamedTuple):
    """Rules that drop documents of low quality, and lines."""

    names: tuple[str, ...]
    """of the rules"""
    judge: Callable[[str, Iterable[str]], tuple[str, str, Counter[str]]]
    """by the rules of these names: what is left of a text, why all of it is dropped or "", characters of its lines"""
    judge_sentences: Callable[[int, Iterable[str]], str]
    """why a document with this number of sentences is dropped, or \"\""""
    check_language: Callable[[Iterable[str], object], None]
    """raises InputError if the texts of this folder are not of the language of the rules"""


@functools.cache  # it is asked for each document
def _quality() -> Filter:
    found: Filter = rows.load(QUALITY)
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.documents`."""

    source: cli.Stored[tuple[Path, ...]]
    """folders written by data.wikipedia, data.books, data.pubmed, data.text"""
    output: cli.Stored[Path]
    """folder to write"""
    punkt: cli.Stored[Path | None] = None
    """folder of Punkt parameters, such as NLTK's punkt_tab/english; without it they are trained on the corpus"""
    language: str | None = None
    """language of the texts, such as de; NLTK's Punkt model of it is used if installed; none: as the sources say"""
    minimum_characters: Annotated[int, Range(0, MAX_DOCUMENT)] = 64
    """drop documents with fewer characters than this"""
    near_duplicates: Annotated[float, Range(0, 1, above=True)] | None = None
    """drop documents whose Jaccard similarity with an earlier one is about this, such as 0.8, or more"""
    filter: tuple[str, ...] = ()
    """published rules that drop documents of low quality: gopher, c4 or both; for English"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.filter if name not in _quality().names]:
            raise UsageError(f"--filter {unknown[0]!r}: no such rules; it is {' or '.join(_quality().names)}, or both")
        languages.check(self.language)


class SplitTask(NamedTuple):
    """One part to split into sentences."""

    source: Part
    target: Path
    punkt: Path
    minimum_characters: int
    verdicts: bytes  # for each document an index into REASONS
    filter: tuple[str, ...] = ()


def split_part(task: SplitTask) -> dict[str, Any]:
    """Write the sentences of one part. Return the number of its documents by outcome, and its losses."""
    punkt = _load_splitter(task.punkt)
    counts: Counter[str] = Counter()
    lost = drop_counts.DropCounts()
    with open(task.target, "wb") as stream:
        for document, verdict in zip(document_files.read_records(task.source, "text"), task.verdicts, strict=True):
            text = document["text"]
            counts["read"] += 1
            lost.read(1, len(text))
            reason, gone, split = REASONS[verdict], Counter[str](), list[str]()
            if not reason:
                judged, reason, gone = _quality().judge(text, task.filter) if task.filter else (text, "", gone)
                split = [] if reason else sentences.split(punkt, normalise(judged))
            size = sum(map(len, split))
            if reason := reason or _drops(split, size, task):
                counts[reason] += 1
                lost.drop(reason, 1, len(text) - gone.total())
                _drop_lines(gone, lost)
                continue
            stream.write(document_files.encode({"id": document["id"], "sentences": split}))
            counts.update(documents=1, sentences=len(split), characters=size)
            lost.wrote(1, size)
            lost.drop(BETWEEN, 0, len(text) - size - gone.total())
            _drop_lines(gone, lost)
    return {**counts, "losses": lost.report()}


def _drop_lines(gone: Counter[str], lost: drop_counts.DropCounts) -> None:
    for rule, characters in gone.items():
        lost.drop(rule, 0, characters)


def _drops(split: list[str], size: int, task: SplitTask) -> str:
    """Return why a document with these sentences is dropped, or ""."""
    if not split:
        return WITHOUT_SENTENCE
    if task.filter and (reason := _quality().judge_sentences(len(split), task.filter)):
        return reason
    return TOO_SHORT if size < task.minimum_characters else ""


@functools.cache  # a worker splits many parts
def _load_splitter(folder: Path) -> Splitter:
    return Splitter(sentences.load(folder))


class DocumentsStage(tasks.Stage[SplitTask]):
    """Documents to sentences. sources: all parts of the source folders, in order. language: of the texts, if known."""

    name = "documents"

    def __init__(self, options: Options, sources: Sequence[Part], language: str | None = None) -> None:
        self.options, self.sources, self.language = options, sources, language

    def parameters(self) -> dict[str, Any]:
        return tasks.parameters(self.options, newer=NEWER) | {"punkt": "given" if self.options.punkt else "trained"}

    def tasks(self, work: Work) -> list[SplitTask]:
        """Train or copy Punkt's parameters and find the duplicates. Return one task for each part."""
        punkt = work.output / PUNKT

        def find() -> list[np.ndarray]:
            if self.options.filter:
                _quality().check_language(_sample(self.sources), self.options.source[0])
            shutil.rmtree(punkt, ignore_errors=True)
            if self.options.punkt:
                sentences.load(self.options.punkt)
                shutil.copytree(self.options.punkt, punkt)
            else:
                with Progress("documents: learning where sentences end"):
                    sentences.save(sentences.train(list(_sample(self.sources))), punkt)
            for path in punkt.iterdir():
                files.flush(path)
            found = survey(self.sources, self.options)
            if self.options.near_duplicates is not None:
                resembles = self._near_duplicates(work, found.verdicts == 0, self.options.near_duplicates)
                found.verdicts[resembles] = REASONS.index(NEAR)
            return found.split(found.verdicts)

        verdicts = saved_verdicts(work, find)
        return [
            SplitTask(
                source,
                work.output / f"part-{number:05d}.jsonl",
                punkt,
                self.options.minimum_characters,
                verdict,
                self.options.filter,
            )
            for number, (source, verdict) in enumerate(zip(self.sources, verdicts, strict=True))
        ]

    def _near_duplicates(self, work: Work, considered: np.ndarray, threshold: float) -> np.ndarray:
        """Return which documents resemble an earlier one [D] bool; considered: those that are kept otherwise [D]."""
        stored = work.private / "signatures"
        sizes = [source.path.stat().st_size for source in self.sources]
        search: Search = rows.load(NEAR_DUPLICATES)
        every = workers.run(search.signatures, self.sources, self.options.workers, self.options.scheduler)
        with open(stored, "wb") as stream, Progress("near duplicates", MB, sum(sizes)) as progress:
            for size, signatures in zip(sizes, every, strict=True):
                stream.write(signatures)
                progress.add(size)
        found = search.find(stored, threshold, considered)
        stored.unlink()
        return found

    @classmethod
    def run(cls, task: SplitTask) -> TaskResult:
        return split_part(task)

    def finish(self, tasks: Sequence[SplitTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        lost = drop_counts.total(result.pop("losses", {}) for result in results)
        reasons = DROPPED if self.options.near_duplicates is None else (*DROPPED, NEAR)
        counts = dict.fromkeys(("read", "documents", *reasons), 0) | document_files.total(results)
        if not counts["documents"]:
            where, least = self.sources[0].path.parent, self.options.minimum_characters
            remedy = "give other text, or leave --filter out" if self.options.filter else "give more text"
            raise InputError(
                f"{where}: no document is left that has a sentence and {least} characters; "
                f"documents dropped, with their characters: {drop_counts.dropped(lost)}; {remedy}"
            )
        drop_counts.tell(self.name, lost, CAUSES)
        kept = ("read", "documents", "sentences", "characters")
        dropped = ", ".join(f"{number:,} {key}" for key, number in counts.items() if key not in kept)
        print(
            f"documents: {counts['documents']:,} of {counts['read']:,}, {counts['sentences']:,} sentences; {dropped}",
            file=sys.stderr,
        )
        print(f"documents: sentence ends by {self._punkt()}", file=sys.stderr)
        records = {task.target.name: result.get("documents", 0) for task, result in zip(tasks, results, strict=True)}
        sources = {task.target.name: task.source.source for task in tasks}
        extra = {"losses": lost} | ({"language": self.language} if self.language else {})
        return outputs.StageResult(counts=counts, records=records, sources=sources, extra=extra)

    def _punkt(self) -> str:
        """Return by which parameters sentences end, and whether there are others for the language."""
        if self.options.punkt:
            return f"Punkt's parameters in {self.options.punkt}"
        known = None if self.options.language else self.language and languages.punkt_model(self.language)
        hint = f"; NLTK's model of this language is in {known}: --language {self.language} takes it" if known else ""
        return f"Punkt trained on the text{hint}"

    def then(self, made: Path) -> Sequence[object]:
        return ("python", "-m", "data.shards", "--source", made, "--output", made.with_name("shards"))

    def size(self, task: SplitTask) -> int:
        return task.source.path.stat().st_size


def _sample(sources: Sequence[Part]) -> Iterator[str]:
    """Yield texts spread over the parts, at most `PUNKT_SAMPLE` characters in all, even if a single one is longer."""
    left = PUNKT_SAMPLE
    for document in document_files.sample(sources, PUNKT_SAMPLE, "text"):
        yield ENDLESS.sub("", document["text"][:left])
        left -= len(document["text"])
        if left <= 0:
            return


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.documents", description=__doc__)
    sources = [
        part._replace(source=outputs.input_name(folder, options.source))
        for folder in options.source
        for part in document_files.find(folder, "part")
    ]
    language = languages.agreed(options.language, languages.recorded(options.source))
    if options.language and not options.punkt:
        options = dataclasses.replace(options, punkt=languages.punkt_model(options.language))
    tasks.build(DocumentsStage(options, sources, language), options.output, options)


if __name__ == "__main__":
    from data import documents  # a Dask worker can load a task of this module, not one of __main__

    cli.main(documents.main)
