"""The configuration of a fine-tuning run: the sections of bert/core/config.py, and what the examples of a task need."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from bert.core import ranges
from bert.core.config import CountOrNone, FineTuneConfig, Size
from bert.core.errors import UsageError
from bert.core.ranges import Range, Share

Windows = Literal["first", "mean", "max"]
Loss = Literal["contrastive", "cosine", "cosent", "tsdae"]
SCORED: tuple[Loss, ...] = ("cosine", "cosent")
Temperature = Annotated[float, Range(0, 1e3, above=True)]
EMBED = "embed"  # the task of embeddings


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
    """of your own files: the column of the text, or the two columns of a pair; of embed: of a text, of the one to find
    by it, and of any number of others that are not to be found; a single column is paired with itself (SimCSE)"""
    label: str = "label"
    """of your own files: the column of the label; of multilabel: of a list of labels, or of their names in a text; of
    embed: of the score of scored pairs"""
    separator: str = ","
    """of multilabel: what stands between the names of labels in a text"""
    label_columns: tuple[str, ...] = ()
    """of multilabel: a column of 0 and 1 for each label, instead of data.label; -1 where it is not known"""
    word: str | None = None
    """of tags: the column of the word, by number from 0 or by name; default: the first, or `tokens` of rows"""
    tag: str | None = None
    """of tags: the column of the tag, by number or by name; default: the last, or `ner_tags` of rows"""
    tag_names: tuple[str, ...] = ()
    """of tags: their names in order, where rows of .jsonl or .parquet have numbers, such as O B-PER I-PER"""
    positive: tuple[str, ...] = ()
    """of your own files: the classes that F1 is computed over, such as the relations of ChemProt without `false`"""
    where: tuple[str, ...] = ()
    """of your own files: read only the rows that have these values, such as language=de in XNLI"""
    levels: tuple[Literal["middle", "high"], ...] = ("middle", "high")
    """of RACE: the parts to train on and to score"""
    entities: bool = True
    """of tags: whether they mark entities (B-PER, I-PER, O), which F1 scores; false scores each tag by itself"""
    vocab: Path | None = None
    """vocab.txt, or tokenizer.json of RoBERTa or XLM-RoBERTa; default: that of init.checkpoint"""
    length: Size = 128
    """tokens of an input, special tokens included; longer texts are cut, longer sentences are divided into windows"""
    first_length: CountOrNone = 0
    """tokens to keep of the first text of a pair; 0: all that fit. What is too long is then cut from the longer text"""
    windows: Windows = "first"
    """of single texts that are too long: first cuts them; mean and max read all windows, as samples of their own in
    training, and take the mean or the maximum of their logits"""
    stride: Size = 64
    """tokens between the starts of two windows of a text or a sentence that is too long"""
    limit: CountOrNone = 0
    """number of training examples to use, from the first on; 0: all"""
    class_weights: Literal["equal", "balanced"] = "equal"
    """balanced: weight a class by the inverse of its frequency, so that rare ones count as much as frequent ones; of
    multilabel: weight the texts that have a label by the number of the others per text that has it"""
    loss: Loss = "contrastive"
    """of embed: contrastive finds the second text by the first among those of the whole batch; of scored pairs, cosine
    is the squared error of the cosine, and cosent learns the order of the scores; of texts alone, tsdae writes a text
    from the embedding of what is left of it when words are deleted"""
    deleted: Share = 0.6
    """of embed, tsdae: share of the words that are deleted, in the records, so each time the same ones"""
    temperature: Temperature = 0.05
    """of embed, contrastive and cosent: what the cosines are divided by"""
    both_directions: bool = False
    """of embed, contrastive: also find the first text by the second; the loss is the mean of both"""
    score_scale: Annotated[float, Range(0, 1e6, above=True)] = 1.0
    """of embed, cosine: the score of texts whose cosine is to be 1, such as 5 in STS-B"""
    dimensions: tuple[Size, ...] = ()
    """of embed: numbers of first components that are embeddings, too; the loss is summed over them (Matryoshka)"""
    pool: Literal["mean", "cls", "max"] | None = None
    """of embed: pooling of the last states of a text; default: that of init.checkpoint, or mean"""
    normalize: bool = True
    """of embed: whether the trained model gives vectors of length 1; no loss depends on it"""
    projection: bool = False
    """of embed: a dense layer with tanh on the embeddings, in training only, as in SimCSE"""
    dev_text: tuple[str, ...] = ("sentence1", "sentence2")
    """of embed: the two columns of text in scored pairs for development, if training has no scores"""
    strict: bool = False
    """fail at the first malformed example; false leaves malformed ones out, and reports them"""

    def __post_init__(self) -> None:
        ranges.check(self, "data.")
        if not 1 <= len(self.text) <= 2 and (self.task != EMBED or not self.text):
            raise UsageError(
                f"--data.text names {len(self.text)} columns; give one, or two for pairs of texts (more are for "
                f"data.task {EMBED})"
            )
        if len(self.dev_text) != 2:
            raise UsageError(f"--data.dev_text names {len(self.dev_text)} columns; give the two of a pair of texts")
        if not self.separator:
            raise UsageError("--data.separator is empty; give what stands between two labels, or a list in JSON")
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
