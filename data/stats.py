"""Compute statistics of finished folders: amounts, lengths and masking, as a table and stats.json.

    python -m data.stats workdir/corpus workdir/tfrecords/seq128

For folders of text: numbers and lengths of documents and sentences. For TFRecords: sequences, padding, lengths, what
the predicted tokens were replaced by, next-sentence labels, unknown tokens, and tokens of the vocabulary that never
occur. For tokens of a causal model: documents, tokens, and bytes of text for each token.

The output is written beside each folder, to `<folder>-stats`, because a finished folder may hold only the files that
its manifest lists. With `--sample N`, about N records of each file are read, spread evenly over the file; files of
tokens are always read whole.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from bert.core import cli, files, manifest, ranges
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.manifest import Manifest
from bert.core.progress import MB, Progress
from bert.core.random_access import RandomAccess
from bert.core.ranges import Range, Workers
from bert.text import causal_tokenizer, tokenization, vocabulary
from bert.text.token_file import SUFFIX, Stream, TokenFile
from bert.text.tokenization import Tokenizer
from bert.text.vocabulary import TOKENIZER
from data import verify
from data.audit import checks
from data.pipeline import workers

BATCH = 1024  # records read at once
TOKENS = 1 << 20  # tokens read at once
OCTAVES = 40  # bins of a histogram of lengths, by powers of two; of sequences each number has a bin
OCCURRENCES = "occurrences"  # of each token of the vocabulary that may occur in text, among the counts

# What is counted in a file, by name: sums, histograms, and the occurrences of tokens. The counts of files are added.
Counts = dict[str, Any]


class Quotient(NamedTuple):
    """A figure that is the quotient of two sums, or 1 minus this quotient."""

    of: str
    by: str
    is_rest: bool = False


FIGURES: dict[str, Quotient | None] = {  # in the order of the table: sums, and quotients of sums
    "documents": None,
    "chunks": None,
    "sequences": None,
    "paragraphs": None,
    "sentences": None,
    "characters": None,
    "tokens": None,
    "bytes": None,
    "paragraphs of a document, mean": Quotient("paragraphs", "documents"),
    "sentences of a document, mean": Quotient("sentences", "documents"),
    "characters of a paragraph, mean": Quotient("characters", "paragraphs"),
    "characters of a sentence, mean": Quotient("characters", "sentences"),
    "tokens of a sequence, mean": Quotient("tokens", "sequences"),
    "tokens of a chunk, mean": Quotient("tokens", "chunks"),
    "tokens of a document, mean": Quotient("tokens", "documents"),
    "bytes of a token, mean": Quotient("bytes", "tokens"),
    "padding": Quotient("tokens", "places of tokens", is_rest=True),
    "full sequences": Quotient("full sequences", "sequences"),
    "predicted tokens": None,
    "predicted, of all tokens": Quotient("predicted tokens", "tokens"),
    "predicted: [MASK]": Quotient("shown as [MASK]", "predicted tokens"),
    "predicted: random": Quotient("shown as another", "predicted tokens"),
    "predicted: kept": Quotient("shown as itself", "predicted tokens"),
    "pairs of label 1": Quotient("pairs of label 1", "sequences"),
    "unknown tokens": Quotient("unknown tokens", "tokens of text"),
    "vocabulary": None,
    "vocabulary never seen": None,
    "vocabulary never seen, share": Quotient("vocabulary never seen", "vocabulary"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m data.stats`."""

    folders: cli.Positional[tuple[Path, ...]]
    """finished folders, or folders that contain them"""
    output: Path | None = None
    """output folder, if a single folder is given; the default is <folder>-stats beside it"""
    sample: Annotated[int, Range(1, 10**12)] | None = None
    """approximate number of records to read of each file; the default is all"""
    workers: Workers = workers.available()
    """number of worker processes"""

    def __post_init__(self) -> None:
        ranges.check(self)


