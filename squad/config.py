"""What a fine-tuning run is, as frozen dataclasses: the sections of bert/config.py, and those that questions need."""

from dataclasses import dataclass, field
from pathlib import Path

from bert.config import BatchConfig, BudgetConfig, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How a question and its passage are cut into windows."""

    max_seq_length: int = 384
    """Positions of a window, special tokens and padding included."""
    doc_stride: int = 128
    """Passage tokens between the starts of two windows."""
    max_query_length: int = 64
    """Question tokens that are kept."""

    def __post_init__(self) -> None:
        for name in ("doc_stride", "max_query_length"):
            if getattr(self, name) < 1:
                raise UsageError(f"windows.{name} must be positive, not {getattr(self, name)}")
        needed = self.max_query_length + 4  # [CLS], two [SEP], and one token to read
        if self.max_seq_length < needed:
            raise UsageError(
                f"windows.max_seq_length is {self.max_seq_length}; windows.max_query_length {self.max_query_length} "
                f"needs {needed} at least"
            )


@dataclass(frozen=True, kw_only=True)
class SquadData:
    """Where the questions come from."""

    train_file: Path = Path()
    """SQuAD training set, .json or .jsonl or compressed as .gz, .bz2, .xz"""
    impossible: bool = True
    """learn from impossible questions, where the set has them, that there may be no answer; false leaves them out"""
    strict: bool = False
    """fail at the first malformed question; false names them and leaves them out"""
    vocab: Path | None = None
    """vocab.txt; by default that of init.checkpoint"""


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """Where weights come from; to be said, since random ones are rarely meant."""

    checkpoint: Path | None = Path()
    """run directory whose newest checkpoint gives the encoder; none starts from random weights"""


@dataclass(frozen=True, kw_only=True)
class EpochConfig:
    """The run's length in terms of its data."""

    epochs: float = 2.0
    """passes over the training windows, where run.steps is 0"""
    warmup: float = 0.1
    """part of the updates over which the learning rate rises, where optimizer.warmup_steps is 0"""

    def __post_init__(self) -> None:
        if self.epochs <= 0 or not 0 <= self.warmup < 1:
            raise UsageError(f"epochs {self.epochs} must be positive and warmup {self.warmup} in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class SquadConfig:
    """A fine-tuning run."""

    model: ModelConfig
    """architecture, where no checkpoint gives one"""
    data: SquadData = field(default_factory=SquadData)
    """questions"""
    windows: Windowing = field(default_factory=Windowing)
    """model input"""
    length: EpochConfig = field(default_factory=EpochConfig)
    """length of the run"""
    batch: BatchConfig
    """sizes"""
    optimizer: OptimizerConfig
    """learning"""
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    """arithmetic"""
    run: RunConfig = field(default_factory=RunConfig)
    """bookkeeping"""
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    """time"""
    init: StartConfig = field(default_factory=StartConfig)
    """starting weights"""

    def __post_init__(self) -> None:
        if self.batch.pack:
            raise UsageError(
                "batch.pack is for pretraining; windows of like length are grouped by batch.bucket_by_length"
            )
