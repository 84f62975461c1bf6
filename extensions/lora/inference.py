"""Encoders that several models share in inference, with low-rank updates of each: x W + (x A) B.

The kernels W are those of `bert.model.inference`, which all models read. r is the rank of an update.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert.model.inference import JOINT, InferenceEncoder
from extensions.lora.model import SCALE, A, B


class Update(tf.Module):
    """(x A) B of rows x, in their type, which a low-rank update adds to a product x W."""

    def __init__(self, a: np.ndarray, b: np.ndarray, dtype: tf.DType) -> None:
        """a: [I, r]. b: [r, O], times the scale of the update."""
        super().__init__()
        self.a, self.b = (tf.Variable(tf.cast(x, dtype)) for x in (a, b))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(tf.matmul(x, self.a), self.b)


class AdaptedEncoder(tf.Module):
    """An encoder that other models have, too, with low-rank updates of its own."""

    name = InferenceEncoder.name

    def __init__(self, base: InferenceEncoder, updates: Mapping[str, np.ndarray]) -> None:
        """base: with the weights W. updates: A, B and scales by the names of their variables."""
        super().__init__()
        self.base, self.width, self.dtype = base, base.width, base.dtype
        self.embeddings, self.parameters = base.embeddings, base.parameters
        self.updates = [
            _updates(of_layer(updates, f"layer_{number}/"), layer.factor, layer.dtype)
            for number, layer in enumerate(base.layers)
        ]

    def function(self, then: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        """As `bert.engines.engine.Engine` has it."""
        return self.base.function(then, updates=self.updates, **how)


def of_layer(updates: Mapping[str, np.ndarray], layer: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return A and scale * B of each dense layer whose name begins with `layer`, by the rest of its name.

    updates: their variables by name.
    """
    names = [name.removesuffix(f"/{A}") for name in updates if name.startswith(layer) and name.endswith(f"/{A}")]
    return {
        name.removeprefix(layer): (updates[f"{name}/{A}"], updates[f"{name}/{SCALE}"] * updates[f"{name}/{B}"])
        for name in names
    }


def _updates(factors: Mapping[str, tuple[np.ndarray, np.ndarray]], factor: float, dtype: tf.DType) -> dict[str, Update]:
    """Return the updates of a layer.

    factors: A and scale B, by the names of its dense layers. factor: of its queries. dtype: of its products.
    """
    made = {name.removeprefix("mlp/"): pair for name, pair in factors.items() if name.startswith("mlp/")}
    made |= {"output": factors["attention/output"]} if "attention/output" in factors else {}
    joint = [(n, factors[name]) for n, name in enumerate(JOINT) if name in factors]
    if joint:
        a, b = np.concatenate([a for _, (a, _) in joint], axis=1), []  # [D, the sum of their r]
        for place, (_, of_part) in joint:  # in the columns of its part: [r, 3 D]
            columns = [np.zeros_like(of_part)] * len(JOINT)
            columns[place] = of_part * (factor if place == 0 else 1.0)
            b.append(np.concatenate(columns, axis=1))
        made["joint"] = (a, np.concatenate(b))
    return {name: Update(*pair, dtype) for name, pair in made.items()}
