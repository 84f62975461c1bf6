"""Compiles the project's programs for NVIDIA GPUs with XLA's GPU compiler, on a machine without a GPU.

    make gpu-check FLAGS="--programs large_128 --devices h100"

Two processes take part, since TensorFlow and jaxlib each bring an XLA of their own: `export` writes a program's HLO
with the project's environment, `compile` compiles it with that of `requirements-gpu-check.txt`.
"""
