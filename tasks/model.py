"""A fine-tuned model of any kind for inference: its weights, and its logits for many examples."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from bert import labels, resumable
from bert.core.errors import IntegrityError
from bert.core.progress import Progress
from bert.engines.engine import Engine
from bert.hardware.choices import Compute, EngineName
from bert.model.heads import INPUTS, TaskHead
from bert.model.inference import InferenceEncoder
from bert.runs import Run
from bert.text.batches import Batches
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer
from tasks.task_type import TaskType

K = TypeVar("K", bound=TaskType)


@dataclass(frozen=True, kw_only=True)
class FineTuned(Generic[K]):
    """A fine-tuned model, with what its inputs and outputs mean."""

    run: Run
    kind: K
    """the kind of task, with the labels"""
    encoder: Engine
    head: TaskHead

    @property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer."""
        return self.run.tokenizer

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.encoder.parameters + sum(int(tf.size(weight)) for weight in self.head.trainable_variables)

    def logits(self, batch: Batch) -> Any:
        """Return the logits of rows [B, T] in a TensorFlow graph; the engine is TensorFlow's."""
        assert isinstance(self.encoder, InferenceEncoder), "no other engine is part of a graph"
        return self.head(self.encoder(*(batch[name] for name in INPUTS)), batch["input_mask"])


class Reader(Generic[K]):
    """Compute the logits of many examples, in batches of similar length; the model is traced once."""

    def __init__(
        self,
        fine_tuned: FineTuned[K],
        batch: int,
        compiled: bool = True,
        outputs: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        """batch: maximum number of sequences that are computed at once.

        compiled: whether parts of the model are compiled for each shape. outputs: function that computes the outputs
        from ids, mask and segments [B, T], in place of the model.
        """
        self.fine_tuned, kind = fine_tuned, fine_tuned.kind
        self._batches = Batches(max(1, batch // (kind.sequences or 1)), kind.length)
        self.compute: resumable.Compute = resumable.at_once
        self._score = outputs or fine_tuned.encoder.function(self._logits, compiled=compiled)
        self.progress = Progress("predict", "examples")

    def counted(self, what: str, unit: str, total: int | None) -> Progress:
        """Return the progress display of the examples that are computed inside it; it is a context manager."""
        self.progress = Progress(what, unit, total)
        return self.progress

    def logits(self, arrays: Mapping[str, np.ndarray], examples: int = 0) -> np.ndarray:
        """Return the logits [n, ...] of encoded examples for a head with one output; see `outputs`."""
        (logits,) = self.outputs(arrays, examples)
        return logits

    def outputs(self, arrays: Mapping[str, np.ndarray], examples: int = 0) -> list[np.ndarray]:
        """Return each output of the head [n, ...]; positions beyond the longest example of a batch have 0.

        arrays: ids, mask and segments of all sequences. examples: number of examples of these sequences, for the
        progress display. Raise IntegrityError if a logit is not finite.
        """
        mask, head = arrays["input_mask"], self.fine_tuned.kind.head
        lengths = mask.reshape(len(mask), -1, mask.shape[-1]).sum(axis=-1).max(axis=-1)
        outputs: list[np.ndarray] = []
        for rows, width in self._batches(lengths):
            batch = {name: arrays[name][rows][..., :width] for name in INPUTS}
            parts = self.compute(len(rows), functools.partial(self._outputs, batch))
            self.progress.add(examples * len(rows) / len(mask))
            axes = 1 if head.pooled else 2
            outputs = outputs or [np.zeros((*mask.shape[:axes], *part.shape[axes:]), np.float32) for part in parts]
            for whole, part in zip(outputs, parts, strict=True):
                whole[rows if head.pooled else (rows, slice(width))] = part
        assert outputs, "there is an example"
        if not all(np.isfinite(part).all() for part in outputs):
            reason = "its training failed; use another checkpoint"
            if self.fine_tuned.encoder.dtype == tf.float16:
                reason = "they may overflow float16; use --compute float32"
            raise IntegrityError(f"the model's logits are not finite: {reason}")
        return outputs

    def _outputs(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        rows = [batch[name] for name in INPUTS]  # [n, S], or of choices [n, choices, S]
        outputs = self._score(*(tf.constant(array.reshape(-1, array.shape[-1])) for array in rows))
        parts = [np.asarray(output) for output in outputs]
        return parts if rows[0].ndim == 2 else [part.reshape(len(rows[0]), -1) for part in parts]

    def _logits(self, states: list[tf.Tensor], mask: tf.Tensor) -> tuple[tf.Tensor, ...]:
        logits = self.fine_tuned.head(states[0], mask)
        return logits if isinstance(logits, tuple) else (logits,)


def with_weights(run: Run, kind: K, compute: Compute, engine: EngineName) -> FineTuned[K]:
    """Return the model of a run, of the given kind, with its weights. Raise as `loading.load` does."""
    _ = run.tokenizer  # raises an error if the run has none for the model
    head = TaskHead(run.config, 0, kind.described)
    encoder = run.encoder(compute, engine, [head])
    return FineTuned(run=run, kind=kind, encoder=encoder, head=head)


def spaces_words(run: Path | None) -> bool:
    """Return how a run reads the words of sentences, as `labels.Head.spaced`; True if it does not tag."""
    head = labels.of(labels.settings(run), run / "config.json") if run else None
    return head is None or head.spaced


def trained_labels(run: Path | None) -> tuple[str, ...]:
    """Return the names of the classes of a run's head; empty if it has none, or no run is given."""
    if run is None:
        return ()
    head = labels.of(labels.settings(run), run / "config.json")
    return () if head is None else head.labels
