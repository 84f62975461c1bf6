"""Encoders that several runs share: their base weights are in memory once, and each run has its low-rank updates.

Two runs have the same base if the weights of their encoders have the same bytes, without the updates, and are read by
the same equations: runs of LoRA or of heads alone from one checkpoint, adapters of one model, and this model itself.
"""

import dataclasses
import functools
import hashlib
import weakref
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from bert.core import manifest
from bert.core.config import KERNEL_SETTINGS, ModelConfig
from bert.engines import engine as engines
from bert.engines.engine import Engine
from bert.hardware.choices import Compute
from bert.model.added import tunes
from bert.model.encoder import Encoder, variables
from bert.model.inference import InferenceEncoder
from bert.model.weights import in_encoder
from bert.training.checkpoint import Stored, assign
from extensions.lora.inference import AdaptedEncoder

# Fields of the architecture that change nothing in an encoder with trained weights.
OF_TRAINING = {"hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range", "position_initializer"}
OF_TRAINING |= {"recompute_activations", *KERNEL_SETTINGS}
OF_HEADS = {"pooler_act", "pooling", "head_transform", "vocab_multiple"}


class Base(NamedTuple):
    """What an encoder is made of."""

    digest: str  # SHA-256 of its architecture and of its weights without updates
    updated: bool  # whether there are low-rank updates


def base_of(config: ModelConfig, folder: Path) -> Base:
    """Return the base of a checkpoint that is verified."""
    return _base_of(config, folder, manifest.content_hash(folder))


@functools.lru_cache(maxsize=1024)
def _base_of(config: ModelConfig, folder: Path, content: str) -> Base:
    """content: hash of the checkpoint, so that another one in the same folder is read."""
    stored, architecture = Stored(folder, apart=tunes), dataclasses.asdict(config)
    updates = stored.beside()
    digest = hashlib.sha256()
    digest.update(repr([architecture[name] for name in sorted(architecture.keys() - OF_TRAINING - OF_HEADS)]).encode())
    for name in sorted(filter(in_encoder, stored.shapes.keys() - updates)):
        value = np.ascontiguousarray(stored.get(name))
        digest.update(f"{name} {value.dtype} {value.shape}".encode())
        digest.update(value.data)
    return Base(digest.hexdigest(), bool(updates))


class Bases:
    """The encoders in memory, each as long as a model uses it."""

    def __init__(self) -> None:
        self._encoders: weakref.WeakValueDictionary[tuple[str, Compute, str], Engine] = weakref.WeakValueDictionary()

    def encoder(
        self, config: ModelConfig, folder: Path, compute: Compute, engine: Literal["tensorflow", "openvino"]
    ) -> Engine:
        """Return the encoder of a verified checkpoint. If an earlier call had the same base, use it again.

        engine: must be TensorFlow's if there are low-rank updates. Raise as `checkpoint.load_weights` does.
        """
        key = (base_of(config, folder).digest, compute, engine)
        base = self._encoders.get(key)
        if base is None:
            encoder = Encoder(config, seed=0)
            assign(folder, variables(encoder), apart=tunes)
            base = engines.make(encoder, compute, engine, shared=True)
            self._encoders[key] = base
        updates = Stored(folder, apart=tunes).beside()
        if not updates:
            return base
        assert isinstance(base, InferenceEncoder), "no other engine computes updates"
        return AdaptedEncoder(base, updates)


def shared_part(encoder: Engine) -> Engine:
    """Return the part of an encoder that other models may share: the encoder without its updates."""
    return encoder.base if isinstance(encoder, AdaptedEncoder) else encoder
