"""Convert PubMed to documents: the abstracts in the XML files that NLM publishes, one document per citation.

    python -m data.pubmed --source workdir/corpus/pubmed-2026 --output workdir/corpus/pubmed
    python -m data.pubmed --source pubmed26n0001.xml.gz --output workdir/corpus/pubmed --title true

The files are those of the yearly baseline and of the daily updates (`pubmed26n0001.xml.gz`, ...), in the order of their
names, which is that of their publication. Of several records of a citation the one with the highest version is used,
and of those the last; a citation that a later file deletes is left out. Citations in other languages than --language
and those without an abstract are left out. The manifest counts every record by what became of it.

There are two passes, each over all files in parallel; between them about 30 bytes per citation are held in memory.
"""

import dataclasses
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert.core import cli, manifest, outputs
from bert.core.errors import InputError, UsageError
from bert.core.progress import MB, Progress
from bert.core.workspace import Work
from data.pipeline import document_files, sources, tasks, workers
from data.pipeline.duplicates import saved_verdicts
from extensions.pubmed import abstract
from extensions.pubmed.reader import Citation, Reader

SUFFIXES = (".xml", ".xml.gz", ".xml.bz2", ".xml.xz")
LAST, SUPERSEDED, DELETED = range(3)  # verdicts on citations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(sources.Options):
    """Flags of `python -m data.pubmed`."""

    source: cli.Stored[Path]
    """an .xml[.gz] file of PubMed, or a folder of them at any depth"""
    title: bool = False
    """begin each document with the title of the article"""
    labels: bool = False
    """begin each section of a structured abstract with its label, such as "METHODS:"; they are left out otherwise"""
    language: str = "eng"
    """language of the articles, as in PubMed (eng, fre, ...), or all; abstracts are in English for most of them"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch("[a-z]{3}", self.language):
            raise UsageError(f"--language {self.language[:40]!r}: must be a code of three letters such as eng, or all")


class Settings(NamedTuple):
    """What a task needs of the options, and the verdict on each citation of its file."""

    title: bool
    labels: bool
    language: str
    verdicts: bytes


class SurveyTask(NamedTuple):
    """A file whose citations are to be listed, and its SHA-256 if an earlier stage wrote it."""

    path: Path
    sha256: str | None


def survey(task: SurveyTask) -> bytes:
    """Return the citations and deletions of a file, in order: uint64 of PMID * 2**16 + version * 2 + is deleted."""
    if task.sha256:
        manifest.verify_file(task.path, task.sha256)
    packed = [(one.pmid << 16) + (one.version << 1) + (one.content is None) for one in Reader(task.path).citations()]
    return np.array(packed, "<u8").tobytes()


def verdicts(entries: np.ndarray) -> np.ndarray:
    """Return a verdict on each of the citations and deletions `entries` [n] by `survey`, of all files: uint8 [n].

    A deletion counts as one more version of its citation. The last of the highest version decides.
    """
    result = np.full(len(entries), SUPERSEDED, np.uint8)
    order = np.argsort(entries >> np.uint64(1), kind="stable")
    pmids = entries[order] >> np.uint64(16)
    is_last = np.append(pmids[1:] != pmids[:-1], True)[: len(entries)]
    last = order[is_last]
    is_deleted = (entries[last] & np.uint64(1)).astype(bool)
    result[last[~is_deleted]] = LAST
    gone = np.repeat(is_deleted, np.diff(np.flatnonzero(is_last), prepend=-1))
    result[order[gone]] = DELETED
    return result


class PubmedStage(sources.SourceStage):
    """PubMed to documents."""

    name = "pubmed"
    options: Options

    def __init__(self, options: Options, paths: Sequence[Path], not_read: Sequence[str] = ()) -> None:
        super().__init__(options, [(path,) for path in paths], not_read=not_read)

    def tasks(self, work: Work) -> list[sources.SourceTask]:
        """Find the last version of each citation. Return one task for each file."""
        listed = super().tasks(work)

        def find() -> list[np.ndarray]:
            files_to_list = [SurveyTask(task.files[0], task.hashes[0]) for task in listed]
            entries, ends = bytearray(), []
            every = workers.run(survey, files_to_list, self.options.workers, self.options.scheduler)
            sizes = list(map(self.size, listed))
            with Progress("pubmed: versions", MB, sum(sizes)) as progress:
                for size, citations in zip(sizes, every, strict=True):
                    entries += citations
                    ends.append(len(entries) // 8)
                    progress.add(size)
            return np.split(verdicts(np.frombuffer(entries, "<u8")), ends[:-1])

        split = saved_verdicts(work, find)
        settings = self.options.title, self.options.labels, self.options.language
        return [
            task._replace(settings=Settings(*settings, verdict)) for task, verdict in zip(listed, split, strict=True)
        ]

    @classmethod
    def read(cls, task: sources.SourceTask) -> sources.ReadResult:
        """Write the abstracts of one file. Count its citations by what became of them."""
        settings: Settings = task.settings
        reader = Reader(task.files[0])
        keys = ("citations", "articles", "earlier versions", "deleted", "in another language", "without an abstract")
        counts = Counter(dict.fromkeys(keys, 0))
        size = 0
        with document_files.Writer(task.target) as writer:
            for citation, verdict in zip(reader.citations(), settings.verdicts, strict=True):
                if citation.content is None:
                    continue
                counts["citations"] += 1
                if verdict:
                    counts["deleted" if verdict == DELETED else "earlier versions"] += 1
                elif text := _document(citation, settings, counts, task.files[0]):
                    size += writer.write({"id": f"pubmed:{citation.pmid}", "text": text})
                    counts["articles"] += 1
        counts["chapters of books"] += reader.chapters
        return sources.ReadResult(counts, writer.records, {}, counts["articles"], size)

    def check(self, result: outputs.StageResult) -> outputs.StageResult:
        if not result.counts["articles"]:
            counts = json.dumps(result.counts)
            raise InputError(f"{self.options.source}: no abstract in it ({counts}); give other files or a --language")
        print(sources.summary(self.name, result), file=sys.stderr)
        return result


def _document(citation: Citation, settings: Settings, counts: Counter[str], path: Path) -> str:
    """Return the paragraphs of a citation, one a line. If it is left out, return "" and count why."""
    assert citation.content is not None
    try:
        article = abstract.parse(citation.content)
    except ValueError as error:
        raise InputError(f"{path}: the record of PMID {citation.pmid} is {error}; fetch the file again") from error
    if settings.language != "all" and settings.language not in article.languages:
        counts["in another language"] += 1
        return ""
    if not article.sections:
        counts["without an abstract"] += 1
        return ""
    if article.controls:
        counts["control characters removed"] += article.controls
    title = [article.title] if settings.title and article.title else []
    texts = [f"{label}: {text}" if label and settings.labels else text for label, text in article.sections]
    return "\n".join([*title, *texts])


def is_pubmed(name: str) -> bool:
    """Whether this stage reads files with this name."""
    return name.lower().endswith(SUFFIXES)


def main(argv: list[str]) -> None:
    options = tasks.parse(Options, argv, prog="python -m data.pubmed", description=__doc__)
    if not options.source.exists():
        raise InputError(f"{options.source}: no such file or folder; check the path")
    paths, others = [options.source], list[str]()
    if options.source.is_dir():
        paths, others = sources.divide_files(options.source, is_pubmed)
    if not paths or not is_pubmed(paths[0].name):
        raise InputError(f"{options.source}: no file of PubMed; give files named {' '.join(SUFFIXES)}, or their folder")
    paths.sort(key=lambda path: path.name)  # baseline/ and updatefiles/ are numbered as one series
    not_read = [name for name in others if not name.endswith(".md5")]  # NLM has the hash of each file beside it
    tasks.build(PubmedStage(options, paths, not_read), options.output, options)
