"""Encoders that several models share in inference, with low-rank updates of each: x W + (x A) B.

The kernels W are those of `bert.model.inference`, which all models read. r is the rank of an update.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert.model.inference import JOINT, InferenceEncoder
from extensions.lora.model import SCALE, A, B

JOINED = ("attention/query", "attention/key", "attention/value")  # dense layers that are one product in inference


class Update(tf.Module):
    """(x A) B of rows x, in their type, which a low-rank update adds to a product x W."""

    def __init__(self, a: np.ndarray, b: np.ndarray, dtype: tf.DType) -> None:
        """a: [I, r]. b: [r, O], times the scale of the update."""
        super().__init__()
        self.a, self.b = (tf.Variable(tf.cast(x, dtype)) for x in (a, b))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(tf.matmul(x, self.a), self.b)


class AdaptedEncoder(InferenceEncoder):
    """An encoder that shares its base with other models and adds its own low-rank updates."""

    def __init__(self, base: InferenceEncoder, updates: Mapping[str, np.ndarray]) -> None:
        """base: with the weights W. updates: A, B and scales by the names of their variables."""
        tf.Module.__init__(self)
        self.base, self.config, self.width, self.dtype = base, base.config, base.width, base.dtype
        self.embeddings, self.parameters, self.factor = base.embeddings, base.parameters, base.factor
        self.weights, self.norms = base.weights, base.norms
        self.updates = _updates(updates, base)


def _updates(variables: Mapping[str, np.ndarray], base: InferenceEncoder) -> dict[str, Update]:
    """Return the updates by the names of the dense layers of `base`. variables: as above."""
    names = [name.removesuffix(f"/{A}") for name in variables if name.endswith(f"/{A}")]
    made = {name: (variables[f"{name}/{A}"], variables[f"{name}/{SCALE}"] * variables[f"{name}/{B}"]) for name in names}
    for number in range(base.config.num_hidden_layers):
        parts = [made.pop(f"layer_{number}/{part}", None) for part in JOINED]
        joint = [(place, *part) for place, part in enumerate(parts) if part]
        if not joint:
            continue
        b = []
        for place, _, of_part in joint:  # in the columns of its part: [r, 3 D]
            columns = [np.zeros_like(of_part)] * len(JOINED)
            columns[place] = of_part * (base.factor if place == 0 else 1.0)
            b.append(np.concatenate(columns, axis=1))
        a = np.concatenate([of_part for _, of_part, _ in joint], axis=1)  # [D, the sum of their r]
        made[f"layer_{number}/{JOINT}"] = (a, np.concatenate(b))
    return {name: Update(*pair, base.dtype) for name, pair in made.items()}
