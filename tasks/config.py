"""The configuration of a fine-tuning run: the sections of bert/config.py, and what the examples of a task need."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bert import ranges
from bert.config import CountOrNone, FineTuneConfig, Size
from bert.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """The examples."""

    task: str = ""
    """data set, one of tasks/datasets.py; recipes set it"""
    folder: Path | None = None
    """folder of the data set as it is distributed; train and dev are read from it"""
    train: Path | None = None
    """training examples, instead of those of data.folder"""
    dev: Path | None = None
    """examples to score during training, instead of those of data.folder"""
    text: tuple[str, ...] = ("text",)
    """of your own files: the column of the text, or the two columns of a pair"""
    label: str = "label"
    """of your own files: the column of the label"""
    positive: tuple[str, ...] = ()
    """of your own files: the classes that F1 is computed over, such as the relations of ChemProt without `false`"""
    where: tuple[str, ...] = ()
    """of your own files: read only the rows that have these values, such as language=de in XNLI"""
    levels: tuple[Literal["middle", "high"], ...] = ("middle", "high")
    """of RACE: the parts to train on and to score"""
    entities: bool = True
    """of tags: whether they mark entities (B-PER, I-PER, O), which F1 scores; false scores each tag by itself"""
    vocab: Path | None = None
    """vocab.txt, or tokenizer.json of RoBERTa; default: that of init.checkpoint"""
    length: Size = 128
    """tokens of an input, special tokens included; longer texts are cut, longer sentences are divided into windows"""
    first_length: CountOrNone = 0
    """tokens to keep of the first text of a pair; 0: all that fit. What is too long is then cut from the longer text"""
    stride: Size = 64
    """tokens between the starts of two windows of a sentence that is too long to be tagged at once"""
    limit: CountOrNone = 0
    """number of training examples to use, from the first on; 0: all"""
    class_weights: Literal["equal", "balanced"] = "equal"
    """balanced: weight a class by the inverse of its frequency, so that rare ones count as much as frequent ones"""
    strict: bool = False
    """fail at the first malformed example; false leaves malformed ones out, and reports them"""

    def __post_init__(self) -> None:
        ranges.check(self, "data.")
        if not 1 <= len(self.text) <= 2:
            raise UsageError(f"--data.text names {len(self.text)} columns; give one, or two for pairs of texts")
        if wrong := [condition for condition in self.where if "=" not in condition]:
            raise UsageError(f"--data.where {wrong[0]}: not COLUMN=VALUE")
        if self.first_length and self.first_length + 4 > self.length:  # [CLS], two [SEP], and one token to read
            raise UsageError(
                f"data.length is {self.length}; data.first_length {self.first_length} needs "
                f"{self.first_length + 4} at least"
            )


@dataclass(frozen=True, kw_only=True)
class TaskConfig(FineTuneConfig):
    """A fine-tuning run on examples of a task."""

    data: TaskData = field(default_factory=TaskData)
    """examples"""
