"""A run directory, opened: what the model is, and its weights.

    run = Run.open(Path("workdir/runs/squad/squad_base"))
    run.config, run.tokenizer, run.settings, run.head
    encoder = run.encoder("bfloat16")
    run.load(encoder_and_head)

The runs are those of `bert.pretrain`, `squad.train` and `tasks.train`, and imports by `bert.convert`.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import tensorflow as tf

from bert import labels, thresholds
from bert.core import manifest, stores
from bert.core.config import KERNEL_SETTINGS, ModelConfig
from bert.core.errors import InputError
from bert.core.rows import Rows
from bert.engines import engine as engines
from bert.engines.engine import Engine
from bert.hardware.choices import Compute, EngineName
from bert.heads import KINDS
from bert.labels import Head
from bert.model import cost
from bert.model.encoder import Encoder, variables
from bert.text import vocabulary
from bert.text.tokenization import Tokenizer, tokenizer_for
from bert.training import checkpoint, description


class Base(Protocol):
    """The base of an encoder: its architecture and its weights without updates."""

    @property
    def digest(self) -> str:
        """Return a hash of the architecture and of the weights without updates."""

    @property
    def updated(self) -> bool:
        """Return whether the model has low-rank updates."""


class Bases(Protocol):
    """Encoders in memory that several runs share."""

    def encoder(
        self, config: ModelConfig, folder: Path, compute: Compute, engine: Literal["tensorflow", "openvino"]
    ) -> Engine:
        """Return the encoder of a verified checkpoint, with its updates."""


SHARED: Rows[Callable[..., Any]] = Rows(
    {
        "base_of": "extensions.lora.bases:base_of",
        "bases": "extensions.lora.bases:Bases",
        "shared_part": "extensions.lora.bases:shared_part",
    }
)
"""the `Base` of a configuration and a checkpoint; `Bases`, none in memory yet; the part of an encoder that is shared"""


class Run:
    """A run directory whose description matches its checkpoints. Its other files are read when they are needed."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        """config: as `Run.open` reads it."""
        self.path, self.config = path, config
        self.bases: Bases | None = None
        """encoders that this run may share with others, by TensorFlow or without low-rank updates; None: its own"""
        self._loaded = False

    @classmethod
    def open(cls, path: Path, remedy: str = "the run directory of a trained model") -> "Run":
        """Check the files that describe a run, and read its configuration.

        remedy: what to give instead, for messages. Raise InputError if `path` is not a run directory. Raise
        IntegrityError if a file that describes the run has changed, or if it describes a model far larger than its
        checkpoint.
        """
        stores.fetch_run(path)
        if not path.is_dir():
            raise InputError(f"{path}: no such folder; give {remedy}")
        stored = checkpoint.check_description(path)
        config = ModelConfig.load(path / "bert_config.json")
        if stored is not None:
            checkpoint.check_size(path, stored, cost.encoder_parameters(config))
        # They are for training: fused attention needs 16 bits, and none has an effect on what is computed.
        off: dict[str, Any] = dict.fromkeys((*KERNEL_SETTINGS, "recompute_activations"), False)
        return cls(path, dataclasses.replace(config, **off))

    @property
    def settings_path(self) -> Path:
        """Path of its `config.json`, for messages."""
        return self.path / "config.json"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Content of its `config.json`; empty if there is none. Raise InputError if it is damaged."""
        return labels.settings(self.path)

    @cached_property
    def head(self) -> Head | None:
        """What the outputs of a fine-tuned model mean; None for a pretrained one. Raise as `labels.of` does."""
        return labels.of(self.settings, self.settings_path)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer. Raise InputError if the model is causal, or if its vocabulary has another size."""
        return tokenizer_for(vocabulary.path_in(self.path), self.config, self.head is None or self.head.spaced)

    def has(self, head: str) -> bool:
        """Return whether the checkpoint has variables of this head. Raise as `checkpoint.to_use` does."""
        return any(name.startswith(f"{head}/") for name in checkpoint.Stored(self._verified).shapes)

    def load(self, *modules: tf.Module) -> None:
        """Assign the weights to the variables of `modules`. Raise as `checkpoint.load_weights` does."""
        checkpoint.assign(self._verified, {k: v for module in modules for k, v in variables(module).items()})
        self._loaded = True

    @property
    def base(self) -> Base:
        """The base weights of its encoder. Raise as `checkpoint.to_use` does."""
        base: Base = SHARED["base_of"](self.config, self._verified)
        return base

    def encoder(
        self, compute: Compute = "float32", engine: EngineName = "tensorflow", heads: Sequence[tf.Module] = ()
    ) -> Engine:
        """Return the encoder with its weights. Assign the weights of `heads`, too.

        compute: data type of its matrix products. engine: what computes it. Raise as `load`, `engines.choose` and
        `engines.in_8_bits` do.
        """
        if self.bases is not None:
            self.load(*heads)
            chosen = engines.choose(engine, self.config, compute)
            return self.bases.encoder(self.config, self.checkpoint, compute, chosen)
        encoder = Encoder(self.config, seed=0)
        self.load(encoder, *heads)
        if engine == "openvino_int8":
            return engines.in_8_bits(encoder, compute, self.path / engines.INT8, self.weights)
        return engines.make(encoder, compute, engine)

    @property
    def checkpoint(self) -> Path:
        """Folder of the loaded checkpoint: the best or the newest one, or an older one if that is damaged."""
        assert self._loaded, "the weights are loaded"
        return self._verified

    @cached_property
    def _verified(self) -> Path:
        """Folder of the checkpoint to use; its files are verified once. Raise as `checkpoint.to_use` does."""
        return checkpoint.to_use(self.path)

    def thresholds(self) -> tuple[float, ...]:
        """Return the minimum probability of each label; () if it gives one class only. Load the weights first.

        Raise as `thresholds.read` does.
        """
        if self.head is None or not KINDS[self.head.kind].several:
            return ()
        stored = thresholds.read(self.path, self.head.labels, self.weights)
        if stored is None:
            print(
                f"note: {self.path}: no stored thresholds; labels are given from {thresholds.DEFAULT} on (see "
                "python -m tasks.thresholds)",
                file=sys.stderr,
            )
        return stored or (thresholds.DEFAULT,) * len(self.head.labels)

    @property
    def weights(self) -> str:
        """Content hash of the loaded checkpoint."""
        return manifest.content_hash(self.checkpoint)

    @property
    def identity(self) -> dict[str, str]:
        """Hashes of the loaded weights and of the files that describe them. Results are stored with these hashes."""
        return {"weights": self.weights} | description.hashes(self.path)
