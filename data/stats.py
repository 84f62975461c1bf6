"""Compute statistics of finished folders: amounts, lengths and masking, as a table, stats.json and pictures.

    python -m data.stats workdir/corpus workdir/tfrecords/seq128

For folders of text: numbers and lengths of documents and sentences. For TFRecords: sequences, padding, lengths, what
the predicted tokens were replaced by, next-sentence labels, unknown tokens, and tokens of the vocabulary that never
occur. For tokens of a causal model: documents, tokens, and bytes of text for each token.

The output is written beside each folder, to `<folder>-stats`, because a finished folder may hold only the files that
its manifest lists. With `--sample N`, about N records of each file are read, spread evenly over the file; files of
tokens are always read whole.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from bert import cli, ranges
from bert.errors import InputError, IntegrityError, UsageError
from bert.inputs import byte_bpe
from bert.inputs.token_file import SUFFIX, Stream, TokenFile
from bert.inputs.vocabulary import SPECIAL, load_vocab
from bert.ranges import Range, Workers
from bert.storage import files, manifest
from bert.storage.manifest import Manifest
from bert.storage.random_access import RandomAccess
from data import verify
from data.audit import checks
from data.audit.charts import Panel, draw
from data.pipeline import workers
from data.pipeline.progress import Progress

BATCH = 1024  # records read at once
TOKENS = 1 << 20  # tokens read at once
OCTAVES = 40  # bins of a histogram of lengths, by powers of two
Arrays = dict[str, np.ndarray]  # counts by name; the counts of several files are added


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
    name: str
    begin: int  # number of its first record within its split
    records: int
    stride: int  # every n-th record is read

    @property
    def split(self) -> str:
        """Return "train" or "heldout", or "part" if the folder has no splits."""
        return self.name.split("-")[0]


def count_lines(task: CountTask) -> Arrays:
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
    return {
        "documents": np.array([len(documents)]),
        unit: np.array([sum(pieces_of)]),
        "characters": np.array([sum(documents)]),
        f"{unit} of a document": octaves(np.array(pieces_of)),
        "characters of a document": octaves(np.array(documents)),
        f"characters of a {unit[:-1]}": octaves_of_pieces,
    }


def octaves(sizes: np.ndarray) -> np.ndarray:
    """Return how many of the sizes [n] are 0, 1, 2 to 3, 4 to 7, ...: [OCTAVES]."""
    digits = np.frexp(sizes.astype(np.float64))[1]  # number of binary digits
    return np.bincount(np.minimum(digits, OCTAVES - 1), minlength=OCTAVES)


def count_instances(task: CountTask) -> Arrays:
    """Count masked instances."""
    from bert.inputs import records

    vocabulary = load_vocab(task.folder / "vocab.txt")
    cls, sep, mask = (vocabulary.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    data = records.Dataset(task.folder, task.split)
    indices = np.arange(task.begin, task.begin + task.records, task.stride)
    total: Arrays = {}
    for first in range(0, len(indices), BATCH):
        features = {name: value.numpy() for name, value in data.read(indices[first : first + BATCH]).items()}
        ids, inside = features["input_ids"], features["input_mask"] == 1
        restored, used = checks.restore(features), features["masked_lm_weights"] == 1
        shown = np.take_along_axis(ids, features["masked_lm_positions"], 1)[used]  # input at the predicted positions
        unchanged = shown == features["masked_lm_ids"][used]
        text = restored[inside & (restored != cls) & (restored != sep)]
        counts = {
            "sequences": np.array([len(ids)]),
            "length": np.bincount(inside.sum(1), minlength=ids.shape[1] + 1),
            "predictions": np.bincount(used.sum(1), minlength=used.shape[1] + 1),
            "replaced": np.array([(shown == mask).sum(), (~unchanged & (shown != mask)).sum(), unchanged.sum()]),
            "label 1": np.array([features["next_sentence_labels"].sum()]),
            "vocabulary": np.bincount(text, minlength=len(vocabulary)),
        }
        total = add(total, counts)
    return total


def count_chunks(task: CountTask) -> Arrays:
    """Count chunks of tokenised documents."""
    from bert.inputs import records

    vocabulary = load_vocab(task.folder / "vocab.txt")
    expected = checks.RecordFormat(checks.chunk_features({}), len(vocabulary), {})
    data = records.Dataset(task.folder, task.split)
    indices = range(task.begin, task.begin + task.records, task.stride)
    total: Arrays = {}
    for first in range(0, len(indices), BATCH):
        payloads = [data.payload(index) for index in indices[first : first + BATCH]]
        _, parsed, wrong = checks.parse(payloads, expected)
        if wrong:
            raise IntegrityError(f"{task.folder / task.name}: a record {wrong[0][1]}; run python -m data.verify")
        counts = {
            "chunks": np.array([len(payloads)]),
            "sentences": np.array([len(parsed["sentences"].flat_values)]),
            "tokens of a chunk": octaves(parsed["ids"].row_lengths().numpy()),
            "sentences of a chunk": octaves(parsed["sentences"].row_lengths().numpy()),
            "vocabulary": np.bincount(parsed["ids"].flat_values.numpy(), minlength=len(vocabulary)),
        }
        total = add(total, counts)
    return total


def count_tokens(task: CountTask) -> Arrays:
    """Count the tokens of a causal model and their documents."""
    described = manifest.read(task.folder)
    stream = described.extra_as(Stream)
    file = TokenFile(described, task.name, RandomAccess())
    lengths = [np.zeros(0, np.int64)]
    vocabulary, rest = np.zeros(stream.vocab_size, np.int64), 0  # tokens of a document that is not finished
    for first in range(0, file.tokens, TOKENS):
        ids = file.read(first, min(first + TOKENS, file.tokens))
        ends = np.flatnonzero(ids == stream.end_id)
        lengths.append(np.diff(ends, prepend=-1 - rest) - 1)
        rest = len(ids) - int(ends[-1]) - 1 if len(ends) else rest + len(ids)
        vocabulary += np.bincount(ids, minlength=stream.vocab_size)
    vocabulary[stream.end_id] = 0
    sizes = np.concatenate(lengths)
    return {
        "documents": np.array([len(sizes)]),
        "tokens of a document": octaves(sizes),
        "vocabulary": vocabulary,
    }


def add(total: Arrays, counts: Arrays) -> Arrays:
    """Return the sums of two sets of counts."""
    return total | {name: total[name] + array if name in total else array for name, array in counts.items()}


def line_figures(counts: Arrays) -> dict[str, Any]:
    """Return the figures of a split of documents."""
    sums = {name: int(array[0]) for name, array in counts.items() if len(array) == 1}
    unit = "sentences" if "sentences" in sums else "paragraphs"
    return {
        **sums,
        f"{unit} of a document, mean": sums[unit] / max(sums["documents"], 1),
        f"characters of a {unit[:-1]}, mean": sums["characters"] / max(sums[unit], 1),
        "histograms": {name: array.tolist() for name, array in counts.items() if len(array) > 1},
    }


def instance_figures(counts: Arrays, vocabulary: list[str]) -> dict[str, Any]:
    """Return the figures of a split of masked instances. Fractions are from 0 to 1."""
    sequences, length, predictions = int(counts["sequences"][0]), counts["length"], counts["predictions"]
    tokens = int(length @ np.arange(len(length)))
    predicted = int(predictions @ np.arange(len(predictions)))
    return {
        "sequences": sequences,
        "tokens": tokens,
        "tokens of a sequence, mean": tokens / max(sequences, 1),
        "padding": 1 - tokens / max(sequences * (len(length) - 1), 1),
        "full sequences": int(length[-1]) / max(sequences, 1),
        "predicted tokens": predicted,
        "predicted, of all tokens": predicted / max(tokens, 1),
        **{
            f"predicted: {name}": int(count) / max(predicted, 1)
            for name, count in zip(("[MASK]", "random", "kept"), counts["replaced"], strict=True)
        },
        "pairs of label 1": int(counts["label 1"][0]) / max(sequences, 1),
        **_vocabulary_figures(counts["vocabulary"], vocabulary),
        "histograms": {"length": length.tolist(), "predictions": predictions.tolist()},
    }


def chunk_figures(counts: Arrays, vocabulary: list[str]) -> dict[str, Any]:
    """Return the figures of a split of tokenised documents."""
    chunks, tokens = int(counts["chunks"][0]), int(counts["vocabulary"].sum())
    return {
        "chunks": chunks,
        "sentences": int(counts["sentences"][0]),
        "tokens": tokens,
        "tokens of a chunk, mean": tokens / max(chunks, 1),
        **_vocabulary_figures(counts["vocabulary"], vocabulary),
        "histograms": {name: array.tolist() for name, array in counts.items() if name.endswith("chunk")},
    }


def token_figures(counts: Arrays, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the figures of a split of tokens, without <|endoftext|>. sizes: bytes of each token of the vocabulary."""
    documents, tokens = int(counts["documents"][0]), int(counts["vocabulary"].sum())
    size, never = int(counts["vocabulary"] @ np.array(sizes)), int((counts["vocabulary"] == 0).sum()) - 1
    return {
        "documents": documents,
        "tokens": tokens,
        "bytes": size,
        "tokens of a document, mean": tokens / max(documents, 1),
        "bytes of a token, mean": size / max(tokens, 1),
        "vocabulary": len(sizes) - 1,
        "vocabulary never seen": never,
        "vocabulary never seen, share": never / max(len(sizes) - 1, 1),
        "histograms": {"tokens of a document": counts["tokens of a document"].tolist()},
    }