class CountTask(NamedTuple):
    """One file to count."""

    folder: Path
    sha256: str  # of the folder's manifest, which a worker reads once
    name: str
    begin: int  # number of its first record within its split
    records: int
    stride: int  # every n-th record is read

    @property
    def split(self) -> str:
        """Return "train" or "heldout", or "part" if the folder has no splits."""
        return self.name.split("-")[0]

    def batches(self) -> Iterator[np.ndarray]:
        """Yield the numbers, within the split, of the records to read."""
        indices = np.arange(self.begin, self.begin + self.records, self.stride)
        yield from (indices[first : first + BATCH] for first in range(0, len(indices), BATCH))


def count_lines(task: CountTask) -> Counts:
    """Count the documents of a part and their sentences, or their paragraphs if they are not split yet."""
    unit, documents, pieces_of = "paragraphs", [], []
    octaves_of_pieces = np.zeros(OCTAVES, np.int64)
    with open(task.folder / task.name, "rb") as stream:
        for number, line in enumerate(stream):
            if number % task.stride:
                continue
            document, what = checks.parse_document(line)
            if what:
                raise IntegrityError(f"{task.folder / task.name}: line {number + 1}: {what}; run python -m data.verify")
            unit = "sentences" if "sentences" in document else "paragraphs"
            pieces = document["sentences"] if "sentences" in document else document["text"].split("\n")
            sizes = np.array([len(piece) for piece in pieces])
            documents.append(int(sizes.sum()))
            pieces_of.append(len(pieces))
            octaves_of_pieces += octaves(sizes)
    counts: Counts = {"documents": len(documents), "characters": sum(documents)}
    if documents:  # otherwise the unit is unknown
        counts |= {
            unit: sum(pieces_of),
            f"{unit} of a document": octaves(np.array(pieces_of)),
            "characters of a document": octaves(np.array(documents)),
            f"characters of a {unit[:-1]}": octaves_of_pieces,
        }
    return counts


def octaves(sizes: np.ndarray) -> np.ndarray:
    """Return how many of the sizes [n] are 0, 1, 2 to 3, 4 to 7, ...: [OCTAVES]."""
    digits = np.frexp(sizes.astype(np.float64))[1]  # number of binary digits
    return np.bincount(np.minimum(digits, OCTAVES - 1), minlength=OCTAVES)


@functools.lru_cache(1)  # a worker counts many files, and opening a folder takes time for each of its files
def _open_records(folder: Path, split: str, sha256: str) -> tuple[Any, Tokenizer]:
    """Return the records of a split, and their tokenizer. sha256: of the manifest."""
    from bert.text import records  # it imports TensorFlow

    return records.Dataset(folder, split), tokenization.read(vocabulary.path_in(folder))


@functools.lru_cache(1)
def _open_tokens(folder: Path, sha256: str) -> tuple[Manifest, np.ndarray]:
    """Return the manifest of a folder of tokens, and the bytes of each token [vocab_size]. sha256: of the manifest."""
    return manifest.read(folder), causal_tokenizer.read(folder / TOKENIZER).sizes()


def count_instances(task: CountTask) -> Counts:
    """Count masked instances."""
    data, tokenizer = _open_records(task.folder, task.split, task.sha256)
    cls, sep, mask = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id
    total: Counts = {}
    for indices in task.batches():
        features = {name: value.numpy() for name, value in data.read(indices).items()}
        ids, inside = features["input_ids"], features["input_mask"] == 1
        restored, used = checks.restore(features), features["masked_lm_weights"] == 1
        shown = np.take_along_axis(ids, features["masked_lm_positions"], 1)[used]  # input at the predicted positions
        unchanged = shown == features["masked_lm_ids"][used]
        text = restored[inside & (restored != cls) & (restored != sep)]
        counts = {
            "sequences": len(ids),
            "tokens": inside.sum(),
            "places of tokens": ids.size,
            "full sequences": inside.all(1).sum(),
            "predicted tokens": used.sum(),
            "shown as [MASK]": (shown == mask).sum(),
            "shown as another": (~unchanged & (shown != mask)).sum(),
            "shown as itself": unchanged.sum(),
            "pairs of label 1": features["next_sentence_labels"].sum(),
            "length": np.bincount(inside.sum(1), minlength=ids.shape[1] + 1),
            "predictions": np.bincount(used.sum(1), minlength=used.shape[1] + 1),
        }
        total = add(total, counts | _count_words(text, tokenizer))
    return total


