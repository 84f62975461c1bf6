"""Causal language models: their training task, what they are evaluated on, and the text that they generate."""
