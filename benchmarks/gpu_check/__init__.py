"""Compile the project's programs for NVIDIA GPUs with XLA, on a machine without a GPU.

    make gpu-check FLAGS="--programs large_128 --devices h100"

Two processes are needed, since TensorFlow and jaxlib each have their own XLA: `export` writes a program's HLO in the
project's environment, `compile` compiles it in that of `scripts/extra_venv.sh gpu-check`.
"""
