"""The causal language model, GPT-2 (Radford et al. 2019): its task, its evaluation, and the text that it generates."""
