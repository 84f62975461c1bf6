"""The table of names has every variable, with its shape and its place in each format."""

import dataclasses
from pathlib import Path

import pytest

from bert.convert import __main__ as convert
from bert.convert import names
from bert.core.config import ModelConfig
from bert.model.encoder import variables
from bert.model.heads import MultiLabel
from bert.recipes import SIZES
from tests.bert.convert.folders import (
    DEEP,
    LAYER,
    SMALL,
    models,
    same_bits,
    their_folder,
    weights,
)


@pytest.mark.parametrize("config", [SMALL, DEEP, dataclasses.replace(SIZES["tiny"], vocab_size=997)])
def test_the_table_has_every_variable_with_its_shape(config: ModelConfig) -> None:
    table = [*names.encoder(config), *(weight for head in names.heads(config, 3).values() for weight in head)]
    built = [variables(module) for module in (*models(config).values(), MultiLabel(config, 0, 3))]
    assert {weight.ours: weight.shape for weight in table} == {
        name: tuple(variable.shape) for module in built for name, variable in module.items()
    }
    other: dict[names.Form, list[str]] = {"google": names.NOT_GOOGLE, "huggingface": ["multilabel", "choice", "tags"]}
    for form, same in other.items():  # heads without a name, and those that are also called `classifier`
        named = [weight.name(form) for weight in table if weight.ours.split("/")[0] not in same]
        assert len(set(named)) == len(named)


def test_kernels_are_transposed_and_nothing_else_is(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    convert.main(["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")])
    ours = weights(tmp_path / "run")
    assert len(ours) == len(tensors)
    same_bits({"word": ours["embeddings/word"]}, {"word": tensors["embeddings.word_embeddings.weight"]})
    for number in range(SMALL.num_hidden_layers):
        for module, (here, _) in LAYER.items():
            leaf, bias = ("gamma", "beta") if "Norm" in module else ("kernel", "bias")
            value = tensors[f"encoder.layer.{number}.{module}.weight"]
            same_bits(
                {leaf: ours[f"layer_{number}/{here}/{leaf}"], bias: ours[f"layer_{number}/{here}/{bias}"]},
                {leaf: value.T, bias: tensors[f"encoder.layer.{number}.{module}.bias"]},
            )
