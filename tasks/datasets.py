"""The data sets that are known by name, which are in tasks/known: their files and settings, and their kinds."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bert.core.errors import InputError, UsageError
from bert.core.rows import Rows
from bert.heads import CHOICE, CLASSIFIER, KINDS, TAGS
from bert.labels import Head
from tasks.config import EMBED, SCORED, TaskData, Windows
from tasks.examples import ChoiceExample, Skipped, TaggedSentence, TextExample, TextGroup
from tasks.known import KnownData, Split
from tasks.labels import Labels
from tasks.stored import ExampleKind, StoredKind

Example = TextExample | ChoiceExample | TaggedSentence | TextGroup
GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax")
KNOWN: Rows[KnownData] = Rows(
    {
        "cola": "tasks.known.of_glue:COLA",
        "sst2": "tasks.known.of_glue:SST2",
        "mrpc": "tasks.known.of_glue:MRPC",
        "qqp": "tasks.known.of_glue:QQP",
        "stsb": "tasks.known.of_glue:STSB",
        "mnli": "tasks.known.of_glue:MNLI",
        "qnli": "tasks.known.of_glue:QNLI",
        "rte": "tasks.known.of_glue:RTE",
        "wnli": "tasks.known.of_glue:WNLI",
        "ax": "tasks.known.of_glue:AX",
        "race": "tasks.known.of_choices:RACE",
        "swag": "tasks.known.of_choices:SWAG",
        "conll2003": "tasks.known.of_tags:CONLL2003",
        **{name: row for kind in KINDS.values() for name, row in kind.layouts.items()},
        EMBED: "extensions.embeddings.known:EMBED",
    }
)


def of(data: TaskData) -> KnownData:
    """Return the row of the data set that `data` names."""
    if data.task not in KNOWN:
        raise UsageError(f"--data.task {data.task!r}: one of {', '.join(KNOWN)}")
    return KNOWN[data.task]


def kind(data: TaskData, labels: Labels) -> ExampleKind:
    """Return the kind of a task that is predicted, with its labels."""
    made = stored_kind(data, labels)
    assert isinstance(made, ExampleKind), "embeddings have a command and a development set of their own"
    return made


def stored_kind(data: TaskData, labels: Labels) -> StoredKind:
    """Return the kind of any task, with its labels."""
    data_set = of(data)
    return data_set.kind(data, labels, data_set.metrics)


def layout_of(head: Head) -> str | None:
    """Return the layout of one's own files for a model with this head; None if there is none, as for questions."""
    fitting = (
        name
        for name, data_set in KNOWN.items()
        if not data_set.files and (data_set.kind.head.name, data_set.regression) == (head.kind, head.regression)
    )
    return next(fitting, None)


def sources(data: TaskData) -> dict[Split, Path]:
    """Return the file, or folder, of the training examples, and of the development examples if there are any.

    Raise UsageError if the training examples are not given, InputError if a file of the data set is missing.
    """
    if data.class_weights == "balanced" and (of(data).regression or not of(data).kind.head.has_classes):
        raise UsageError("--data.class_weights balanced is for classes and tags; leave it out")
    check(data)
    paths: dict[Split, Path] = {}
    if data.folder is not None:
        if of(data).files and "train" not in of(data).files:
            raise UsageError(f"--data.task {data.task} has no training examples; use a model of another task")
        paths = {"train": next(iter(files(data, data.folder, "train").values()))}
        if known_dev := files(data, data.folder, "dev"):
            paths["dev"] = next(iter(known_dev.values()))
    if data.train is not None:
        paths["train"] = data.train
    if data.dev is not None:
        paths["dev"] = data.dev
    if "train" not in paths:
        flags = "--data.folder, the data set, or --data.train" if of(data).files else "--data.train"
        raise UsageError(f"no examples: give {flags}")
    return paths


def check(data: TaskData) -> None:
    """Raise UsageError for a setting that is for another kind of task."""
    kind = of(data).kind
    if data.windows != "first" and not kind.of_texts:
        raise UsageError(f"windows {data.windows}: for classes, labels and numbers of texts only; leave it out")
    if data.label_columns and not kind.head.several:
        raise UsageError("label_columns are for multilabel, where a text can have several labels; leave them out")
    if data.loss in SCORED and len(data.text) != 2:
        raise UsageError(f"--data.loss {data.loss} is for two texts with a score; --data.text names {len(data.text)}")
    if data.loss != "contrastive" and data.both_directions:
        raise UsageError(f"--data.both_directions has no effect with --data.loss {data.loss}; leave it out")
    if data.loss == "tsdae" and len(data.text) != 1:
        raise UsageError(f"--data.loss tsdae is for texts alone; --data.text names {len(data.text)} columns")
    if data.positive and kind.head.several:
        raise UsageError("--data.positive is for classes of which one is right; leave it out")
    names = " ".join(data.label_columns)
    if len(data.label_columns) == 1:
        raise UsageError(f"label_columns {names}: one label is two classes; use classify with --data.label {names}")
    if len(set(data.label_columns)) < len(data.label_columns):
        raise UsageError(f"label_columns {names}: one of them is there twice")


def check_read(data: TaskData) -> None:
    """Raise UsageError for a setting of training that the task does not read, so that it would have no effect."""
    check(data)
    usual = {each.name: each.default for each in dataclasses.fields(TaskData)}
    for name, (is_read, tasks) in _readers(data).items():
        if not is_read and getattr(data, name) not in (usual[name], *([of(data).label] if name == "label" else [])):
            raise UsageError(f"--data.{name} is for {tasks}; leave it out")


