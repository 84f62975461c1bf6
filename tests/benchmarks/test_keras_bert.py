"""What the peers in Keras 2 share, on a stand-in: each weight of ours goes where it belongs, none is left over."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.peers import keras_bert
from bert.training import checkpoint

ROWS, TOKENS, WIDTH, HEADS, INNER, WORDS = 3, 7, 10, 2, 11, 13
PLACES = {  # a variable of theirs, the weight of ours, its shape there
    "word_embeddings/embeddings": ("embeddings/word", [WORDS, WIDTH]),
    "position_embedding/embeddings": ("embeddings/position", [TOKENS, WIDTH]),
    "type_embeddings/embeddings": ("embeddings/segment", [2, WIDTH]),
    "embeddings/layer_norm/gamma": ("embeddings/layer_norm/gamma", [WIDTH]),
    "transformer/layer_0/self_attention/query/kernel": ("layer_0/attention/query/kernel", [WIDTH, HEADS, 5]),
    "transformer/layer_0/self_attention/value/bias": ("layer_0/attention/value/bias", [HEADS, 5]),
    "transformer/layer_0/self_attention_layer_norm/beta": ("layer_0/attention/layer_norm/beta", [WIDTH]),
    "transformer/layer_0/intermediate/kernel": ("layer_0/mlp/inner/kernel", [WIDTH, INNER]),
    "transformer/layer_0/output/kernel": ("layer_0/mlp/outer/kernel", [INNER, WIDTH]),
    "transformer/layer_12/output/bias": ("layer_12/mlp/outer/bias", [WIDTH]),
    "transformer/layer_12/output_layer_norm/gamma": ("layer_12/mlp/layer_norm/gamma", [WIDTH]),
    "head_of_pairs/logits/bias": ("next_sentence/bias", [2]),
}
OUTPUT = ("layer_0/attention/output/kernel", [HEADS, 5, WIDTH])
TF_MODELS = PLACES | {
    "transformer/layer_0/self_attention/attention_output/kernel": OUTPUT,
    "bert/cls/predictions/output_bias/bias": ("masked_lm/bias", [WORDS]),
    "bert/cls/predictions/transform/dense/kernel": ("masked_lm/transform/kernel", [WIDTH, WIDTH]),
    "bert/cls/predictions/transform/LayerNorm/beta": ("masked_lm/layer_norm/beta", [WIDTH]),
}
NVIDIA = PLACES | {
    "transformer/layer_0/self_attention_output/kernel": OUTPUT,
    "cls/predictions/output_bias/bias": ("masked_lm/bias", [WORDS]),
    "cls/predictions/transform/dense/kernel": ("masked_lm/transform/kernel", [WIDTH, WIDTH]),
    "cls/predictions/transform/LayerNorm/beta": ("masked_lm/layer_norm/beta", [WIDTH]),
}
Places = dict[str, tuple[str, list[int]]]


class StandIn(keras_bert.KerasBert):
    """Has variables and a pooler that goes nowhere; its loss is a count down."""

    def __init__(self, places: Places) -> None:
        self.places, self.left = places, tf.Variable(5.0)

    def build(self, config: dict[str, Any], batch: dict[str, tf.Tensor]) -> keras_bert.Names:
        self.config = config
        shapes = {name: shape for name, (_, shape) in self.places.items()} | {"pooler_transform/bias": [WIDTH]}
        weights = [tf.Variable(tf.zeros(shape), name=name) for name, shape in shapes.items()]
        self.model = SimpleNamespace(trainable_variables=weights)
        return ((r"^head_of_pairs/logits", "next_sentence"),)

    def update(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.left.assign_sub(1.0)

    def logits(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.cast(tf.stack([batch["input_word_ids"], -batch["input_type_ids"]]), tf.float32)

    def versions(self) -> dict[str, str]:
        return {"stand-in": "1.5"}


def given(folder: Path, values: dict[str, np.ndarray]) -> dict[str, Any]:
    """A run directory with these weights and a batch whose rows have 7, 4 and 1 tokens: arguments of `setup`."""
    (folder / "run").mkdir(parents=True)
    (folder / "run/bert_config.json").write_text('{"hidden_size": 10, "hidden_dropout_prob": 0.1}')
    checkpoint.save(folder / "run", 0, values, keep=1)
    ids = np.arange(100, 100 + ROWS * TOKENS, dtype=np.int32).reshape(ROWS, TOKENS)
    mask = (np.arange(TOKENS) < np.array([[7], [4], [1]])).astype(np.int32)
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": ids + 1, "masked_lm_ids": ids[:, :2]}
    np.savez(folder / "inputs.npz", allow_pickle=False, **{f"0/{name}": value for name, value in batch.items()})
    return {"weights": str(folder), "inputs": str(folder / "inputs.npz"), "compute": "float32", "dropout": 0.25}


def weights(places: Places) -> dict[str, np.ndarray]:
    """Ours: other numbers in each, and heads side by side in one axis where theirs have an axis of their own."""
    found = {}
    for number, (name, shape) in enumerate(places.values()):
        flat = np.arange(np.prod(shape), dtype=np.float32) + 1000 * (number + 1)
        ours = {"attention/query/kernel": [WIDTH, -1], "attention/output/kernel": [-1, WIDTH]}
        found[name] = flat.reshape(ours.get(name.removeprefix("layer_0/"), [-1] if "value" in name else shape))
    return found


@pytest.mark.parametrize("places", [TF_MODELS, NVIDIA], ids=["tf_models", "nvidia"])
def test_each_weight_goes_where_it_belongs(places: Places, tmp_path: Path) -> None:
    peer = StandIn(places)
    told = peer.setup(work="pretrain", **given(tmp_path, weights(places)))
    assert told["shapes"] == [[ROWS, TOKENS, 2]] and told["versions"] == {"stand-in": "1.5"}
    assert peer.config == {"hidden_size": 10, "hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.25}
    assert [variable.name for variable in peer.used] == [f"{name}:0" for name in places]
    for number, variable in enumerate(peer.used):
        flat = variable.numpy().ravel()
        assert flat.tolist() == [1000.0 * (number + 1) + place for place in range(flat.size)]
    *_, pooler = peer.model.trainable_variables
    assert not pooler.numpy().any()


def test_a_weight_that_no_variable_takes_is_named(tmp_path: Path) -> None:
    more = weights(NVIDIA) | {"classifier/bias": np.ones(3, np.float32)}
    with pytest.raises(ValueError, match="classifier/bias"):
        StandIn(NVIDIA).setup(work="pretrain", **given(tmp_path, more))


def test_values_are_three_losses_or_the_logits_of_real_tokens(tmp_path: Path) -> None:
    arguments, peer = given(tmp_path, weights(NVIDIA)), StandIn(NVIDIA)
    peer.setup(work="pretrain", **arguments)
    assert peer.values() == {"values": [4.0, 3.0, 2.0]} and min(peer.lap(2)["seconds"]) > 0 and peer.left.numpy() == 0
    peer.setup(work="infer", **arguments)
    real = [*range(100, 107), *range(107, 111), 114]
    assert peer.values()["values"] == [*real, *(-1.0 - word for word in real)]
