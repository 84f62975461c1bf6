"""GLUE: the files of its nine tasks and of the diagnostic set, byte for byte as they are distributed.

The names of columns and the numbers of classes that Hugging Face's `datasets` has are known too, and files of it in
CSV, JSONL or Parquet are read (tasks/tables.py). In .tsv, columns are separated by tabs and never quoted: Python's csv
reader would join lines at quotation marks and lose 97 lines of MRPC's training set. A file with a header is read by the
names in it, since the order of columns differs between copies. Source of the layouts: the files, and
nyu-mll/GLUE-baselines.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bert.core import files
from bert.core.errors import InputError
from tasks import tables
from tasks.examples import Skipped, TextExample

Split = Literal["train", "dev", "test"]
Files = dict[Split, dict[str, str]]

ENTAILMENT = ("entailment", "not_entailment")
BINARY = ("0", "1")
POSITIVE = "1"  # class of F1, whatever the order of the logits: a run may go on with a head of another order
NLI = ("contradiction", "entailment", "neutral")  # the order of google-research/bert
NLI_NUMBERS = ("entailment", "neutral", "contradiction")  # the order of `datasets`, and of the papers of SNLI and MNLI
USUAL: Files = {"train": {"": "train.tsv"}, "dev": {"": "dev.tsv"}, "test": {"": "test.tsv"}}
MICROSOFT, DEV_IDS = "msr_paraphrase_train.txt", "dev_ids.tsv"  # MRPC as published; GLUE's dev set is a part of it


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of GLUE: names of columns may have several spellings, the first one that is there counts."""

    folder: str
    """its folder, and the name of its submission"""
    first: tuple[str, ...]
    """columns of the text, or of the first one of the pair"""
    second: tuple[str, ...] = ()
    """columns of the second text; none for single texts"""
    label: tuple[str, ...] = ("label",)
    """columns of the label"""
    labels: tuple[str, ...] = BINARY
    """names of the classes, in the order of the logits"""
    numbers: tuple[str, ...] = ()
    """names of the classes in the order in which `datasets` numbers them, from 0"""
    metrics: tuple[str, ...] = ("accuracy",)
    """as GLUE defines them, the one by which checkpoints are compared first"""
    regression: bool = False
    """whether the label is a number"""
    files: Files = field(default_factory=lambda: USUAL)
    """of each split, by the name that their scores have"""
    submissions: dict[str, str] = field(default_factory=dict)
    """names of the submissions by the names of the test files, where there are several"""
    originals: dict[Split, str] = field(default_factory=dict)
    """files that stand for a split where its own is missing"""
    headerless: tuple[str, ...] = ()
    """columns of files without a header"""
    more_columns: bool = False
    """whether rows of a file without a header may have more columns at the end"""
    short_rows: bool = False
    """whether the distributed file has rows that lack columns: they are left out and counted"""


