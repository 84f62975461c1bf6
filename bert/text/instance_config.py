"""How instances of pretraining are paired, truncated and masked, and whether their pairs have one label only."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from bert.core import ranges

FeatureSpec = dict[str, dict[str, Any]]  # name -> {"shape": [...], "dtype": "int64" | "float32"}

SPECIAL_PER_PAIR = 3  # [CLS] a [SEP] b [SEP]
MASK_SHARES = (0.8, 0.1, 0.1)  # of the selected tokens, as published: [MASK], a random token, unchanged


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceConfig:
    """How instances are paired, truncated and masked."""

    max_seq_length: int
    max_predictions_per_seq: int
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    whole_word_mask: bool = False
    max_ngram: int = 1
    pairs: Literal["nsp", "sop", "none"] = "nsp"
    single_sentences: bool = False
    """each instance is [CLS] a [SEP], one sentence, instead of two segments"""
    one_segment: bool = False
    """each instance is [CLS] a [SEP], consecutive sentences, for models without segments"""
    mask_shares: tuple[float, ...] = MASK_SHARES
    """of the selected tokens, those that become [MASK], a random token, or stay as they are"""

    def __post_init__(self) -> None:
        if not ranges.are_parts(self.mask_shares, 3):
            raise ValueError(f"mask_shares {self.mask_shares} are not three shares that add up to 1")
        if self.one_segment and self.pairs != "none":
            raise ValueError(f"pairs {self.pairs} needs two segments")

    @property
    def undivided(self) -> bool:
        """Whether an instance has one segment."""
        return self.single_sentences or self.one_segment

    @property
    def max_text(self) -> int:
        """Maximum tokens of both segments together, or of the only one."""
        return self.max_seq_length - SPECIAL_PER_PAIR + self.undivided

    @property
    def fewest(self) -> int:
        """Minimum number of sentences in a chunk; a shorter document has fewer."""
        return 1 if self.one_segment else 2


def only_label(counts: Mapping[str, int]) -> int | None:
    """Return the next-sentence label that all pairs of a split have; None if both labels occur, or if it is unknown.

    counts: the counts of the split in its manifest. Label 1 needs a second segment from another document. So chunks of
    a single document give label 0 only.
    """
    if "chunks" in counts:
        return 0 if counts.get("documents") == 1 else None
    ones = counts.get("pairs_of_label_1")
    if ones == 0:
        return 0
    return 1 if ones is not None and ones == counts.get("instances") else None
