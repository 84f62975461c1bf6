"""The table of weights has what real models have, and nothing else."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from bert import heads
from bert.core.config import LoraConfig, ModelConfig, ObjectiveConfig
from bert.labels import Head
from bert.model import weights
from bert.model.added import has_terms
from bert.model.encoder import variables
from bert.model.heads import TaskHead
from bert.model.model_shard import Parts
from bert.pretraining import PretrainingModel
from extensions.lora.model import SCALE, adapt
from extensions.replaced_tokens.model import ReplacedTokensModel
from tests.bert.model.test_encoder import MODERN, NEO

SMALL = ModelConfig(
    vocab_size=98,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=28,
    max_position_embeddings=17,
)
LAYER = {  # of SMALL: shape, axis that devices divide, whether it decays
    "attention/key/bias": ((24,), -1, False),
    "attention/key/kernel": ((24, 24), -1, True),
    "attention/layer_norm/beta": ((24,), None, False),
    "attention/layer_norm/gamma": ((24,), None, False),
    "attention/output/bias": ((24,), None, False),
    "attention/output/kernel": ((24, 24), 0, True),
    "attention/query/bias": ((24,), -1, False),
    "attention/query/kernel": ((24, 24), -1, True),
    "attention/value/bias": ((24,), -1, False),
    "attention/value/kernel": ((24, 24), -1, True),
    "mlp/inner/bias": ((28,), -1, False),
    "mlp/inner/kernel": ((24, 28), -1, True),
    "mlp/layer_norm/beta": ((24,), None, False),
    "mlp/layer_norm/gamma": ((24,), None, False),
    "mlp/outer/bias": ((24,), None, False),
    "mlp/outer/kernel": ((28, 24), 0, True),
}
OTHERS = {
    "embeddings/layer_norm/beta": ((24,), None, False),
    "embeddings/layer_norm/gamma": ((24,), None, False),
    "embeddings/position": ((17, 24), None, True),
    "embeddings/segment": ((2, 24), None, True),
    "embeddings/word": ((98, 24), 0, True),
    "masked_lm/bias": ((98,), 0, False),
    "masked_lm/layer_norm/beta": ((24,), None, False),
    "masked_lm/layer_norm/gamma": ((24,), None, False),
    "masked_lm/transform/bias": ((24,), None, False),
    "masked_lm/transform/kernel": ((24, 24), None, True),
    "next_sentence/bias": ((2,), None, False),
    "next_sentence/kernel": ((24, 2), None, True),
    "pooler/bias": ((24,), None, False),
    "pooler/kernel": ((24, 24), None, True),
}
KINDS: list[dict[str, Any]] = [{}, {"norm_placement": "pre"}, {"embedding_size": 12, "biases": False}, MODERN, NEO]


def test_variables_of_bert_are_the_published_ones() -> None:
    expected = OTHERS | {f"layer_{layer}/{name}": facts for layer in (0, 1) for name, facts in LAYER.items()}
    found = variables(PretrainingModel(SMALL, seed=1))
    assert {
        name: (tuple(weight.shape), weights.axis_of(name), weights.decays(name)) for name, weight in found.items()
    } == expected
    depths = {name: weights.depth(name) for name in found}
    assert {name for name, depth in depths.items() if depth == 0} == {n for n in OTHERS if n.startswith("embeddings/")}
    assert {name for name, depth in depths.items() if depth == 2} == {f"layer_1/{name}" for name in LAYER}
    assert {name for name in found if not weights.in_encoder(name)} == {n for n in OTHERS if "embeddings" not in n}


@pytest.mark.parametrize("changes", KINDS)
def test_a_model_makes_every_weight_of_the_table(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    made = {name: tuple(weight.shape) for name, weight in variables(PretrainingModel(config, seed=1)).items()}
    assert made == {weight.name: weight.shape for weight in weights.pretrained(config)}
    assert sum(map(np.prod, made.values())) == weights.count(weights.pretrained(config))


@pytest.mark.parametrize("kind", heads.KINDS)
def test_heads_of_tasks_make_every_weight_of_the_table(kind: str) -> None:
    made = variables(TaskHead(SMALL, 1, Head(kind=kind, labels=("a", "b", "c"))))
    table = [
        *weights.head(kind, SMALL, outputs=3),
        *(weights.head("pooler", SMALL) if heads.KINDS[kind].pooled else ()),
    ]
    assert {name: tuple(weight.shape) for name, weight in made.items()} == {w.name: w.shape for w in table}
    assert made[f"{kind}/kernel"].shape == [24, heads.KINDS[kind].outputs or 3]


def test_both_models_of_replaced_tokens_make_every_weight_of_the_table() -> None:
    config = dataclasses.replace(SMALL, embedding_size=12)
    generator = ObjectiveConfig(name="replaced_tokens", generator_width=0.75).further(config)
    assert generator is not None
    part = Parts(0, 2, lambda x, name: x)
    made = variables(ReplacedTokensModel(config, generator, 1, part))
    table = list(weights.pretrained(config, generator))
    assert made.keys() == {weight.name for weight in table}
    assert {name: tuple(shape) for name, shape in part.whole_shapes.items()} == {
        weight.name: weight.shape for weight in table if weight.axis is not None
    }


def test_matrices_of_updates_are_divided_as_their_kernels_are() -> None:
    model = PretrainingModel(dataclasses.replace(SMALL, gated=True), seed=1)
    targets: tuple[Any, ...] = ("query", "key", "value", "output", "inner", "gate", "outer")
    adapt(model.encoder, LoraConfig(rank=3, targets=targets), seed=1)
    names = [name for name in variables(model) if "/lora_" in name and not name.endswith(SCALE)]
    assert len(names) == 2 * 2 * len(targets) and all(map(weights.decays, names))
    for name in names:
        of_rows = any(part in name for part in ("attention/output", "mlp/outer"))
        axis = 0 if of_rows and name.endswith("_a") else -1 if not of_rows and name.endswith("_b") else None
        assert weights.axis_of(name) == axis and has_terms(name) == (axis is None), name


def test_names_that_are_no_weight_of_the_encoder() -> None:
    for name in ("adam_m/layer_0/mlp/inner/kernel", "generator/layer_0/mlp/inner/kernel", "embedding/kernel", "", "\n"):
        assert weights.depth(name) == float("inf") and not weights.in_encoder(name), name
    assert weights.in_encoder("final/layer_norm/gamma") and weights.depth("final/layer_norm/gamma") == float("inf")
    assert weights.num_layers(["embeddings/word", "layer_10/mlp/inner/kernel", "pooler/kernel"]) == 11
    assert (
        weights.decays("distillation/projection/kernel") and weights.axis_of("distillation/projection/kernel") is None
    )
    with pytest.raises(ValueError, match="variable a/table: no row"):
        weights.decays("a/table")


@pytest.mark.parametrize(("kind", "axes"), [("vector", "D"), ("norm", "D"), ("table", "VD"), ("dense", "DD")])
def test_the_initial_value_of_a_row_is_that_of_its_first_variable(kind: Any, axes: str) -> None:
    first, *others = weights.of_part(weights.Part("part", kind, axes, initial="residual"), ModelConfig(vocab_size=7))
    assert first.initial == "residual" and all(other.initial == "zeros" for other in others)
