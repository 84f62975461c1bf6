"""Low-rank updates of kernels: LoRA (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

    W + alpha / r * A B         A [I, r], B [r, O]; W [I, O] keeps its value

B begins at zero, so that the model begins as the one whose weights it has. A is drawn from a normal distribution, as
published, with the variance of the authors' code (loralib). The sum is computed before it is multiplied with the
inputs, in training as in the merged model, so that both round alike.

If several devices hold the model (model_shard.py), a kernel's own division gives that of one matrix: B has the columns
of a kernel that is divided by columns, A has the rows of one that is divided by rows. The other matrix is whole on each
device. Its gradient there is a term, of this device's columns or rows, and the step adds the terms up.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert.core.config import LoraConfig
from bert.model.encoder import Encoder, Layer
from bert.model.initializers import normal, variable
from bert.model.model_shard import UNSHARDED, Parts
from bert.model.weights import UPDATE

# Last parts of the names of variables; the first parts are the layer's.
PARTS = A, B, SCALE = (*UPDATE, "lora_scale")


class LowRankUpdate(tf.Module):
    """scale * A B, which is added to a kernel."""

    def __init__(
        self, seed: int, layer: str, kernel: Sequence[int], rank: int, alpha: float, parts: Parts = UNSHARDED
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


def term(a: np.ndarray, b: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return what a checkpoint's variables add to their kernel [I, O]: `bert.model.added` names it."""
    value: np.ndarray = product(a, b, scale).numpy()
    return value


def adapt(encoder: Encoder, lora: LoraConfig, seed: int, first_layer: int = 0) -> None:
    """Give the targets of all layers from `first_layer` on a low-rank update."""
    for number, layer in list(enumerate(encoder.layers))[first_layer:]:
        adapt_layer(layer, f"layer_{number}", lora, seed)


def adapt_layer(layer: Layer, name: str, lora: LoraConfig, seed: int) -> None:
    """Give the targets a low-rank update. name: of the layer."""
    of_attention, mlp, parts = ("query", "key", "value", "output"), layer.mlp, layer.parts
    dense = {target: (f"attention/{target}", getattr(layer.attention, target)) for target in of_attention}
    dense |= {"inner": ("mlp/inner", mlp.inner), "gate": ("mlp/gate", mlp.gate), "outer": ("mlp/outer", mlp.output)}
    for target in lora.targets:
        at, part = dense[target]
        if part is not None:
            kernel = parts.whole_shapes.get(f"{name}/{at}/kernel", part.weight.shape)
            part.update = LowRankUpdate(seed, f"{name}/{at}", kernel, lora.rank, lora.alpha, parts)