def count_chunks(task: CountTask) -> Counts:
    """Count chunks of tokenised documents."""
    data, tokenizer = _open_records(task.folder, task.split, task.sha256)
    expected = checks.RecordFormat(checks.chunk_features({}), len(tokenizer.vocab), {})
    total: Counts = {}
    for indices in task.batches():
        payloads = [data.payload(index) for index in indices.tolist()]
        _, parsed, wrong = checks.parse(payloads, expected)
        if wrong:
            raise IntegrityError(f"{task.folder / task.name}: a record {wrong[0][1]}; run python -m data.verify")
        text = parsed["ids"].flat_values.numpy()
        counts = {
            "chunks": len(payloads),
            "sentences": len(parsed["sentences"].flat_values),
            "tokens": len(text),
            "tokens of a chunk": octaves(parsed["ids"].row_lengths().numpy()),
            "sentences of a chunk": octaves(parsed["sentences"].row_lengths().numpy()),
        }
        total = add(total, counts | _count_words(text, tokenizer))
    return total


def _count_words(text: np.ndarray, tokenizer: Tokenizer) -> Counts:
    """Count the tokens of a text [tokens]."""
    seen = np.bincount(text, minlength=len(tokenizer.vocab))
    counted = np.union1d(tokenizer.ordinary, tokenizer.special).astype(np.int64)
    return {"unknown tokens": seen[tokenizer.unk_id], "tokens of text": len(text), OCCURRENCES: seen[counted]}


def count_tokens(task: CountTask) -> Counts:
    """Count the tokens of a causal model and their documents, without <|endoftext|>."""
    described, sizes_of_tokens = _open_tokens(task.folder, task.sha256)
    stream = described.extra_as(Stream)
    file = TokenFile(described, task.name, RandomAccess())
    lengths = [np.zeros(0, np.int64)]
    seen, rest = np.zeros(stream.vocab_size, np.int64), 0  # tokens of a document that is not finished
    for first in range(0, file.tokens, TOKENS):
        ids = file.read(first, min(first + TOKENS, file.tokens))
        ends = np.flatnonzero(ids == stream.end_id)
        lengths.append(np.diff(ends, prepend=-1 - rest) - 1)
        rest = len(ids) - int(ends[-1]) - 1 if len(ends) else rest + len(ids)
        seen += np.bincount(ids, minlength=stream.vocab_size)
    seen[stream.end_id] = 0
    sizes = np.concatenate(lengths)
    return {
        "documents": len(sizes),
        "tokens": seen.sum(),
        "bytes": seen @ sizes_of_tokens,
        "tokens of a document": octaves(sizes),
        OCCURRENCES: np.delete(seen, stream.end_id),
    }


def add(total: Counts, counts: Counts) -> Counts:
    """Return the sums of two sets of counts."""
    return total | {name: total.get(name, 0) + value for name, value in counts.items()}


def figures(counts: Counts) -> dict[str, Any]:
    """Return the figures whose sums were counted, in the order of the table, and the histograms."""
    sums = {name: int(value) for name, value in counts.items() if np.ndim(value) == 0}
    if OCCURRENCES in counts:
        seen = counts[OCCURRENCES]
        sums |= {"vocabulary": len(seen), "vocabulary never seen": int((seen == 0).sum())}
    found: dict[str, Any] = {}
    for name, quotient in FIGURES.items():
        if quotient is None and name in sums:
            found[name] = sums[name]
        elif quotient is not None and {quotient.of, quotient.by} <= sums.keys():
            share = sums[quotient.of] / max(sums[quotient.by], 1)
            found[name] = 1 - share if quotient.is_rest else share
    histograms = {name: value.tolist() for name, value in counts.items() if np.ndim(value) and name != OCCURRENCES}
    return found | {"histograms": histograms}


