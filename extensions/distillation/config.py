"""The settings of distillation: which teacher, and what is learned from it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bert.core import ranges
from bert.core.cli import Stored
from bert.core.errors import require
from bert.core.model_config import ModelConfig
from bert.core.ranges import Range, Share

Factor = Annotated[float, Range(0, 1e6)]
DISTANCES = ("cosine", "hidden", "attention", "relations")  # losses that compare the layers of a model and a teacher


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Distillation: what a model learns of a trained one, of its outputs (Hinton et al. 2015) and of its layers."""

    teacher: Stored[Path | None] = None
    """run directory of a teacher, whose probabilities the model learns beside the labels; none: no distillation"""
    temperature: Annotated[float, Range(0, 1000, above=True)] = 2.0
    """logits of both are divided by it before the softmax; higher ones show more of what the teacher thinks unlikely"""
    weight: Share = 0.5
    """share w of the teacher in the loss (1 - w) L + w T^2 KL, where L is the usual loss and T the temperature"""
    outputs: Factor = 1.0
    """factor of that loss; 0, in pretraining: learn the teacher's layers alone, without labels and heads"""
    cosine: Factor = 0.0
    """factor of 1 - cosine of the last hidden states and the teacher's, as in DistilBERT; 0: without"""
    hidden: Factor = 0.0
    """factor of the mean square error of the hidden states of the embeddings and of each layer, projected if their
    widths differ, as in TinyBERT; 0: without"""
    attention: Factor = 0.0
    """factor of the mean square error of the attention scores of each layer before the softmax, as in TinyBERT; 0:
    without"""
    relations: Factor = 0.0
    """factor of the divergence of the last layer's relations between queries, keys and values, as in MiniLMv2; 0:
    without"""
    layers: tuple[Annotated[int, Range(0, 999)], ...] = ()
    """hidden, attention: the teacher's layer, from 0, for each layer of the model; default: evenly spread, with the
    last one for the last"""
    relation_layer: Annotated[int, Range(0, 999)] | None = None
    """relations: layer of the teacher, from 0; none: its last one"""
    relation_heads: Annotated[int, Range(0, 65_536)] = 0
    """relations: number of heads into which queries, keys and values of both are divided; 0: as many as the teacher's
    attention has"""

    def __post_init__(self) -> None:
        ranges.check(self, "distill.")
        require(
            self.outputs > 0 or bool(self.distances),
            "distill.outputs 0 leaves nothing to learn; give --distill.relations, hidden, attention or cosine",
        )
        of_layers = self.layers and not (self.hidden or self.attention)
        require(not of_layers, "distill.layers has no effect without distill.hidden or attention; leave it out")
        for name, given in (("layer", self.relation_layer is not None), ("heads", self.relation_heads > 0)):
            require(
                not given or bool(self.relations),
                f"distill.relation_{name} has no effect without distill.relations; leave it out",
            )

    @property
    def distances(self) -> dict[str, float]:
        """Return the losses of the layers, by name, with their factors."""
        return {name: getattr(self, name) for name in DISTANCES if getattr(self, name)}

    @property
    def has_soft_labels(self) -> bool:
        """Return whether the teacher's outputs are learned, for which it needs the head of the model."""
        return self.outputs > 0 and self.weight > 0

    @property
    def needs_last_states(self) -> bool:
        """Return whether all hidden states of the last layer are compared."""
        return bool(self.cosine or self.hidden)

    def teacher_layers(self, student: ModelConfig, teacher: ModelConfig) -> tuple[int, ...]:
        """Return the teacher's layer, from 0, for each layer of the student."""
        step = teacher.num_hidden_layers // student.num_hidden_layers
        return self.layers or tuple(step * (number + 1) - 1 for number in range(student.num_hidden_layers))

    def relation(self, teacher: ModelConfig) -> tuple[int, int]:
        """Return the teacher's layer, from 0, whose relations are learned, and the number of relation heads."""
        last = teacher.num_hidden_layers - 1
        layer = last if self.relation_layer is None else self.relation_layer
        return layer, self.relation_heads or teacher.num_attention_heads

    def layers_used(self, student: ModelConfig, teacher: ModelConfig) -> int:
        """Return how many of the teacher's layers are computed."""
        if self.has_soft_labels or self.cosine:
            return teacher.num_hidden_layers
        of_layers = self.teacher_layers(student, teacher) if self.hidden or self.attention else ()
        of_relations = (self.relation(teacher)[0],) if self.relations else ()
        return 1 + max((*of_layers, *of_relations), default=-1)

    def projects(self, student: ModelConfig, teacher: ModelConfig) -> bool:
        """Return whether a projection of the student's hidden states is learned."""
        return self.hidden > 0 and student.hidden_size != teacher.hidden_size

    def check_fit(self, student: ModelConfig, teacher: ModelConfig) -> None:
        """Raise UsageError if a loss of the layers cannot be computed with these two models."""
        ours, theirs = student.num_hidden_layers, teacher.num_hidden_layers
        require(not (self.distances and teacher.causal), "is a causal model, whose layers are not compared")
        if self.hidden or self.attention:
            mapped = self.teacher_layers(student, teacher)
            require(
                bool(self.layers) or theirs % ours == 0,
                f"its {theirs} layers are no multiple of the model's {ours}; give --distill.layers",
            )
            require(
                len(mapped) == ours, f"distill.layers has {len(mapped)} layers, the model {ours}; give one for each"
            )
            require(max(mapped) < theirs, f"distill.layers {max(mapped)}: it has the layers 0 to {theirs - 1}")
        require(
            not self.cosine or student.hidden_size == teacher.hidden_size,
            f"distill.cosine needs equal widths, but the model has {student.hidden_size} and the teacher "
            f"{teacher.hidden_size}; give distill.hidden, which projects",
        )
        heads = student.num_attention_heads, teacher.num_attention_heads
        require(
            not self.attention or heads[0] == heads[1],
            f"distill.attention needs equal heads, but the model has {heads[0]} and the teacher {heads[1]}; give "
            "distill.relations",
        )
        require(
            not (self.attention and (student.local_window or teacher.local_window)),
            "distill.attention needs layers that attend to all tokens; give distill.relations",
        )
        if self.relations:
            layer, count = self.relation(teacher)
            require(layer < theirs, f"distill.relation_layer {layer}: it has the layers 0 to {theirs - 1}")
            for width in (student.hidden_size, teacher.hidden_size):
                require(
                    width % count == 0,
                    f"{count} relation heads do not divide the width {width}; give --distill.relation_heads",
                )

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Yield each field that has no effect, with the reason and the remedy."""
        if self.teacher is None:
            for name in ("temperature", "weight", "outputs"):
                yield f"distill.{name}", "has no effect without distill.teacher; give --distill.teacher RUN"
        if self.outputs == 0 < self.weight:
            yield "distill.weight", "has no effect with distill.outputs 0; leave it out"
        if not self.has_soft_labels:
            yield "distill.temperature", "has no effect where the teacher's outputs are not learned; leave it out"
