"""The causal language model: GPT-2 (Radford et al. 2019) on the layers of the encoder."""
