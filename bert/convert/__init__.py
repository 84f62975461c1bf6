"""Weights in and out: the checkpoints of google-research/bert, and the folders of Hugging Face's transformers."""
