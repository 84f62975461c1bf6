"""The configuration of a run on SQuAD: the sections of bert/core/config.py, and those that questions need."""

from dataclasses import dataclass, field
from pathlib import Path

from bert.core import ranges
from bert.core.config import CountOrNone, FineTuneConfig, Size
from bert.core.errors import UsageError
from squad.languages import Language


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How a question and its passage are divided into windows."""

    max_seq_length: Size = 384
    """tokens of a window, special tokens and padding included"""
    doc_stride: Size = 128
    """passage tokens between the starts of two windows"""
    max_query_length: Size = 64
    """question tokens to keep"""

    def __post_init__(self) -> None:
        ranges.check(self, "windows.")
        needed = self.max_query_length + 4  # [CLS], two [SEP], and one token to read
        if self.max_seq_length < needed:
            raise UsageError(
                f"windows.max_seq_length is {self.max_seq_length}; windows.max_query_length {self.max_query_length} "
                f"needs {needed} at least"
            )


@dataclass(frozen=True, kw_only=True)
class SquadData:
    """The questions."""

    train_file: Path | None = None
    """SQuAD training set, .json or .jsonl, or compressed as .gz, .bz2, .xz; .parquet, or a folder of it"""
    dev_file: Path | None = None
    """SQuAD development set to score during training; the checkpoint with the best F1 is then kept"""
    language: Language | None = None
    """score the development set by the rules of MLQA for this language; auto finds it; default: SQuAD's rules"""
    limit: CountOrNone = 0
    """number of training questions to use, from the first on; 0: all"""
    impossible: bool = True
    """train on impossible questions, if the set has any, to predict that there is no answer; false leaves them out"""
    strict: bool = False
    """fail at the first malformed question; false reports malformed questions and leaves them out"""
    vocab: Path | None = None
    """vocab.txt, or tokenizer.json of RoBERTa or XLM-RoBERTa; default: that of init.checkpoint"""

    def __post_init__(self) -> None:
        ranges.check(self, "data.")


@dataclass(frozen=True, kw_only=True)
class SquadConfig(FineTuneConfig):
    """A fine-tuning run on questions."""

    data: SquadData = field(default_factory=SquadData)
    """questions"""
    windows: Windowing = field(default_factory=Windowing)
    """model input"""
