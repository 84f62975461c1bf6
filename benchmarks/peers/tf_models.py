"""tf-models-official's BertPretrainerV2, for benchmarks/steps.py: the pretraining step alone; imports nothing of ours.

    python -m benchmarks.peers.tf_models      # benchmarks/adapter.py says what it answers

bfloat16 is Keras' mixed policy, the update its own AdamWeightDecay, whose epsilon is made to mean what it means here.
The weights are read from our run directory, a plain TensorFlow checkpoint.
"""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras  # type: ignore[import-not-found,unused-ignore]
from official.nlp import optimization  # type: ignore[import-not-found,unused-ignore]
from official.nlp.modeling import layers, models, networks  # type: ignore[import-not-found,unused-ignore]

from benchmarks import adapter, batch_file, tensorflow_peak

RATE, DECAY, EPSILON, BETA_2 = 1e-4, 0.01, 1e-6, 0.999
NAMES = (  # theirs, ours, in this order
    (r"^word_embeddings/embeddings$", "embeddings/word"),
    (r"^position_embedding/embeddings$", "embeddings/position"),
    (r"^type_embeddings/embeddings$", "embeddings/segment"),
    (r"^transformer/", ""),
    (r"self_attention_layer_norm", "attention/layer_norm"),
    (r"self_attention/attention_output", "attention/output"),
    (r"self_attention", "attention"),
    (r"/intermediate/", "/mlp/inner/"),
    (r"(layer_\d+)/output_layer_norm", r"\1/mlp/layer_norm"),
    (r"(layer_\d+)/output/", r"\1/mlp/outer/"),
    (r"^bert/next_sentence/pooler_dense", "pooler"),
    (r"^bert/next_sentence/logits", "next_sentence"),
    (r"^bert/cls/predictions/output_bias/bias", "masked_lm/bias"),
    (r"^bert/cls/predictions/transform/dense", "masked_lm/transform"),
    (r"^bert/cls/predictions/transform/LayerNorm", "masked_lm/layer_norm"),
)


def _ours(name: str) -> str:
    name = name.removesuffix(":0")
    for theirs, ours in NAMES:
        name = re.sub(theirs, ours, name)
    return name


def _gelu(x: tf.Tensor) -> tf.Tensor:
    return tf_keras.activations.gelu(x, approximate=False)


class TensorFlowModels:
    """A model and its step."""

    def setup(self, work: str, weights: str, inputs: str, compute: str, dropout: float) -> adapter.Answer:
        """As adapter.Contender has it."""
        assert work == "pretrain", work
        self.compute = compute
        if compute == "bfloat16":
            tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
        self.model = self._model(json.loads(Path(weights, "run/bert_config.json").read_text()), dropout)
        self.batches = [self._tensors(batch) for batch in batch_file.load(inputs)]
        self.model(self.batches[0][0])  # makes the rest of the variables
        (bundle,) = Path(weights, "run/checkpoints").glob("step-*")
        reader = tf.train.load_checkpoint(str(bundle / "variables"))
        self.used = [weight for weight in self.model.trainable_variables if "pooler_transform" not in weight.name]
        for weight in self.used:  # the encoder's pooler goes nowhere: the head for pairs has its own
            weight.assign(tf.reshape(reader.get_tensor(_ours(weight.name)), weight.shape))
        self.optimizer = optimization.AdamWeightDecay(
            RATE, weight_decay_rate=DECAY, epsilon=EPSILON * (1 - BETA_2) ** 0.5, beta_2=BETA_2,
            exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"], gradient_clip_norm=1.0,
        )  # fmt: skip
        self.run = tf.function(self._update)
        shapes = [[*given["input_word_ids"].shape, given["masked_lm_positions"].shape[1]] for given, _ in self.batches]
        versions = {"tf-models-official": version("tf-models-official"), "their TensorFlow": tf.__version__}
        return {"shapes": shapes, "threads": int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0")), "versions": versions}

    def _model(self, config: dict[str, Any], dropout: float) -> Any:
        encoder = networks.BertEncoder(
            vocab_size=config["vocab_size"], hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"], num_attention_heads=config["num_attention_heads"],
            inner_dim=config["intermediate_size"], inner_activation=_gelu, output_dropout=dropout,
            attention_dropout=dropout, type_vocab_size=config["type_vocab_size"],
            max_sequence_length=config["max_position_embeddings"],
        )  # fmt: skip
        pairs = layers.ClassificationHead(config["hidden_size"], 2, dropout_rate=dropout, name="next_sentence")
        return models.BertPretrainerV2(encoder, mlm_activation=_gelu, classification_heads=[pairs])

    def _tensors(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        given = {name: tf.constant(value) for name, value in batch.items()}
        inputs = {"input_word_ids": "input_ids", "input_mask": "input_mask", "input_type_ids": "segment_ids",
                  "masked_lm_positions": "masked_lm_positions"}  # fmt: skip
        return {theirs: given[ours] for theirs, ours in inputs.items()}, given

    def _update(self, inputs: dict[str, Any], labels: dict[str, Any]) -> tf.Tensor:
        entropy = tf_keras.losses.sparse_categorical_crossentropy
        with tf.GradientTape() as tape:
            found = self.model(inputs, training=True)
            words = entropy(labels["masked_lm_ids"], tf.cast(found["mlm_logits"], tf.float32), from_logits=True)
            weights = labels["masked_lm_weights"]
            pair = tf.cast(found["next_sentence"], tf.float32)
            pairs = entropy(labels["next_sentence_labels"], pair, from_logits=True)
            loss = tf.reduce_sum(words * weights) / tf.reduce_sum(weights) + tf.reduce_mean(pairs)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.used), self.used, strict=True))
        return loss

    def values(self) -> adapter.Answer:
        """As adapter.Contender has it."""
        return {"values": [float(self.run(*self.batches[0])) for _ in range(3)]}

    def lap(self, laps: int) -> adapter.Answer:
        """As adapter.Contender has it."""
        return adapter.timed(lambda batch: float(self.run(*batch)), self.batches, laps)

    def peak(self) -> adapter.Answer:
        """As adapter.Contender has it."""
        return tensorflow_peak.peak(self.compute)


if __name__ == "__main__":
    adapter.serve(TensorFlowModels())
