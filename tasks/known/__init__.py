"""What is said of a data set that is known by its name: its kind of task, files, labels and metrics.

The data sets are in the modules of this folder, which tasks/datasets.py names: a run imports what it reads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tasks.config import TaskData
from tasks.examples import Skipped
from tasks.stored import StoredKind

Split = Literal["train", "dev", "test"]
Reader = Callable[[TaskData, Path, Split, Skipped], Iterator[Any]]


def _none(path: Path) -> None:
    """Return None: no other file belongs to a file."""


@dataclass(frozen=True, kw_only=True)
class KnownData:
    """A data set, or a layout of one's own files."""

    kind: type[StoredKind]
    read: Reader
    """yields the examples of one of the files; the labels of split `test` are not read"""
    files: dict[Split, dict[str, str]]
    """for each split its files in `data.folder`, by the name of their scores; the first one counts in training"""
    originals: dict[Split, str] = field(default_factory=dict)
    """files that stand for a split where its own is missing"""
    metrics: tuple[str, ...]
    """the one by which checkpoints are compared first"""
    labels: tuple[str, ...] = ()
    """in the order of the logits; empty if they are found in the training examples"""
    pairs: bool = False
    """whether an example of a data set with files is a pair of texts"""
    columns: bool = False
    """whether it is a table whose columns the settings choose"""
    regression: bool = False
    """whether the label is a number"""
    label: str = "label"
    """the usual column of the label in one's own files"""
    beside: Callable[[Path], Path | None] = _none
    """returns a file that belongs to one with examples, if there is one"""
    folder: str = ""
    """name of the data set's folder, if several are in one folder"""