def _readers(data: TaskData) -> dict[str, tuple[bool, str]]:
    """For each setting that only some tasks read, return whether this task reads it, and which tasks do, in words."""
    kind, loss = of(data).kind, data.loss if data.task == EMBED else ""
    is_table, is_tagging, scored = of(data).columns, kind.head == TAGS, loss in SCORED
    several = kind.head.several and not data.label_columns
    is_pair = len(data.text) == 2 if is_table else of(data).pairs
    has_column = scored or data.dev is not None if loss else is_table and not data.label_columns
    tables_of = "your own files of classify, regress, multilabel and embed"
    tags, embeddings = "tags", "the recipes of embeddings"
    return {
        "text": (is_table, f"{tables_of}; of tags it is --data.word"),
        "label": (has_column, f"{tables_of}, where labels or scores are read; of tags it is --data.tag"),
        "where": (is_table, tables_of),
        "separator": (several, "multilabel without data.label_columns"),
        **{name: (is_tagging, tags) for name in ("word", "tag", "tag_names", "entities")},
        "positive": (kind.head == CLASSIFIER, "classes of which one is right"),
        "levels": (data.task == "race", "RACE"),
        "first_length": (kind.head == CHOICE or (kind.of_texts and is_pair), "pairs of texts"),
        "stride": (is_tagging or data.windows != "first", "tags, and texts with data.windows mean or max"),
        **{name: (bool(loss), embeddings) for name in ("loss", "pool", "normalize", "projection")},
        "dev_text": (
            bool(loss) and not scored,
            f"{embeddings} whose training has no scores; it is data.text otherwise",
        ),
        "deleted": (loss == "tsdae", "data.loss tsdae"),
        "temperature": (loss in ("contrastive", "cosent"), "data.loss contrastive and cosent"),
        "both_directions": (loss == "contrastive", "data.loss contrastive"),
        "score_scale": (loss == "cosine", "data.loss cosine"),
        "dimensions": (scored or loss == "contrastive", "data.loss contrastive, cosine and cosent"),
    }


def in_windows(data: TaskData, windows: Windows | None, stride: int | None) -> TaskData:
    """Return the settings with the windows that a command line gives. Raise UsageError where they have no effect."""
    changed = dataclasses.replace(data, windows=windows or data.windows, stride=stride or data.stride)
    check(changed)
    if stride and changed.windows == "first" and of(data).kind.of_texts:
        raise UsageError("--stride has no effect with windows first, which cut a text; give --windows mean or max")
    return changed


def files(data: TaskData, folder: Path, split: Split) -> dict[str, Path]:
    """Return the files of a split in the folder of a data set, by the names of their scores.

    `folder` may also be the parent of the data set's folder. Raise UsageError if `data` names no data set but a layout
    of one's own files, InputError if a file is missing.
    """
    data_set = of(data)
    if not data_set.files:
        raise UsageError(f"--data.folder has no effect for {data.task}, which reads your own files; give --data.train")
    place = folder / data_set.folder if data_set.folder and (folder / data_set.folder).is_dir() else folder
    paths = {name: place / file for name, file in data_set.files.get(split, {}).items()}
    for name, path in paths.items():
        if not path.exists() and split in data_set.originals:
            path = paths[name] = place / data_set.originals[split]
        if not path.exists():
            raise InputError(f"{path}: no such file; give the folder of {data.task} as it is distributed")
    return paths


def count(data: TaskData, path: Path, split: Split, limit: int = 0) -> int | None:
    """Return the number of examples that a file or folder has, at most `limit` unless that is 0; None: it is a pipe."""
    if not (path.is_file() or path.is_dir()):
        return None
    every = sum(1 for _ in of(data).read(data, path, split, Skipped(strict=False)))
    return min(every, limit) if limit else every


def labels_of(example: Example) -> Sequence[str]:
    """Return the names of an example's labels."""
    if isinstance(example, TaggedSentence):
        return example.tags or ()
    if isinstance(example, TextGroup):
        return ()
    if isinstance(example, ChoiceExample):
        return [str(number) for number in range(len(example.pairs))]
    if example.labels is not None:
        return example.labels
    return () if example.label is None else (str(example.label),)


def with_columns(data: TaskData, text: tuple[str, ...] | None, label: str | None) -> TaskData:
    """Return `data` with other columns of texts and labels, or of words and tags; None keeps a column.

    Raise UsageError if the files have no columns to choose.
    """
    if of(data).kind.head == CHOICE and (text or label):
        raise _one_layout(data)
    if of(data).kind.head == TAGS:
        if text and len(text) > 1:
            raise UsageError(f"--text names {len(text)} columns; give that of the word")
        return dataclasses.replace(data, word=text[0] if text else data.word, tag=label or data.tag)
    return dataclasses.replace(data, text=text or data.text, label=data.label if label is None else label)


def check_columns(data: TaskData, given: object) -> None:
    """Raise UsageError if columns are `given` for a data set of GLUE, whose files have their own."""
    if given and data.task in GLUE:
        raise _one_layout(data)


def _one_layout(data: TaskData) -> UsageError:
    return UsageError(f"--text and --label: {data.task} reads files of one layout; leave them out")
