"""Kernels for GPUs: attention without its weights in memory, layer norm, and GELU within products."""
