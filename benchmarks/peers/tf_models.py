"""tf-models-official's BertPretrainerV2, for benchmarks/steps.py: the pretraining step alone; imports nothing of ours.

    python -m benchmarks.peers.tf_models      # benchmarks/adapter.py says what it answers

bfloat16 is Keras' mixed policy, the update its own AdamWeightDecay, whose epsilon is made to mean what it means here.
"""

from importlib.metadata import version
from typing import Any

import tensorflow as tf
import tf_keras  # type: ignore[import-not-found,unused-ignore]
from official.nlp import optimization  # type: ignore[import-not-found,unused-ignore]
from official.nlp.modeling import layers, models, networks  # type: ignore[import-not-found,unused-ignore]

from benchmarks import adapter
from benchmarks.peers import keras_bert

HEADS = ((r"^bert/next_sentence/pooler_dense", "pooler"), (r"^bert/next_sentence/logits", "next_sentence"))
GIVEN = ("input_word_ids", "input_mask", "input_type_ids", "masked_lm_positions")


class TensorFlowModels(keras_bert.KerasBert):
    """A model and its step; the encoder's own pooler goes nowhere, for the head for pairs has another."""

    def build(self, config: dict[str, Any], batch: dict[str, tf.Tensor]) -> keras_bert.Names:
        """As keras_bert.KerasBert has it."""
        assert self.work == "pretrain", self.work
        if self.compute == "bfloat16":
            tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
        dropout = config["hidden_dropout_prob"]
        encoder = networks.BertEncoder(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_attention_heads=config["num_attention_heads"],
            inner_dim=config["intermediate_size"],
            inner_activation=keras_bert.gelu,
            output_dropout=dropout,
            attention_dropout=config["attention_probs_dropout_prob"],
            type_vocab_size=config["type_vocab_size"],
            max_sequence_length=config["max_position_embeddings"],
        )
        pairs = layers.ClassificationHead(config["hidden_size"], 2, dropout_rate=dropout, name="next_sentence")
        self.model = models.BertPretrainerV2(encoder, mlm_activation=keras_bert.gelu, classification_heads=[pairs])
        self.model({name: batch[name] for name in GIVEN})  # makes the rest of the variables
        self.optimizer = optimization.AdamWeightDecay(
            keras_bert.RATE,
            weight_decay_rate=keras_bert.DECAY,
            epsilon=keras_bert.EPSILON,
            beta_2=keras_bert.BETA_2,
            exclude_from_weight_decay=keras_bert.NO_DECAY,
            gradient_clip_norm=1.0,
        )
        return HEADS

    def update(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """As keras_bert.KerasBert has it."""
        entropy = tf_keras.losses.sparse_categorical_crossentropy
        with tf.GradientTape() as tape:
            outputs = self.model({name: batch[name] for name in GIVEN}, training=True)
            words = entropy(batch["masked_lm_ids"], tf.cast(outputs["mlm_logits"], tf.float32), from_logits=True)
            weights = batch["masked_lm_weights"]
            pair = tf.cast(outputs["next_sentence"], tf.float32)
            pairs = entropy(batch["next_sentence_labels"], pair, from_logits=True)
            loss = tf.reduce_sum(words * weights) / tf.reduce_sum(weights) + tf.reduce_mean(pairs)
        keras_bert.as_ours(self.optimizer).apply_gradients(zip(tape.gradient(loss, self.used), self.used, strict=True))
        return loss

    def versions(self) -> dict[str, str]:
        """As keras_bert.KerasBert has it."""
        return {"tf-models-official": version("tf-models-official"), "TensorFlow of tf-models-official": tf.__version__}


if __name__ == "__main__":
    adapter.serve(TensorFlowModels())
