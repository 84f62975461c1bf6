"""What an engine is, and which one computes a model.

An engine has the weights of one encoder. Its `function` makes what all commands call: rows of token ids in, outputs
out. What is made of the hidden states (a head, a mean) is given to it as a TensorFlow function, so that all engines
share it. TensorFlow's engine is `bert.model.inference.InferenceEncoder`.

B texts, T tokens, D width, M places, L layers.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import tensorflow as tf

from bert.core import files, manifest, rows
from bert.core.activations import ACTIVATIONS
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.hardware import devices
from bert.hardware.choices import Compute, EngineName
from bert.model import cost
from bert.model.encoder import Embeddings, Encoder
from bert.model.inference import InferenceEncoder

LARGEST = 2_000_000_000  # bytes of weights that OpenVINO reads from memory: protobuf ends at 2**31
CPU = Path("/proc/cpuinfo")
INT8 = "int8"  # the folder in a run directory that has its model in 8 bits
BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # Intel and AMD, Intel, ARM


class Engine(Protocol):
    """An encoder for inference, whatever computes it."""

    name: str
    width: int
    dtype: tf.DType
    """of matrix products"""
    parameters: int
    """their number"""
    embeddings: Embeddings

    def function(
        self,
        then: Callable[..., Any],
        *,
        layers: tuple[int, ...] = (-1,),
        at_places: bool = False,
        given: Sequence[tf.TensorSpec] = (),
        compiled: bool = True,
    ) -> Callable[..., Any]:
        """Return a function of ids, mask, segments [B, T] int32 and arrays of the specifications `given`.

        It returns then(x, mask, *given), where x is a list of the hidden states [B, T, D] of `layers`: 0 is the
        embeddings, -1 the last layer. at_places: the function takes `places` [M, 2] int32, row and position, before
        what is given, and x is the last hidden states there [M, D]. compiled: whether XLA compiles parts of the model
        for each shape, if this engine uses it.
        """


OPENVINO: rows.Rows[Callable[..., Engine]] = rows.Rows(
    {
        "openvino": "extensions.openvino.encoder:OpenVINOEncoder",
        "openvino_int8": "extensions.openvino.encoder:Int8Encoder",
    }
)
"""the engines beside TensorFlow's, made of an encoder and a compute type; in 8 bits, of the file of an export too"""


def make(encoder: Encoder, compute: Compute, engine: EngineName, shared: bool = False) -> Engine:
    """Return the engine of an encoder that has its weights. shared: for several models. Raise as `choose` does."""
    if compute == "bfloat16":
        warn_of_emulation()
    if choose(engine, encoder.config, compute) == "tensorflow":
        return InferenceEncoder(encoder, tf.as_dtype(compute), shared)
    return OPENVINO["openvino"](encoder, compute)


def in_8_bits(encoder: Encoder, compute: Compute, folder: Path, weights: str) -> Engine:
    """Return an engine that computes an encoder in 8 bits, from the files of `bert.export openvino --int8 true`.

    compute: data type of everything that is not in 8 bits. weights: content hash of the encoder's checkpoint. Raise
    UsageError if OpenVINO cannot compute it, InputError if the files are missing or have other weights, IntegrityError
    if they are damaged.
    """
    choose("openvino_int8", encoder.config, compute)
    remedy = f"run python -m bert.export openvino {folder.parent} {folder} --int8 true --calibration DEV"
    if not folder.exists():
        raise InputError(f"{folder}: no such folder, from which --engine openvino_int8 computes; {remedy}")
    manifest.verify(manifest.load(folder, "bert.export"))
    described, model = files.read_object(folder / "model.json"), folder / "openvino_model.xml"
    if described.get("compute") != INT8 or described.get("weights") != weights or not model.exists():
        raise InputError(f"{folder}: not the 8 bits of the checkpoint that is used; remove it and {remedy}")
    return OPENVINO["openvino_int8"](encoder, compute, model)


def choose(engine: EngineName, config: ModelConfig, compute: Compute) -> Literal["tensorflow", "openvino"]:
    """Return the engine for a model: with "auto", OpenVINO if it can compute the model on this device, else TensorFlow.

    Raise UsageError if `engine` asks for OpenVINO and OpenVINO cannot compute the model.
    """
    if engine == "tensorflow":
        return engine
    problem = _problem(config, compute)
    if problem and engine != "auto":
        raise UsageError(f"--engine {engine}: {problem}")
    return "tensorflow" if problem else "openvino"


def _problem(config: ModelConfig, compute: Compute) -> str:
    """Return why OpenVINO cannot compute a model, with the remedy; empty if it can."""
    if devices.has_gpu():
        return "it computes on CPUs, and the device is a GPU; give --device cpu, or --engine tensorflow"
    if config.causal:
        return "it does not compute causal models; give --engine tensorflow"
    if compute == "float16":
        return "it has no float16 on CPUs; give --compute float32 or bfloat16"
    if ACTIVATIONS[config.hidden_act].onnx is None:
        return f"it does not compute the model's hidden_act {config.hidden_act}; give --engine tensorflow"
    if 4 * cost.encoder_parameters(config) > LARGEST:
        return "it does not take models of more than 2 GB; give --engine tensorflow"
    return _missing()


def _missing() -> str:
    remedy = "run make setup, or give --engine tensorflow"
    if importlib.util.find_spec("onnx") is None:  # which is not imported if the model has been compiled before
        return f"onnx is not installed; {remedy}"
    try:
        importlib.import_module("openvino")
    except ImportError as error:
        return f"{error.name or error} is not installed; {remedy}"
    return ""


@functools.cache
def warn_of_emulation() -> None:
    """Print one line, once, if this processor has no products in bfloat16."""
    if devices.has_gpu() or not CPU.exists():
        return
    words = set(CPU.read_text(encoding="utf-8", errors="replace").split())
    if not words & BFLOAT16_FLAGS:
        print(
            "warning: --compute bfloat16: this processor emulates it, which is slower than float32 (it has neither "
            "avx512_bf16 nor amx_bf16); give --compute float32",
            file=sys.stderr,
        )
