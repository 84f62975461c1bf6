"""What the peers in Keras 2 share, for benchmarks/steps.py: our weights under their names, and the answers.

The weights are read from our run directory, a plain TensorFlow checkpoint. Imports nothing of ours, nor Keras.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import adapter, batch_file, tensorflow_peak

RATE, DECAY, EPSILON, BETA_2 = 1e-4, 0.01, 1e-6, 0.999
NO_DECAY = ["LayerNorm", "layer_norm", "bias"]
INPUTS = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}  # ours, theirs; the others are called alike
NAMES = (  # theirs, ours, in this order
    (r"^word_embeddings/embeddings$", "embeddings/word"),
    (r"^position_embedding/embeddings$", "embeddings/position"),
    (r"^type_embeddings/embeddings$", "embeddings/segment"),
    (r"^transformer/", ""),
    (r"self_attention_layer_norm", "attention/layer_norm"),
    (r"self_attention(/attention)?_output", "attention/output"),
    (r"self_attention", "attention"),
    (r"/intermediate/", "/mlp/inner/"),
    (r"(layer_\d+)/output_layer_norm", r"\1/mlp/layer_norm"),
    (r"(layer_\d+)/output/", r"\1/mlp/outer/"),
    (r"^(bert/)?cls/predictions/output_bias/bias", "masked_lm/bias"),
    (r"^(bert/)?cls/predictions/transform/dense", "masked_lm/transform"),
    (r"^(bert/)?cls/predictions/transform/LayerNorm", "masked_lm/layer_norm"),
)

Names = tuple[tuple[str, str], ...]


def gelu(x: tf.Tensor) -> tf.Tensor:
    """The exact one, which is ours."""
    return tf.nn.gelu(x)


def as_ours(optimizer: Any) -> Any:
    """The optimizer, for an update: its epsilon, which it adds before the second moment is corrected, follows that."""
    updates = tf.cast(optimizer.iterations + 1, tf.float32)
    optimizer.epsilon = EPSILON * tf.sqrt(1 - BETA_2**updates)
    return optimizer


class KerasBert:
    """A model and its step; a peer has the methods that say what it does."""

    model: Any
    optimizer: Any

    def build(self, config: dict[str, Any], batch: dict[str, tf.Tensor]) -> Names:
        """Makes `model`, with all its variables, and `optimizer`; returns what NAMES lacks, of its heads."""
        raise NotImplementedError

    def update(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """An update of the weights `used`; returns the loss."""
        raise NotImplementedError

    def logits(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Of first and last tokens [2, B, T]."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Of the peer and what it stands on."""
        raise NotImplementedError

    def setup(self, work: str, weights: str, inputs: str, compute: str, dropout: float) -> adapter.Answer:
        """As adapter.Contender has it."""
        self.work, self.compute = work, compute
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        loaded = batch_file.load(inputs)
        self.batches = [{INPUTS.get(name, name): tf.constant(batch[name]) for name in batch} for batch in loaded]
        heads = self.build(json.loads(Path(weights, "run/bert_config.json").read_text()) | rates, self.batches[0])
        (bundle,) = Path(weights, "run/checkpoints").glob("step-*")
        self.used = assign(self.model.trainable_variables, tf.train.load_checkpoint(str(bundle / "variables")), heads)
        self.run = tf.function(self.logits if work == "infer" else self.update)
        shapes = [
            [*batch["input_word_ids"].shape, batch["masked_lm_ids"].shape[1] if work == "pretrain" else 0]
            for batch in self.batches
        ]
        threads = int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0"))
        return {"shapes": shapes, "threads": threads, "versions": self.versions()}

    def values(self) -> adapter.Answer:
        """As adapter.Contender has it."""
        batch = self.batches[0]
        if self.work != "infer":
            return {"values": [float(self.run(batch)) for _ in range(3)]}
        return {"values": self.run(batch).numpy()[:, batch["input_mask"].numpy() > 0].ravel().tolist()}

    def lap(self, laps: int) -> adapter.Answer:
        """As adapter.Contender has it."""
        return adapter.timed(lambda batch: self.run(batch).numpy(), self.batches, laps)

    def peak(self) -> adapter.Answer:
        """As adapter.Contender has it."""
        return tensorflow_peak.peak(self.compute)


def ours(name: str, heads: Names) -> str:
    """Our name of their variable, if we have it."""
    name = name.removesuffix(":0")
    for theirs, own in NAMES + heads:
        name = re.sub(theirs, own, name)
    return name


def assign(variables: list[tf.Variable], reader: Any, heads: Names) -> list[tf.Variable]:
    """Gives each its value of ours and returns those that have one: a pooler may go nowhere.

    Raises ValueError if a weight of ours is left over.
    """
    left = set(reader.get_variable_to_shape_map())
    used = [variable for variable in variables if ours(variable.name, heads) in left]
    for variable in used:
        name = ours(variable.name, heads)
        variable.assign(np.reshape(reader.get_tensor(name), variable.shape))
        left.discard(name)
    if left:
        raise ValueError(f"{sorted(left)[0]}: no variable takes this weight")
    return used
