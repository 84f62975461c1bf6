"""Causal language models, as GPT-2."""