def _vocabulary_figures(seen: np.ndarray, vocabulary: list[str]) -> dict[str, Any]:
    """Return the figures that follow from the number of occurrences of each token."""
    ordinary = [i for i, token in enumerate(vocabulary) if token not in SPECIAL and not token.startswith("[unused")]
    never = int((seen[ordinary] == 0).sum())
    return {
        "unknown tokens": int(seen[vocabulary.index("[UNK]")]) / max(int(seen.sum()), 1),
        "vocabulary": len(ordinary),
        "vocabulary never seen": never,
        "vocabulary never seen, share": never / max(len(ordinary), 1),
    }


def line_pictures(counts: Arrays) -> dict[str, list[Panel]]:
    """Return histograms of the lengths, by powers of two."""
    panels = []
    for name, array in counts.items():
        if len(array) > 1 and array[1:].any():
            last = int(np.flatnonzero(array)[-1])
            places = [2.0**power for power in range(last)]  # octave n begins at length 2 ** (n - 1)
            heights = (array[1 : last + 1] / array.sum()).tolist()
            title = f"Share of {name.split()[-1]}s"
            panels.append(Panel(title, name, places, heights, places, "log x", True))
    return {"lengths.png": panels}


def instance_pictures(counts: Arrays) -> dict[str, list[Panel]]:
    """Return histograms of lengths and predictions, and figures of the masking and of the vocabulary's frequencies."""
    shares = {name: counts[name] / counts["sequences"] for name in ("length", "predictions")}
    replaced = counts["replaced"] / max(counts["replaced"].sum(), 1)

    def bars(name: str, label: str) -> Panel:
        places, heights = range(len(shares[name])), shares[name].tolist()
        return Panel("Share of sequences", label, places, heights, scale="log y", percent=True)

    return {
        "lengths.png": [bars("length", "tokens of a sequence"), bars("predictions", "predictions of a sequence")],
        "tokens.png": [
            Panel(
                "A predicted token is shown as", "", ("[MASK]", "another", "itself"), replaced.tolist(), percent=True
            ),
            _ranks(counts["vocabulary"]),
        ],
    }


