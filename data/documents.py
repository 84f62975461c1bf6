"""Documents to sentences: NLTK's Punkt, trained on the corpus itself or loaded, never downloaded.

    python -m data.documents --source workdir/corpus/wikipedia workdir/corpus/books --output workdir/corpus/documents

Texts are brought to Unicode's composed form (NFC). Of documents with the same text, but for white space, the first is
kept, in the order of the sources and their parts; so it is of those with the same id, as two extractions of one
Wikipedia have. Very short ones are dropped. What Punkt learned is kept beside the sentences, in `punkt/`. Two passes,
each over parts in parallel; in between, some 40 bytes a document are held.
"""

import dataclasses
import functools
import hashlib
import re
import shutil
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert import cli
from bert.errors import InputError, IntegrityError
from bert.storage import files, manifest
from data.pipeline import parts, tasks, workers
from data.pipeline.progress import Progress
from data.splitting import sentences
from data.splitting.punkt import Splitter

PUNKT = "punkt"  # the folder of parameters within the output
PUNKT_SAMPLE = 3_000_000  # characters; Punkt's lists grow no better with more, its training takes 2 s a million
KEY_BYTES = 16  # two of 10^9 documents share a key by chance once in 10^20 corpora
SPACES = b" \t\n\r\f\v"
VERDICTS = ("", "duplicates", "repeated ids")  # no objection; the same text, or the same id, came before
DROPPED = (*VERDICTS[1:], "without a sentence", "too short")
BUCKETS = 16  # of keys, sorted one after the other
ENDLESS = re.compile(r"\S{200,}")  # no word to learn from: the training's time grows with the square of its length
AT_ONCE = 1_000  # characters composed in one go: Python's time grows with the square of the marks on one letter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(tasks.Options):
    """Flags of `python -m data.documents`."""

    source: tuple[Path, ...]
    """folders written by data.wikipedia, data.books, data.text"""
    output: Path
    """folder to write"""
    punkt: Path | None = None
    """folder of Punkt parameters (as NLTK's punkt_tab/english); none trains them on the corpus"""
    minimum_characters: int = 64
    """shorter documents are dropped"""


class Task(NamedTuple):
    """One part to split."""

    source: Path
    target: Path
    punkt: Path
    minimum_characters: int
    verdicts: bytes  # for each document its place in VERDICTS


def normalise(text: str) -> str:
    """The text in Unicode's composed form: "e" with an accent is one character, as in the cased vocabularies."""
    if text.isascii():
        return text
    return "\n".join(map(_compose, text.split("\n")))


def _compose(line: str) -> str:
    if line.isascii() or len(line) <= AT_ONCE:
        return unicodedata.normalize("NFC", line)
    return " ".join(
        "".join(unicodedata.normalize("NFC", word[cut : cut + AT_ONCE]) for cut in range(0, len(word), AT_ONCE))
        for word in line.split(" ")
    )


def document_keys(source: Path) -> tuple[bytes, bytes]:
    """The keys of one part's texts and of its ids, end to end: equal for equal texts, wherever their spaces are."""
    texts, names = bytearray(), bytearray()
    for document in parts.read(source):
        content = normalise(_text(document, source)).encode("utf-8", "replace").translate(None, SPACES)
        texts += hashlib.blake2b(content, digest_size=KEY_BYTES).digest()
        name = str(document.get("id")).encode("utf-8", "replace")
        names += hashlib.blake2b(name, digest_size=KEY_BYTES).digest()
    return bytes(texts), bytes(names)


def first_of_each(keys: bytearray) -> np.ndarray:
    """For each key, whether it is the first of its value: bool [documents]."""
    rows = np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)
    first = np.zeros(len(rows), bool)
    for bucket in range(BUCKETS):
        places = np.flatnonzero(rows[:, 0] % BUCKETS == bucket)
        first[places[np.unique(rows[places].view(f"S{KEY_BYTES}"), return_index=True)[1]]] = True
    return first


