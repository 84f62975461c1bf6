"""The examples of a task as records: written once for each setting, read by the trainer."""

import hashlib
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert.core import manifest, outputs
from bert.core.errors import InputError
from bert.text import frames, tf_example
from bert.text.tokenization import Tokenizer
from tasks import datasets, inputs, labels
from tasks.config import TaskData
from tasks.datasets import Example
from tasks.examples import Skipped, TextExample
from tasks.known import KnownData, Split
from tasks.label_sets import REMEDY, are_positions
from tasks.labels import Labels
from tasks.stored import ExampleKind, StoredKind

STAGE = "tasks.features"
NOT_OF_RECORDS = (  # paths, since only the content of their files counts; and settings that only training reads
    *("folder", "train", "dev", "vocab"),
    *("temperature", "both_directions", "dimensions", "pool", "normalize", "projection", "dev_text"),
)
# Settings that records of earlier versions lack.
NEWER = ("windows", "separator", "label_columns", "loss", "score_scale", "deleted")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What the manifest of the records says about the labels."""

    labels: dict[str, Any]


def build(data: TaskData, tokenizer: Tokenizer, vocab: Path, workdir: Path, trained: tuple[str, ...] = ()) -> Path:
    """Return the folder of TFRecords of the training and the development examples.

    trained: the labels of the initial weights. If the examples have the same labels, the order of `trained` is kept.
    """
    data_set, sources = datasets.of(data), datasets.sources(data)
    usual = {name for name in NEWER if getattr(data, name) == getattr(TaskData, name)}
    settings = {name: value for name, value in asdict(data).items() if name not in {*NOT_OF_RECORDS, *usual}}
    parameters = settings | tokenizer.description() | {"trained": list(trained)}
    paths = [path for source in sources.values() for path in (source, data_set.beside(source)) if path]
    hashes = [manifest.content_hash(path) for path in paths]
    key = json.dumps([hashes, tokenizer.vocab_sha256, parameters], default=str)
    folder = workdir / "tasks" / "features" / hashlib.sha256(key.encode()).hexdigest()[:16]

    def make(partial: Path) -> outputs.StageResult:
        return _write(partial, data, data_set, sources, tokenizer, trained)

    outputs.build(folder, stage=STAGE, parameters=parameters, inputs=[*paths, vocab], make=make)
    counts = manifest.load(folder).counts
    for split, path in sources.items():
        if isinstance(seen := counts.get(f"{split}_seen"), dict):
            inputs.EncodingCounts(**seen).report(path, data.length)
    return folder


def kind(data: TaskData, folder: Path) -> ExampleKind:
    """Return the kind of task, with the labels that were found when the records in `folder` were written."""
    stored = manifest.load(folder).extra_as(Stored).labels
    return datasets.kind(data, labels.from_entries(stored))


def _write(
    partial: Path,
    data: TaskData,
    data_set: KnownData,
    sources: dict[Split, Path],
    tokenizer: Tokenizer,
    trained: tuple[str, ...],
) -> outputs.StageResult:
    skipped = {split: Skipped(data.strict) for split in sources}
    if data_set.kind.head.several:
        described = _of_sets(data, data_set, sources, trained)
    else:
        described = _labels(data, data_set, sources["train"], trained)
    made = datasets.stored_kind(data, described)
    counts: dict[str, Any] = {"dev": 0}
    written = {}
    for split, path in sources.items():
        examples = limited(data_set.read(data, path, split, skipped[split]), data.limit if split == "train" else 0)
        name = f"{split}-00000-of-00001.tfrecord"
        with frames.RecordWriter(partial / name) as writer:
            counts[split] = _write_records(writer, made, examples, tokenizer, path)
            written[name] = writer.count
        if not writer.count:
            raise _nothing(path, skipped[split])
        skipped[split].report()
        if made.seen.loses:
            counts[f"{split}_seen"] = asdict(made.seen)
        made.seen = inputs.EncodingCounts()
    counts |= {f"{split}_skipped": left_out.count for split, left_out in skipped.items()}
    extra = {
        "features": made.features(),
        "vocab_sha256": tokenizer.vocab_sha256,
        "vocab_size": len(tokenizer.vocab),
        "labels": described.entries(made.head.name),
    }
    return outputs.StageResult(counts=counts, records=written, extra=extra)


def _write_records(
    writer: frames.RecordWriter, made: StoredKind, examples: Iterable[Example], tokenizer: Tokenizer, path: Path
) -> int:
    """Write the records of all examples of a file; return their number. Raise InputError for an unknown label."""
    count, needed = 0, made.features()
    for chunk in chunks(examples, made.at_once):
        try:
            arrays = made.encode(chunk, tokenizer)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if missing := [name for name in needed if name not in arrays]:
            raise InputError(f"{path}: example {chunk[0].id} has no {missing[0]}; give a file with labels")
        flat = {name: values.reshape(len(values), -1) for name, values in arrays.items()}
        for serialized in tf_example.encode_batch(flat):
            writer.write(serialized)
        count += len(chunk)
    return count


def chunks(examples: Iterable[Example], size: int) -> Iterator[list[Any]]:
    """Yield the examples in lists of at most `size`."""
    rest = iter(examples)
    return iter(lambda: list(itertools.islice(rest, size)), [])


def limited(examples: Iterator[Example], limit: int) -> Iterator[Example]:
    """Yield the first `limit` examples; 0: all."""
    return itertools.islice(examples, limit) if limit else examples


def _nothing(path: Path, skipped: Skipped) -> InputError:
    """Return the error for a file without a usable example."""
    return InputError(f"{path}: no usable example{_first_of(skipped)}; check the file and the names of its columns")


def _first_of(skipped: Skipped) -> str:
    """Return the first reason why an example is not usable, for a message; "" if all are usable."""
    return f"; the first of {skipped.count} that are not: {skipped.reasons[0]}" if skipped.count else ""


def _labels(data: TaskData, data_set: KnownData, train: Path, trained: tuple[str, ...]) -> Labels:
    """Return the labels of a task: the data set's, or else the labels of the training examples."""
    if data_set.regression:
        return Labels(regression=True)
    names = data_set.labels
    if names and data.class_weights == "equal":
        return Labels(names=_order(names, trained))
    counts: Counter[str] = Counter()
    skipped = Skipped(data.strict)
    for example in limited(data_set.read(data, train, "train", skipped), data.limit):
        counts.update(datasets.labels_of(example))
    if not counts:
        raise _nothing(train, skipped)
    names = _order(names or labels.classes(counts, train), trained)
    print(f"labels of {train}: {_listed(names, counts)}", file=sys.stderr)
    _doubt(names, train)
    return Labels(names=names, weights=labels.balanced(names, counts) if data.class_weights == "balanced" else None)