def chunk_pictures(counts: Arrays) -> dict[str, list[Panel]]:
    """Return histograms of the lengths, by powers of two, and the vocabulary's frequencies."""
    lengths = {name: array for name, array in counts.items() if name.endswith("chunk")}
    return {**line_pictures(lengths), "tokens.png": [_ranks(counts["vocabulary"])]}


def token_pictures(counts: Arrays) -> dict[str, list[Panel]]:
    """Return a histogram of the documents' lengths, by powers of two, and the vocabulary's frequencies."""
    lengths = {name: array for name, array in counts.items() if name.endswith("document")}
    return {**line_pictures(lengths), "tokens.png": [_ranks(counts["vocabulary"])]}


def _ranks(seen: np.ndarray) -> Panel:
    frequencies = np.sort(seen[seen > 0])[::-1]
    ranks = range(1, len(frequencies) + 1)
    return Panel("Occurrences", "rank of the token", ranks, frequencies.tolist(), scale="log")


class Kind(NamedTuple):
    """The functions that count one kind of data, compute its figures and draw it."""

    tally: Callable[[CountTask], Arrays]
    figures: Callable[[Arrays, Any], dict[str, Any]]  # of the sums of a split, and what `vocabulary` returned
    pictures: Callable[[Arrays], dict[str, list[Panel]]]
    vocabulary: Callable[[Path], Any]  # of the folder


def _token_sizes(folder: Path) -> list[int]:
    """Return the number of bytes of each token; <|endoftext|> is no text."""
    vocabulary, _ = byte_bpe.read(folder / byte_bpe.NAME)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return [0 if token == byte_bpe.END else len(token) for token in tokens]


