"""What a model learns from masked samples: masked words, or replaced tokens with the settings of the generator."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from bert.core import ranges
from bert.core.errors import require
from bert.core.model_config import ModelConfig
from bert.core.objectives import OBJECTIVES
from bert.core.ranges import NameIn, Range

if TYPE_CHECKING:
    from bert.core.config import PretrainConfig


NAME = "replaced_tokens"


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What a model that is not causal learns from masked samples."""

    name: Annotated[str, NameIn(OBJECTIVES)] = "masked_words"
    """masked_words as in BERT; replaced_tokens as in ELECTRA: a small generator learns masked words, and the model
    learns which tokens the generator replaced; it needs data without an objective on pairs"""
    generator_width: Annotated[float, Range(0, 1, above=True)] = 0.25
    """replaced_tokens: width of the generator, its heads and its feed-forward layers, as shares of the model's"""
    generator_layers: Annotated[float, Range(0, 1, above=True)] = 1.0
    """replaced_tokens: layers of the generator, as a share of the model's"""
    detection_weight: Annotated[float, Range(0, 1e6, above=True)] = 50.0
    """replaced_tokens: factor of the loss of the detection; that of masked words has 1"""

    def __post_init__(self) -> None:
        ranges.check(self, "objective.")
        if self.name != NAME:
            for each in dataclasses.fields(self)[1:]:
                require(
                    getattr(self, each.name) == each.default,
                    f"objective.{each.name} has no effect without objective.name replaced_tokens; leave it out",
                )

    def further(self, model: ModelConfig) -> ModelConfig | None:
        """Return the architecture of the generator beside a model; None if the objective has none.

        As in google-research/electra, it has the width of the model's heads as long as it is not narrower itself.
        """
        if self.name != NAME:
            return None
        width = max(1, round(model.hidden_size * self.generator_width))
        heads = max(1, width * model.num_attention_heads // model.hidden_size)
        require(
            width % heads == 0,
            f"objective.generator_width {self.generator_width:g}: a generator of width {width} cannot have {heads} "
            "heads; give another share",
        )
        return dataclasses.replace(
            model,
            embedding_size=model.embedding_width,
            hidden_size=width,
            num_attention_heads=heads,
            num_hidden_layers=max(1, round(model.num_hidden_layers * self.generator_layers)),
            intermediate_size=max(1, round(model.intermediate_size * self.generator_width)),
        )

    def check(self, config: "PretrainConfig") -> None:
        """Raise UsageError if a run of these settings cannot have replaced tokens."""
        if self.name != NAME:
            return
        published = config.model.norm_placement == "post" and config.model.position_initializer == "normal"
        require(
            published and not config.model.causal,
            "objective.name replaced_tokens needs model.norm_placement post, model.position_initializer normal, and a "
            "model that is not causal",
        )
        # The backward pass would compute the generator again, in another program: rounding could change a sample.
        require(
            not (config.parallel.overlap and config.precision.xla),
            "parallel.overlap with precision.xla computes a generator twice; with objective.name replaced_tokens give "
            "one of them",
        )
        self.further(config.model)