TASKS = {
    "cola": Task(
        folder="CoLA",
        first=("sentence",),
        metrics=("matthews",),
        headerless=("source", "label", "mark", "sentence"),
    ),
    "sst2": Task(folder="SST-2", first=("sentence", "text")),
    "mrpc": Task(
        folder="MRPC",
        first=("#1 String", "sentence1"),
        second=("#2 String", "sentence2"),
        label=("Quality", "label"),
        metrics=("f1", "accuracy"),
        originals={"train": MICROSOFT, "dev": MICROSOFT, "test": "msr_paraphrase_test.txt"},
    ),
    "qqp": Task(
        folder="QQP",
        first=("question1",),
        second=("question2",),
        label=("is_duplicate", "label"),
        metrics=("f1", "accuracy"),
        short_rows=True,
    ),
    "stsb": Task(
        folder="STS-B",
        first=("sentence1",),
        second=("sentence2",),
        label=("score", "label"),
        labels=(),
        metrics=("pearson", "spearman"),
        regression=True,
        headerless=("genre", "filename", "year", "index in file", "score", "sentence1", "sentence2"),
        more_columns=True,  # the original files have sources in some rows
    ),
    "mnli": Task(
        folder="MNLI",
        first=("sentence1", "premise"),
        second=("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        labels=NLI,
        numbers=NLI_NUMBERS,
        files={
            "train": {"": "train.tsv"},
            "dev": {"matched": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"},
            "test": {"matched": "test_matched.tsv", "mismatched": "test_mismatched.tsv"},
        },
        submissions={"matched": "MNLI-m", "mismatched": "MNLI-mm"},
    ),
    "qnli": Task(folder="QNLI", first=("question",), second=("sentence",), labels=ENTAILMENT, numbers=ENTAILMENT),
    "rte": Task(folder="RTE", first=("sentence1",), second=("sentence2",), labels=ENTAILMENT, numbers=ENTAILMENT),
    "wnli": Task(folder="WNLI", first=("sentence1",), second=("sentence2",)),
    "ax": Task(
        folder="AX",
        first=("sentence1", "premise"),
        second=("sentence2", "hypothesis"),
        labels=NLI,
        numbers=NLI_NUMBERS,
        metrics=("matthews",),
        files={"test": {"": "diagnostic.tsv"}},
    ),
}


def read(task: Task, path: Path, split: Split, skipped: Skipped) -> Iterator[TextExample]:
    """Yield the examples of a file in order; their label is None if the file has no column for it.

    split: yield only the rows of this split from MRPC's original training file. Labels of `test` are not read, since
    some copies have other values in that column. The id is the file's `index`, `id` or `idx`, else the number of the
    row. Rows of QQP that lack columns, and pairs of SNLI and MultiNLI without a label, are left out and counted. Raise
    InputError for any other row with another number of columns, for an empty text, or for an unknown label.
    """
    lines = tables.lines(path, (*task.first, *task.second))
    number, fields = next(lines, (1, []))
    columns, is_header = _columns(task, fields, path)
    if not is_header:
        lines = itertools.chain([(number, fields)], lines)
    get = _Places(task, columns, split, path)
    for row, (number, fields) in enumerate(lines):
        if fields == [""]:
            continue
        if reason := get.fault(fields):
            if not task.short_rows:
                raise InputError(f"{path}: line {number}: {reason}; give the file as it is distributed")
            skipped.add(path, number, reason)
            continue
        if get.has_no_label(fields):
            skipped.add(path, number, "no label: the annotators did not agree, or it is not given")
            continue
        if get.is_in_split(fields):
            yield get.example(fields, row, number)


def _dev_ids(path: Path) -> set[tuple[str, ...]]:
    """Return the two ids of each pair of GLUE's development set, from the file beside MRPC's original file."""
    ids = path.with_name(DEV_IDS)
    if not ids.exists():
        raise InputError(f"{ids}: no such file; it tells which pairs of {path.name} are GLUE's development set")
    with files.open_text(ids) as stream:
        return {tuple(line.split()) for line in files.read_lines(stream, ids)}


def _columns(task: Task, fields: Sequence[str], path: Path) -> tuple[list[str], bool]:
    """Return the names of the columns, and whether the first line has them."""
    if any(name in fields for name in task.first):
        return list(fields), True
    needed = len(task.headerless)
    if needed and (len(fields) == needed or (task.more_columns and len(fields) > needed)):
        return list(task.headerless), False
    raise InputError(
        f"{path}: line 1: no column {' or '.join(task.first)} among {', '.join(map(repr, fields[:8]))}; give the file "
        f"of {task.folder} as it is distributed"
    )


class _Places:
    """Where the columns of a file are, and how a row becomes an example."""

    def __init__(self, task: Task, columns: Sequence[str], split: Split, path: Path) -> None:
        self.task, self.path, self.count = task, path, len(columns)
        self.is_open = task.more_columns and tuple(columns) == task.headerless
        self.first, self.second = self._place(columns, task.first), self._place(columns, task.second)
        self.id = self._place(columns, ("index", "id", "idx"))
        self.label = None if split == "test" else self._place(columns, task.label)
        self.ids = [self._place(columns, (name,)) for name in ("#1 ID", "#2 ID")]
        self.dev, self.split = _dev_ids(path) if path.name == MICROSOFT else None, split
        if task.second and self.second is None:
            raise InputError(
                f"{path}: line 1: no column {' or '.join(task.second)}; give the file as it is distributed"
            )

    @staticmethod
    def _place(columns: Sequence[str], names: Sequence[str]) -> int | None:
        return next((columns.index(name) for name in names if name in columns), None)

    def fault(self, fields: Sequence[str]) -> str:
        """Return what is wrong with a row, in words; "" if nothing is."""
        if len(fields) != self.count and not (self.is_open and len(fields) > self.count):
            return f"{len(fields)} columns, not {self.count}"
        for place in (self.first, self.second):
            if place is not None and not fields[place].strip():
                return f"the text in column {place + 1} is empty"
        return ""

    def has_no_label(self, fields: Sequence[str]) -> bool:
        """Return whether a row has no label: SNLI writes "-" for it, `datasets` -1."""
        return self.label is not None and bool(self.task.numbers) and fields[self.label] in ("-", "-1")

    def is_in_split(self, fields: Sequence[str]) -> bool:
        """Return whether a row belongs to the split; only MRPC's original file has rows of two splits."""
        if self.dev is None:
            return True
        ids = tuple(fields[place] for place in self.ids if place is not None)
        return (ids in self.dev) == (self.split == "dev")

    def example(self, fields: Sequence[str], row: int, line: int) -> TextExample:
        """Return the example of a row without fault."""
        assert self.first is not None, "the header or the layout has the column"
        return TextExample(
            id=str(row) if self.id is None else fields[self.id],
            first=fields[self.first],
            second=None if self.second is None else fields[self.second],
            label=None if self.label is None else self._label(fields[self.label], line),
        )

    def _label(self, text: str, line: int) -> str | float:
        if self.task.regression:
            try:
                value = float(text)
            except ValueError:
                value = float("nan")
            if not 0 <= value <= 5:
                raise InputError(f"{self.path}: line {line}: the score {text!r} is not a number from 0 to 5")
            return value
        if text.isdecimal() and int(text) < len(self.task.numbers):
            return self.task.numbers[int(text)]
        if text not in self.task.labels:
            choices = ", ".join(self.task.labels)
            raise InputError(f"{self.path}: line {line}: the label {text!r} is not one of {choices}")
        return text
