"""Checkpoints of TensorFlow 2's model garden, written here as objects, give the weights of the original format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.convert import __main__ as convert
from bert.core.errors import InputError
from tests.bert.convert.folders import SMALL, Values, original, original_folder, same_bits, weights

HEADS, WIDTH = SMALL.num_attention_heads, SMALL.hidden_size // SMALL.num_attention_heads


def backbone() -> Values:
    """The encoder's and the pooler's tensors, by their original names."""
    return {name: value for name, value in original(SMALL).items() if name.startswith("bert/")}


def node(**parts: Any) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(
        **{name: tf.Variable(x) if isinstance(x, np.ndarray) else x for name, x in parts.items()}
    )


def dense(values: Values, name: str, kernel: tuple[int, ...] | None = None, bias: Any = -1) -> tf.train.Checkpoint:
    kernel = kernel or values[f"{name}/kernel"].shape
    return node(kernel=values[f"{name}/kernel"].reshape(kernel), bias=values[f"{name}/bias"].reshape(bias))


def norm(values: Values, name: str) -> tf.train.Checkpoint:
    return node(gamma=values[f"{name}/LayerNorm/gamma"], beta=values[f"{name}/LayerNorm/beta"])


def layer(values: Values, name: str, early: bool) -> tf.train.Checkpoint:
    whole = SMALL.hidden_size
    inner = {
        f"_{part}_dense": dense(values, f"{name}/attention/self/{part}", (whole, HEADS, WIDTH), (HEADS, WIDTH))
        for part in ("query", "key", "value")
    }
    output = dense(values, f"{name}/attention/output/dense", (HEADS, WIDTH, whole))
    outer = {"_attention_output_dense": output} if early else {}
    return node(
        _attention_layer=node(**inner, **({} if early else {"_output_dense": output})),
        _attention_layer_norm=norm(values, f"{name}/attention/output"),
        _intermediate_dense=dense(values, f"{name}/intermediate/dense"),
        _output_dense=dense(values, f"{name}/output/dense"),
        _output_layer_norm=norm(values, f"{name}/output"),
        **outer,
    )


def write(folder: Path, values: Values, form: str = "layers", **more: Any) -> None:
    """The checkpoint beside configuration and vocabulary; form: "early" is of 2020, "named" of BertEncoderV2."""
    early = form == "early"
    original_folder(folder, values)
    for path in folder.glob("bert_model.ckpt*"):
        path.unlink()
    embeddings = "bert/embeddings"
    layers = [
        node(embeddings=values[f"{embeddings}/word_embeddings"]),
        node(embeddings=values[f"{embeddings}/position_embeddings"]),
        node(embeddings=values[f"{embeddings}/token_type_embeddings"]),
        norm(values, embeddings),
        *(layer(values, f"bert/encoder/layer_{n}", early) for n in range(SMALL.num_hidden_layers)),
    ]
    pooler = dense(values, "bert/pooler/dense")
    if not early:
        layers.append(pooler)
    parts = {f"layer_with_weights-{number}": part for number, part in enumerate(layers)}
    if form == "named":
        named = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer", "_embedding_norm_layer")
        attention = node(**{str(number): part for number, part in enumerate(layers[4:-1])})
        parts = dict(zip(named, layers, strict=False)) | {"_transformer_layers": attention, "_pooler_layer": pooler}
    encoder = node(**parts)
    tops: dict[str, Any] = {"next_sentence.pooler_dense": pooler} if early else {}
    tops["masked_lm"] = node(dense=node(kernel=np.ones((20, 20), np.float32)))
    tf.train.Checkpoint(encoder=encoder, **tops, **more).write(str(folder / "bert_model.ckpt"))


@pytest.mark.parametrize("form", ["layers", "early", "named"])
def test_both_formats_give_the_same_weights(form: str, tmp_path: Path) -> None:
    values = backbone()
    original_folder(tmp_path / "original", values)
    write(tmp_path / "objects", values, form)
    for name in ("original", "objects"):
        convert.main(["import", "google", str(tmp_path / name), str(tmp_path / f"from_{name}")])
    same_bits(weights(tmp_path / "from_original"), weights(tmp_path / "from_objects"))


def test_what_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    values = backbone()
    write(tmp_path / "more", values, model=node(**{"layer_with_weights-3": norm(values, "bert/embeddings")}))
    with pytest.raises(InputError, match=r"are both bert/embeddings/LayerNorm/(gamma|beta)"):
        convert.main(["import", "google", str(tmp_path / "more"), str(tmp_path / "run")])
    write(tmp_path / "other", values, discriminator=node(kernel=np.ones(3, np.float32)))
    with pytest.raises(InputError, match="unknown tensors: discriminator/kernel"):
        convert.main(["import", "google", str(tmp_path / "other"), str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
