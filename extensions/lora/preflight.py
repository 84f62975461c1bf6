"""Checks of low-rank updates before the first update of a run, and how many parameters they have."""

from bert.core.config import LoraConfig, ModelConfig, TrainConfig
from bert.core.errors import UsageError


def parameters(lora: LoraConfig, config: TrainConfig) -> int:
    """Return the number of parameters of a run's low-rank updates. Raise UsageError if it cannot have them."""
    init, model = config.init, config.model
    if init.source is None:
        raise UsageError("lora.rank needs --init.checkpoint RUN: the random weights of the encoder would never learn")
    if init.frozen_encoder:
        raise UsageError("init.frozen_encoder leaves nothing for lora.rank to train; leave one of them out")
    if init.frozen_layers == model.num_hidden_layers:
        raise UsageError("init.frozen_layers leaves no layer for lora.rank; lower it, or give --init.frozen_encoder")
    if "gate" in lora.targets and not model.gated:
        raise UsageError("lora.targets gate: the feed-forward layers of this model are not gated; leave it out")
    widths = [model.hidden_size, *([model.intermediate_size] if {"inner", "gate", "outer"} & {*lora.targets} else [])]
    if lora.rank > min(widths):
        raise UsageError(f"lora.rank {lora.rank} is more than the {min(widths)} rows of a kernel; lower it")
    return low_rank_parameters(model, lora, init.frozen_layers)


def low_rank_parameters(model: ModelConfig, lora: LoraConfig, first_layer: int = 0) -> int:
    """Return the number of parameters of LoRA's matrices in the layers from `first_layer` on."""
    width, inner = model.hidden_size, model.intermediate_size
    targets = {name for name in lora.targets if name != "gate" or model.gated}
    sizes = sum(width + (width if name in ("query", "key", "value", "output") else inner) for name in targets)
    return lora.rank * sizes * (model.num_hidden_layers - first_layer)
