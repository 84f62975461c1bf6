"""LoRA: low-rank updates of the kernels of an encoder, in training, in inference, and as adapters of peft."""
