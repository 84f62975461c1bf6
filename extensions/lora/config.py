"""The settings of low-rank updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from bert.core import ranges
from bert.core.errors import UsageError
from bert.core.ranges import Range

if TYPE_CHECKING:
    from bert.core.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank updates (Hu et al. 2021): in the encoder they alone learn, and the heads."""

    rank: Annotated[int, Range(0, 4096)] = 0
    """LoRA: add a product of two matrices of this rank to each target's kernel; in the encoder only these learn, beside
    the heads; 0: no LoRA"""
    alpha: Annotated[float, Range(0, 1e6, above=True)] = 16.0
    """the product is multiplied by alpha / rank"""
    targets: tuple[Literal["query", "key", "value", "output", "inner", "gate", "outer"], ...] = ("query", "value")
    """dense layers of each encoder layer: four of the attention, and those of the feed-forward layer"""

    def __post_init__(self) -> None:
        ranges.check(self, "lora.")

    def check(self, config: "TrainConfig") -> None:
        """Raise UsageError if the model or the run cannot have these low-rank updates."""
        if not self.rank:
            return
        init, model = config.init, config.model
        if init.source is None:
            raise UsageError(
                "lora.rank needs --init.checkpoint RUN: the random weights of the encoder would never learn"
            )
        if init.frozen_encoder:
            raise UsageError("init.frozen_encoder leaves nothing for lora.rank to train; leave one of them out")
        if init.frozen_layers == model.num_hidden_layers:
            raise UsageError(
                "init.frozen_layers leaves no layer for lora.rank; lower it, or give --init.frozen_encoder"
            )
        if "gate" in self.targets and not model.gated:
            raise UsageError("lora.targets gate: the feed-forward layers of this model are not gated; leave it out")
        narrowest = model.hidden_size
        if {"inner", "gate", "outer"} & {*self.targets}:
            narrowest = min(narrowest, model.intermediate_size)
        if self.rank > narrowest:
            raise UsageError(f"lora.rank {self.rank} is more than the {narrowest} rows of a kernel; lower it")

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Yield each field that has no effect, with the reason and the remedy."""
        if not self.rank:
            for name in ("alpha", "targets"):
                yield f"lora.{name}", "has no effect without lora.rank, and all weights would learn; give --lora.rank 8"
