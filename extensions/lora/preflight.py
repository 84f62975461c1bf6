"""How many parameters low-rank updates have, for what a run needs of the memory."""

from bert.core.config import LoraConfig, ModelConfig
from bert.model import weights


def parameters(model: ModelConfig, lora: LoraConfig, first_layer: int = 0) -> int:
    """Return the number of parameters of LoRA's matrices in the layers from `first_layer` on."""
    targets = [row for row in weights.LAYER if row.name.split("/")[1] in lora.targets]
    kernels = [weight for row in targets for weight in weights.of_part(row, model) if len(weight.shape) == 2]
    return lora.rank * sum(sum(kernel.shape) for kernel in kernels) * (model.num_hidden_layers - first_layer)