RECORDS = {"instances": count_instances, "documents": count_chunks}  # by manifest.extra["kind"]


def counter_of(described: Manifest) -> Callable[[CountTask], Counts] | None:
    """Return what counts a folder's files, or None if it has no lines or records. Raise InputError if it is unknown."""
    if any(name.endswith(".jsonl") for name in described.files):
        return count_lines
    if any(name.endswith(SUFFIX) for name in described.files):
        return count_tokens
    if not any(name.endswith(".tfrecord") for name in described.files):
        return None
    kind = described.extra.get("kind", "instances")
    if kind not in RECORDS:
        raise InputError(f"{described.path}: unknown kind of records {kind!r}; use the version that wrote them")
    return RECORDS[kind]


def tasks_of(described: Manifest, sample: int | None) -> list[CountTask]:
    """Return one task for each file, in order, each with its offset in its split."""
    tasks: list[CountTask] = []
    sha256 = manifest.content_hash(described.path)
    seen: dict[str, int] = {}
    for name, listed in sorted(described.files.items()):
        if name.endswith((".jsonl", ".tfrecord", SUFFIX)):
            records = listed.records or 0
            stride = max(1, records // sample) if sample else 1
            task = CountTask(described.path, sha256, name, 0, records, stride)
            tasks.append(task._replace(begin=seen.get(task.split, 0)))
            seen[task.split] = tasks[-1].begin + records
    return tasks


def measure(
    described: Manifest, counter: Callable[[CountTask], Counts], options: Options, output: Path
) -> dict[str, Any]:
    """Count a folder and write its stats.json. Return the figures of each split."""
    tasks = tasks_of(described, options.sample)
    counts: dict[str, Counts] = {}
    sizes = [described.files[task.name].bytes for task in tasks]
    with Progress("stats", MB, sum(sizes)) as progress:
        for task, size, result in zip(tasks, sizes, workers.run(counter, tasks, options.workers), strict=True):
            counts[task.split] = add(counts.get(task.split, {}), result)
            progress.add(size)
    splits = {split: figures(sums) for split, sums in counts.items()}
    content = {"stage": described.stage, "parameters": described.parameters, "sample": options.sample, "splits": splits}
    files.write_json(output / "stats.json", content)
    return splits


def table(splits: dict[str, dict[str, Any]]) -> str:
    """Return the figures as text, with a column for each split."""
    rows = [f"{'':<36}" + "".join(f"{'' if split == 'part' else split:>16}" for split in splits)]
    for name in FIGURES:
        values = [found.get(name, 0) for found in splits.values()]
        if any(name in found for found in splits.values()):
            rows.append(f"  {name:<34}" + "".join(f"{_shown(name, value):>16}" for value in values))
    return "\n".join(rows)


def _shown(name: str, value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if name.endswith("mean") else f"{value:.2%}"


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.stats", description=__doc__)
    os.environ.update(workers.NO_GPU)  # inherited by the workers, which need no GPU
    manifests = [manifest.load(folder) for folder in verify.finished_folders(options.folders)]
    countable = [(described, counter) for described in manifests if (counter := counter_of(described))]
    if not countable:
        raise InputError(f"{options.folders[0]}: neither documents nor records in it; give a folder that has some")
    if options.output and len(countable) > 1:
        raise UsageError(f"--output {options.output}: needs a single folder, but {len(countable)} are given; omit it")
    for described, counter in countable:
        folder = described.path
        output = options.output or folder.with_name(f"{folder.resolve().name}-stats")
        if folder.resolve() in (output.resolve(), *output.resolve().parents):
            raise UsageError(f"--output {output}: is inside the folder itself, which must not change; choose another")
        sampled = f" (about {options.sample:,} of each file)" if options.sample else ""
        print(f"{folder}{sampled}: {output}\n{table(measure(described, counter, options, output))}\n", flush=True)


if __name__ == "__main__":
    cli.main(main)