def _of_sets(data: TaskData, data_set: KnownData, sources: dict[Split, Path], trained: tuple[str, ...]) -> Labels:
    """Return the labels of texts that can have several, from all examples; print how often they occur."""
    train, used = sources["train"], dict[Split, set[str]]()
    counts, unknown, sizes = Counter[str](), Counter[str](), Counter[int]()  # of the training examples
    skipped = {split: Skipped(data.strict) for split in sources}
    for split, path in sources.items():
        used[split] = set()
        for example in limited(data_set.read(data, path, split, skipped[split]), data.limit * (split == "train")):
            names = datasets.labels_of(example)
            used[split].update(names)
            if split == "train" and isinstance(example, TextExample):
                counts.update(names)
                unknown.update(example.unknown)
                sizes[len(names)] += 1
    for split, path in sources.items():
        is_known = split != "train" and used[split] <= used["train"]
        if not data.label_columns and not is_known and are_positions([*used[split]]):
            raise InputError(f"{path}: {data.label} has 0 and 1 only; if these are not names, {REMEDY}")
    names = data.label_columns or labels.ordered(set[str]().union(*used.values()), train)
    if sizes and len(names) < 2:
        only = f"no label but {names[0]!r}" if names else "no label"
        why = _first_of(skipped["train"])
        raise InputError(f"{train}: has {only}{why}; for classes of which one is right use the recipe classify")
    names, texts = _order(names, trained), sizes.total()
    print(f"labels of {train}: {_listed(names, counts)}; {sizes[0]:,} of {texts:,} texts have none", file=sys.stderr)
    _doubt(names, train)
    if not data.label_columns and (joined := labels.joined(names)):
        print(
            f"warning: {train}: is {joined[0]!r} one label? if not, name the separator by --data.separator",
            file=sys.stderr,
        )
    if never := [name for name in names if not counts[name]]:
        listed = ", ".join(never[:10]) + (", ..." if len(never) > 10 else "")
        print(f"warning: {train}: no text has {listed}; the model learns to give it to none", file=sys.stderr)
    if sizes.keys() == {1}:
        print(
            f"note: {train}: each text has one label; if only one can be right, use the recipe classify",
            file=sys.stderr,
        )
    having, of = [counts[name] for name in names], [texts - unknown[name] for name in names]
    return Labels(names=names, weights=labels.of_positives(having, of) if data.class_weights == "balanced" else None)


def _order(names: tuple[str, ...], trained: tuple[str, ...]) -> tuple[str, ...]:
    """Return the labels in the order of the trained head if it has the same labels, else unchanged."""
    return trained if sorted(trained) == sorted(names) else names


def _doubt(names: Sequence[str], train: Path) -> None:
    """Print warnings about classes that are probably the same, or that probably mean that there is no label."""
    if pairs := labels.alike(names):
        listed = "; ".join(f"{one!r} and {other!r}" for one, other in pairs[:3]) + ("; ..." if len(pairs) > 3 else "")
        print(
            f"warning: {train}: labels that differ only in spaces, case or the form of a number are different ones: "
            f"{listed}",
            file=sys.stderr,
        )
    for name in labels.doubtful(names):
        print(
            f"warning: {train}: {name!r} is a class; where it means that a row has no label, leave these rows out",
            file=sys.stderr,
        )


def _listed(names: tuple[str, ...], counts: Counter[str]) -> str:
    shown = ", ".join(f"{name} {counts[name]:,}" for name in names[:10])
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")
