"""Distillation: a model learns from a trained one, its teacher."""
