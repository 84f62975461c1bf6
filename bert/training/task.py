"""What is trained: a module with its objectives; and how its passes are computed."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from bert.core.config import PrecisionConfig
from bert.hardware import graphs
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode
from bert.model.losses import Detection, Distance, Measure
from bert.model.parts import Parts
from bert.model.traversal import Groups
from bert.text.sampler import Batch

Sums = dict[str, tf.Tensor]  # scalars that are added up over batches and ranks, by name


class Task(Protocol):
    """A module to train, and the names of its objectives.

    A task that is scored on a development set also has `predict(batch, mode)`, which returns its outputs by name. One
    whose predictions are numbers has `counts_correct` = False: no accuracy is logged. One with objectives whose labels
    are 0 and 1 has `two_classes`, the feature with the labels of each; they have no figures where all are the same.
    One whose loss is not the plain sum of its objectives' has `factors`, the factor of each that has another than 1.
    One with objectives whose measures are `Detection`s names them in `detections`.
    One with objectives whose measures are `Distance`s, which have no accuracy, names them in `distances`.
    One with a teacher has `plain`, the task without it, whose losses are those of evaluations.
    One whose samples are parts of what counts once, as the windows of texts, has `divisors`: what the summed loss of
    each update is divided by, the same number for all updates, instead of the weights of its own samples.
    One whose loss depends on all samples of an update together is a `WholeBatchTask`, too, of `step.WHOLE_BATCH`.
    """

    module: tf.Module
    objectives: tuple[str, ...]

    def weights(self, batch: Batch) -> Sums:
        """Return the weight of each objective in the batch: the scalar that its summed loss is divided by."""

    def measure(self, batch: Batch, mode: Mode) -> Mapping[str, Measure | Detection | Distance]:
        """Return the summed loss and the number of correct predictions of each objective."""


class Execution(NamedTuple):
    """How forward and backward passes are computed."""

    dtype: tf.DType  # of matrix products
    compile_all: bool = False  # XLA compiles a pass as a whole
    compile_parts: bool = False  # XLA compiles what lies between two sums over the model's parts
    residual: tf.DType = tf.float32  # of the residual stream

    @classmethod
    def of(cls, precision: PrecisionConfig, parts: Parts) -> "Execution":
        """Return what a precision means for a model in parts: XLA cannot compile the sums over them."""
        dtype = tf.float32 if precision.compute == "tf32" else tf.as_dtype(precision.compute)
        whole, in_parts = bool(precision.xla and parts.count == 1), bool(precision.xla and parts.count > 1)
        return cls(dtype, whole, in_parts, tf.as_dtype(precision.residual))

    def mode(self, dropout: DropoutRng, groups: Groups | None = None) -> Mode:
        """Return the mode of a forward pass."""
        return Mode(self.dtype, dropout, groups, self.compile_parts, residual=self.residual)

    def function(self, function: Callable[..., Any]) -> Any:
        """Return a graph of a function; without XLA it is traced at most twice, however many shapes it is given."""
        return graphs.function(function, jit_compile=self.compile_all, reduce_retracing=not self.compile_all)


def flat(measures: Mapping[str, Measure | Detection | Distance]) -> Sums:
    """Return the measures of all objectives as scalars: "mlm_loss", "mlm_correct"."""
    return {f"{name}_{field}": value for name, m in measures.items() for field, value in m._asdict().items()}


def names_of_sums(task: Task) -> list[str]:
    """Return the names of the scalars that `flat` makes of the task's measures."""
    fields = {name: Measure._fields for name in task.objectives}
    fields |= {name: Detection._fields for name in getattr(task, "detections", ())}
    fields |= {name: Distance._fields for name in getattr(task, "distances", ())}
    return [f"{name}_{field}" for name in task.objectives for field in fields[name]]


def terms(task: Task, losses: Mapping[str, Any]) -> list[Any]:
    """Return the terms of the loss of a task, from the mean loss of each objective."""
    factors = getattr(task, "factors", {})
    return [loss * factors[name] if name in factors else loss for name, loss in losses.items()]


def means(task: Task, sums: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, float]:
    """Divide summed losses and correct predictions by their weights; "loss" is the sum of all `terms`.

    Accuracies, and precision and recall of a detection, are in percent; without a prediction there is no precision.
    """
    by_name, detections, distances = {}, getattr(task, "detections", ()), getattr(task, "distances", ())
    for name, weight in weights.items():
        by_name[f"{name}_loss"] = float(sums[f"{name}_loss"] / weight)
        if name not in distances and getattr(task, "counts_correct", True):
            by_name[f"{name}_accuracy"] = float(100 * sums[f"{name}_correct"] / weight)
        for figure, of in (("precision", "predicted"), ("recall", "positive")) if name in detections else ():
            if (count := sums[f"{name}_{of}"]) > 0:
                by_name[f"{name}_{figure}"] = float(100 * sums[f"{name}_found"] / count)
    return {"loss": sum(terms(task, {name: by_name[f"{name}_loss"] for name in weights})), **by_name}