def split_part(task: Task) -> Counter[str]:
    """Writes the sentences of one part; counts its documents by what became of them."""
    punkt = _splitter(task.punkt)
    counts: Counter[str] = Counter()
    with open(task.target, "wb") as stream:
        for document, verdict in zip(parts.read(task.source), task.verdicts, strict=True):
            counts["read"] += 1
            if verdict:
                counts[VERDICTS[verdict]] += 1
                continue
            found = sentences.split(punkt, normalise(_text(document, task.source)))
            size = sum(map(len, found))
            if not found or size < task.minimum_characters:
                counts["without a sentence" if not found else "too short"] += 1
                continue
            stream.write(parts.encode({"id": document["id"], "sentences": found}))
            counts.update(documents=1, sentences=len(found), characters=size)
    return counts


@functools.cache  # a worker splits many parts
def _splitter(folder: Path) -> Splitter:
    return sentences.splitter(sentences.load(folder))


def _text(document: dict[str, object], source: Path) -> str:
    text = document.get("text")
    if not isinstance(text, str):
        raise IntegrityError(
            f"{source}: a document without text; give folders of data.wikipedia, data.books or data.text"
        )
    return text


def prepare(options: Options, sources: Sequence[Path], partial: Path) -> list[Task]:
    """Trains or copies Punkt's parameters and finds the duplicates, unless it was done before; one task a part."""
    punkt, flags = partial / PUNKT, partial / tasks.MARKERS / "verdicts.npz"
    if not flags.exists():  # it is written last
        shutil.rmtree(punkt, ignore_errors=True)
        if options.punkt:
            sentences.load(options.punkt)
            shutil.copytree(options.punkt, punkt)
        else:
            sentences.save(sentences.train(list(_sample(sources))), punkt)
        with files.atomic_write(flags, "wb") as stream:
            np.savez(stream, *_verdicts(options, sources))
    with np.load(flags) as found:
        verdicts = [found[name].tobytes() for name in found.files]
    return [
        Task(source, partial / f"part-{number:05d}.jsonl", punkt, options.minimum_characters, verdict)
        for number, (source, verdict) in enumerate(zip(sources, verdicts, strict=True))
    ]


def finish(done: Sequence[Task], results: Sequence[tasks.Result]) -> manifest.StageResult:
    """What the manifest says of all parts."""
    counts = dict.fromkeys(("read", "documents", *DROPPED), 0) | parts.total(results)
    if not counts["documents"]:
        where, least = done[0].source.parent, done[0].minimum_characters
        raise InputError(f"{where}: no document has a sentence and {least} characters")
    dropped = ", ".join(f"{counts[key]:,} {key}" for key in DROPPED)
    print(
        f"documents: {counts['documents']:,} of {counts['read']:,}, {counts['sentences']:,} sentences; {dropped}",
        file=sys.stderr,
    )
    records = {task.target.name: result.get("documents", 0) for task, result in zip(done, results, strict=True)}
    return manifest.StageResult(counts=counts, records=records)


def _verdicts(options: Options, sources: Sequence[Path]) -> list[np.ndarray]:
    """For each part, what is to become of its documents: uint8 places in VERDICTS."""
    texts, names, ends = bytearray(), bytearray(), []
    for of_texts, of_names in workers.run(document_keys, sources, options.workers, options.scheduler):
        texts += of_texts
        names += of_names
        ends.append(len(texts) // KEY_BYTES)
    verdict = np.select([~first_of_each(texts), ~first_of_each(names)], [1, 2]).astype(np.uint8)
    return [verdict[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _sample(sources: Sequence[Path]) -> Iterator[str]:
    """Texts spread over the parts, `PUNKT_SAMPLE` characters in all, however long a single one is."""
    left = PUNKT_SAMPLE
    for document in parts.sample(sources, PUNKT_SAMPLE):
        yield ENDLESS.sub("", _text(document, sources[0])[:left])
        left -= len(str(document["text"]))
        if left <= 0:
            return


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.documents", description=__doc__)
    sources = [path for folder in options.source for path in parts.paths(folder, "part")]
    progress = Progress("documents")
    tasks.build(
        options.output,
        stage="documents",
        parameters={"minimum_characters": options.minimum_characters, "punkt": "given" if options.punkt else "trained"},
        inputs=[*options.source, *([options.punkt] if options.punkt else [])],
        options=options,
        prepare=lambda partial: prepare(options, sources, partial),
        function=split_part,
        finish=finish,
        report=lambda task, result: progress.add(result.get("documents", 0), task.source.stat().st_size),
    )


if __name__ == "__main__":
    cli.main(main)
