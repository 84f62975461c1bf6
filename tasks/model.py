"""A fine-tuned model for inference, as it is loaded from a run directory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from bert import labels
from bert.config import ModelConfig
from bert.errors import InputError, IntegrityError
from bert.inputs import vocabulary
from bert.inputs.batches import Batches
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import Tokenizer, tokenizer_for
from bert.model import inference
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.model.inference import InferenceEncoder
from bert.storage import checked_json, files, manifest
from bert.training import checkpoint
from tasks import datasets, inputs
from tasks.config import TaskData
from tasks.datasets import Kind
from tasks.labels import Labels

Compute = Literal["float32", "bfloat16", "float16"]
UNTRAINED = Mode(tf.float32, DropoutRng(None))  # without dropout
OF_THE_RUN = ("folder", "train", "dev", "vocab", "limit", "class_weights", "strict")  # settings of training alone
CHOICES = 4  # of imported models, which do not say
DEFAULTS = {"classifier": "classify", "choice": "choose", "tags": "tag"}  # layouts for the heads of imported models


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """A fine-tuned model, with what its inputs and outputs mean."""

    kind: Kind
    """the kind of task, with the labels"""
    model: Any
    """the module of that kind; its head is used, its encoder is not"""
    encoder: InferenceEncoder
    tokenizer: Tokenizer
    checkpoint: Path
    """the checkpoint's folder"""

    def logits(self, batch: Batch) -> tf.Tensor:
        """Return the logits, as the kind's `Model` does."""
        shape = tf.shape(batch["input_ids"])
        hidden = self.encoder(*(tf.reshape(batch[name], [-1, shape[-1]]) for name in inputs.NAMES))
        logits = self.model.head(hidden, UNTRAINED)
        return tf.reshape(logits, [shape[0], -1]) if self.kind.head == "choice" else logits

    @property
    def weights(self) -> str:
        """Content hash of the checkpoint."""
        return manifest.content_hash(self.checkpoint)


class Reader:
    """Compute the logits of many examples, in batches of similar length; the model is traced once."""

    def __init__(self, fine_tuned: FineTuned, batch: int, compiled: bool = True) -> None:
        """batch: maximum number of sequences that are computed at once.

        compiled: whether parts of the model are compiled for each shape.
        """
        self.fine_tuned = fine_tuned
        choices = fine_tuned.kind.labels.outputs if fine_tuned.kind.head == "choice" else 1
        self._batches = Batches(max(1, batch // choices), fine_tuned.kind.data.length)
        rank = 3 if fine_tuned.kind.head == "choice" else 2
        signature = dict.fromkeys(inputs.NAMES, tf.TensorSpec([None] * rank, tf.int32))
        self._score = inference.traced(fine_tuned.logits, [signature], compiled)

    def logits(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the logits [n, ...] of encoded examples; positions beyond the longest one of a batch have 0."""
        mask = arrays["input_mask"]
        lengths = mask.reshape(len(mask), -1, mask.shape[-1]).sum(axis=-1).max(axis=-1)
        found: np.ndarray | None = None
        for rows, width in self._batches(lengths):
            logits = self._score({name: tf.constant(arrays[name][rows][..., :width]) for name in inputs.NAMES}).numpy()
            if found is None:
                shape = mask.shape[:2] if self.fine_tuned.kind.head == "tags" else mask.shape[:1]
                found = np.zeros((*shape, logits.shape[-1]), np.float32)
            if self.fine_tuned.kind.head == "tags":
                found[rows, :width] = logits
            else:
                found[rows] = logits
        assert found is not None, "there is an example"
        if not np.isfinite(found).all():
            raise IntegrityError("the model's logits are not finite: its training failed; use another checkpoint")
        return found


def facts(kind: Kind) -> dict[str, Any]:
    """Return what `load` needs to know, for the run's `config.json`."""
    settings = {name: value for name, value in asdict(kind.data).items() if name not in OF_THE_RUN}
    names = () if kind.head == "choice" else kind.labels.names
    head = labels.Head(kind=kind.head, labels=names, regression=kind.labels.regression)
    return {"inputs": settings, "choices": kind.labels.outputs} | head.facts()


def load(run: Path, compute: Compute = "float32") -> FineTuned:
    """Load the best checkpoint of a `tasks.train` run, or an imported model, whose inputs get default settings.

    compute: data type of the encoder's matrix products. Raise InputError if `run` is no such directory, IntegrityError
    if the checkpoint or a file beside it is damaged.
    """
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of python -m tasks.train")
    checkpoint.check_description(run)
    config = ModelConfig.load(run / "bert_config.json")
    kind = _kind(run, config)
    tokenizer = tokenizer_for(vocabulary.path_in(run), config)
    model = kind.model(config, seed=0)
    taken = checkpoint.load_weights(run, variables(model))
    return FineTuned(
        kind=kind,
        model=model,
        encoder=InferenceEncoder(model.encoder, tf.as_dtype(compute)),
        tokenizer=tokenizer,
        checkpoint=taken,
    )


def _kind(run: Path, config: ModelConfig) -> Kind:
    """Return the kind of task of a run, from its `config.json`."""
    path, head = run / "config.json", labels.read(run)
    if head.kind not in DEFAULTS:
        raise InputError(f"{run}: has the head {head.kind!r}; give the run directory of python -m tasks.train")
    try:
        described = files.read_json(path)
        if "inputs" in described:
            data: TaskData = checked_json.take(TaskData, described["inputs"])
        else:
            data = TaskData(
                task="regress" if head.regression else DEFAULTS[head.kind],
                length=min(512, config.max_position_embeddings),
            )
        names = head.labels
        if head.kind == "choice":
            names = tuple(str(number) for number in range(int(described.get("choices", CHOICES))))
        return datasets.kind(data, Labels(names=names, regression=head.regression))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: not the configuration of a tasks.train run ({error}); give its run directory"
        ) from error


def trained_labels(run: Path | None) -> tuple[str, ...]:
    """Return the names of the classes of a run's head; empty if it has none, or no run is given."""
    if run is None or not (run / "config.json").exists():
        return ()
    described = files.read_json(run / "config.json")
    head = labels.of(described, run / "config.json") if isinstance(described, dict) else None
    return () if head is None else head.labels
