"""Conversion of weights from and to google-research/bert checkpoints and Hugging Face transformers folders."""
