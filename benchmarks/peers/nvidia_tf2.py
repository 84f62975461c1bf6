"""NVIDIA's TensorFlow 2 BERT, of DeepLearningExamples, for benchmarks/steps.py; imports nothing of ours.

    python -m benchmarks.peers.nvidia_tf2 FOLDER     # benchmarks/adapter.py says what it answers

Their models, losses and AdamWeightDecay, in the update of their training loop, which is a closure and is repeated here.
It was written for TensorFlow 2.4. That it runs on today's takes three things: `tf.keras` is Keras 2; `Adam` is its
`legacy` one, which theirs extends; `tensorflow_addons` is an empty module, for they take nothing but LAMB from it.
Two more make it the published BERT: GELU is exact, and the masked-LM head has it, which `pretrain_model` leaves out.
"""

import functools
import subprocess
import sys
import types
from typing import Any

import tensorflow as tf
import tf_keras  # type: ignore[import-not-found,unused-ignore]

from benchmarks import adapter
from benchmarks.peers import keras_bert


class Nvidia(keras_bert.KerasBert):
    """A model and its step; the pooler goes nowhere in a model of answers."""

    def __init__(self, folder: str) -> None:
        """`folder`: TensorFlow2/LanguageModeling/BERT of their repository."""
        self.folder = folder
        tf.keras = tf_keras
        tf_keras.optimizers.Adam = tf_keras.optimizers.legacy.Adam
        addons, optimizers = (types.ModuleType(name) for name in ("tensorflow_addons", "optimizers"))
        addons.optimizers = optimizers  # type: ignore[attr-defined]
        sys.modules.update({"tensorflow_addons": addons, "tensorflow_addons.optimizers": optimizers})
        sys.path.append(folder)

    def build(self, config: dict[str, Any], batch: dict[str, tf.Tensor]) -> keras_bert.Names:
        """As keras_bert.KerasBert has it."""
        assert self.compute == "float32", self.compute
        import optimization  # type: ignore[import-not-found,unused-ignore]
        from official.nlp import bert_modeling, bert_models  # type: ignore[import-not-found,unused-ignore]
        from official.nlp.modeling.networks import bert_pretrainer  # type: ignore[import-not-found,unused-ignore]

        pretrainer = functools.partial(bert_pretrainer.BertPretrainer, activation=keras_bert.gelu)
        bert_models.bert_pretrainer = types.SimpleNamespace(BertPretrainer=pretrainer)
        self.optimizer = optimization.AdamWeightDecay(
            keras_bert.RATE,
            weight_decay_rate=keras_bert.DECAY,
            epsilon=keras_bert.EPSILON,
            beta_2=keras_bert.BETA_2,
            exclude_from_weight_decay=keras_bert.NO_DECAY,
        )
        given, tokens = bert_modeling.BertConfig.from_dict(config), batch["input_mask"].shape[1]
        given.hidden_act = keras_bert.gelu
        if self.work == "pretrain":
            predictions = batch["masked_lm_ids"].shape[1]
            self.model, _ = bert_models.pretrain_model(given, tokens, predictions, tf.float32)
        else:
            self.model, _ = bert_models.squad_model(given, tokens, tf.float32)
        head = "next_sentence" if self.work == "pretrain" else "answer_span"
        return (r"^pooler_transform", "pooler"), (r"^predictions/transform/logits", head)

    def update(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """As keras_bert.KerasBert has it."""
        with tf.GradientTape() as tape:
            loss = self._loss(batch)
        dense = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, self.used)]  # as their Horovod does
        gradients, _ = tf.clip_by_global_norm(dense, clip_norm=1.0)
        keras_bert.as_ours(self.optimizer).apply_gradients(zip(gradients, self.used, strict=True))
        return loss

    def _loss(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        if self.work == "pretrain":
            return tf.keras.backend.mean(self.model(batch, training=True))
        entropy = tf.keras.backend.sparse_categorical_crossentropy
        start, end = self._spans(batch, training=True)
        starts, ends = batch["start_positions"], batch["end_positions"]
        both = entropy(starts, start, from_logits=True), entropy(ends, end, from_logits=True)
        return sum(map(tf.reduce_mean, both)) / 2

    def _spans(self, batch: dict[str, tf.Tensor], training: bool) -> list[tf.Tensor]:
        given = {name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}
        return self.model(given, training=training)

    def logits(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """As keras_bert.KerasBert has it."""
        return tf.stack(self._spans(batch, training=False))

    def versions(self) -> dict[str, str]:
        """As keras_bert.KerasBert has it."""
        git = ["git", "-C", self.folder, "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "of no commit"
        return {"DeepLearningExamples": commit, "TensorFlow of NVIDIA's": tf.__version__}


if __name__ == "__main__":
    adapter.serve(Nvidia(sys.argv[1]))