def _wordpieces(folder: Path) -> list[str]:
    return load_vocab(folder / "vocab.txt")


LINES = Kind(count_lines, lambda counts, _: line_figures(counts), line_pictures, lambda folder: None)
TOKEN_FILES = Kind(count_tokens, token_figures, token_pictures, _token_sizes)
RECORDS = {  # by manifest.extra["kind"]
    "instances": Kind(count_instances, instance_figures, instance_pictures, _wordpieces),
    "documents": Kind(count_chunks, chunk_figures, chunk_pictures, _wordpieces),
}


def kind_of(described: Manifest) -> Kind | None:
    """Return the kind of a folder's data, or None if it has no lines or records. Raise InputError if it is unknown."""
    if any(name.endswith(".jsonl") for name in described.files):
        return LINES
    if any(name.endswith(SUFFIX) for name in described.files):
        return TOKEN_FILES
    if not any(name.endswith(".tfrecord") for name in described.files):
        return None
    kind = described.extra.get("kind", "instances")
    if kind not in RECORDS:
        raise InputError(f"{described.path}: unknown kind of records {kind!r}; use the version that wrote them")
    return RECORDS[kind]


def tasks_of(described: Manifest, sample: int | None) -> list[CountTask]:
    """Return one task for each file, in order, each with its offset in its split."""
    tasks: list[CountTask] = []
    seen: dict[str, int] = {}
    for name, listed in sorted(described.files.items()):
        if name.endswith((".jsonl", ".tfrecord", SUFFIX)):
            records = listed.records or 0
            stride = max(1, records // sample) if sample else 1
            task = CountTask(described.path, name, 0, records, stride)
            tasks.append(task._replace(begin=seen.get(task.split, 0)))
            seen[task.split] = tasks[-1].begin + records
    return tasks


def measure(described: Manifest, kind: Kind, options: Options, output: Path) -> dict[str, Any]:
    """Count a folder and write its stats.json and pictures. Return the figures of each split."""
    tasks = tasks_of(described, options.sample)
    counts: dict[str, Arrays] = {}
    progress = Progress("stats", "files")
    for task, result in zip(tasks, workers.run(kind.tally, tasks, options.workers), strict=True):
        counts[task.split] = add(counts.get(task.split, {}), result)
        progress.add(1, described.files[task.name].bytes)
    vocabulary = kind.vocabulary(described.path)
    splits = {split: kind.figures(sums, vocabulary) for split, sums in counts.items()}
    total: Arrays = {}
    for sums in counts.values():
        total = add(total, sums)
    content = {"stage": described.stage, "parameters": described.parameters, "sample": options.sample, "splits": splits}
    files.write_json(output / "stats.json", content)
    for name, panels in kind.pictures(total).items():
        draw(panels, output / name)
    return splits


def table(splits: dict[str, dict[str, Any]]) -> str:
    """Return the figures as text, with a column for each split."""
    rows = [f"{'':<36}" + "".join(f"{'' if split == 'part' else split:>16}" for split in splits)]
    for name in next(iter(splits.values())):
        if name != "histograms":
            rows.append(f"  {name:<34}" + "".join(f"{_shown(name, figures[name]):>16}" for figures in splits.values()))
    return "\n".join(rows)


def _shown(name: str, value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if name.endswith("mean") else f"{value:.2%}"


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m data.stats", description=__doc__)
    os.environ.update(verify.NO_GPU)  # inherited by the workers, which need no GPU
    manifests = [manifest.load(folder) for folder in verify.finished_folders(options.folders)]
    countable = [(described, kind) for described in manifests if (kind := kind_of(described))]
    if not countable:
        raise InputError(f"{options.folders[0]}: neither documents nor records in it; give a folder that has some")
    if options.output and len(countable) > 1:
        raise UsageError(f"--output {options.output}: needs a single folder, but {len(countable)} are given; omit it")
    for described, kind in countable:
        folder = described.path
        output = options.output or folder.with_name(f"{folder.resolve().name}-stats")
        if folder.resolve() in (output.resolve(), *output.resolve().parents):
            raise UsageError(f"--output {output}: is inside the folder itself, which must not change; choose another")
        sampled = f" (about {options.sample:,} of each file)" if options.sample else ""
        print(f"{folder}{sampled}: {output}\n{table(measure(described, kind, options, output))}\n", flush=True)


if __name__ == "__main__":
    cli.main(main)
