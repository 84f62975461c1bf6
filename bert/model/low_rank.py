"""Low-rank updates of kernels: LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

    W + alpha / r * A B         A [I, r], B [r, O]; W [I, O] keeps its value

B begins at zero, so that the model begins as the one whose weights it has. A is drawn from a normal distribution, as
published, with the variance of the authors' code (loralib). The sum is computed before it is multiplied with the
inputs, in training as in the merged model, so that both round alike.

If several devices hold the model (parts.py), a kernel's own division gives that of one matrix: B has the columns of a
kernel that is divided by columns, A has the rows of one that is divided by rows. The other matrix is whole on each
device. Its gradient there is a term, of this device's columns or rows, and the step adds the terms up.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert.model.initializers import normal, variable
from bert.model.parts import WHOLE, Parts
from bert.model.weights import UPDATE, axis_of

# Last parts of the names of variables; the first parts are the layer's.
PARTS = A, B, SCALE = (*UPDATE, "lora_scale")


class LowRankUpdate(tf.Module):
    """scale * A B, which is added to a kernel."""

    def __init__(
        self, seed: int, layer: str, kernel: Sequence[int], rank: int, alpha: float, parts: Parts = WHOLE
    ) -> None:
        """layer: name of the dense layer, such as layer_0/attention/query. kernel: the shape of the whole, [I, O]."""
        super().__init__()
        inputs, outputs = kernel
        a, b, scale = (f"{layer}/{part}" for part in PARTS)
        self.a = variable(a, normal(seed, a, (3 * inputs) ** -0.5, inputs, rank), parts)
        self.b = variable(b, tf.zeros([rank, outputs]), parts)
        self.scale = variable(scale, tf.constant(alpha / rank), parts)  # never learns; it is for the merge

    def __call__(self) -> tf.Tensor:
        """Return the update [I, O], float32."""
        return product(self.a, self.b, self.scale)


def product(a: tf.Tensor, b: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Return scale * a b [I, O] of a [I, r] and b [r, O]."""
    return scale * tf.matmul(a, b)


def of_layer(updates: Mapping[str, np.ndarray], layer: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return A and scale * B of each dense layer whose name begins with `layer`, by the rest of its name.

    updates: their variables by name.
    """
    names = [name.removesuffix(f"/{A}") for name in updates if name.startswith(layer) and name.endswith(f"/{A}")]
    return {
        name.removeprefix(layer): (updates[f"{name}/{A}"], updates[f"{name}/{SCALE}"] * updates[f"{name}/{B}"])
        for name in names
    }


def is_of_update(name: str) -> bool:
    """Return whether a variable belongs to a low-rank update."""
    return name.rsplit("/", 1)[-1] in PARTS


def is_learnt(name: str) -> bool:
    """Return whether a variable is a matrix of a low-rank update."""
    return name.rsplit("/", 1)[-1] in (A, B)


def has_terms(name: str) -> bool:
    """Return whether the parts of a model have the same variable of this name, and each a term of its gradient."""
    return is_learnt(name) and axis_of(name) is None
