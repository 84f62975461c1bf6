"""One's own files of texts in tables: classes, numbers, and any number of labels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tasks import tables
from tasks.classification import Classification
from tasks.config import TaskData
from tasks.examples import Skipped, TextExample
from tasks.known import KnownData, Split
from tasks.label_sets import LabelSets
from tasks.multilabel import MultiLabel

LABELS = ("average_precision", "roc_auc", "micro_f1", "macro_f1", "samples_f1", "accuracy")


def table(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[TextExample]:
    """Yield the examples of a table with a column of labels."""
    label = None if split == "test" else data.label
    regression = data.task == "regress"
    return tables.read(
        path, data.text, label, regression=regression, skipped=skipped, where=tables.conditions(data.where)
    )


def _label_sets(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[TextExample]:
    several = LabelSets(label=data.label, separator=data.separator, each=data.label_columns)
    return tables.read(
        path,
        data.text,
        None,
        regression=False,
        skipped=skipped,
        where=tables.conditions(data.where),
        several=None if split == "test" else several,
    )


CLASSIFY = KnownData(kind=Classification, read=table, files={}, columns=True, metrics=("accuracy", "macro_f1"))
REGRESS = replace(CLASSIFY, metrics=("pearson", "spearman"), regression=True)
MULTILABEL = KnownData(kind=MultiLabel, read=_label_sets, files={}, columns=True, metrics=LABELS, label="labels")
