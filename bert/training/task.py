"""What is trained: a module with its objectives; and how its passes are computed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from bert.core.config import PrecisionConfig
from bert.hardware import graphs
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode
from bert.model.model_shard import Parts
from bert.model.traversal import Groups
from bert.text.sampler import Batch
from bert.training.communicator import Communicator
from bert.training.objective import Objective

Sums = dict[str, tf.Tensor]  # scalars that are added up over batches and ranks, by name


class Task:
    """A module to train, its objectives, and how they are measured."""

    module: tf.Module
    objectives: tuple[Objective, ...]
    divisors: Mapping[str, float] = {}
    """what the summed loss of each update is divided by, for each objective that has it: the same number for all
    updates, instead of the weights of its own samples. So it is where several samples count once, as the windows of
    a text do"""

    @property
    def scored(self) -> "Task":
        """Return the task that evaluations measure: this one, or the same without its teacher."""
        return self

    @property
    def names(self) -> list[str]:
        """Return the names of its objectives."""
        return [objective.name for objective in self.objectives]

    def weights(self, batch: Batch) -> Sums:
        """Return the weight of each objective in the batch: the scalar that divides its summed loss."""
        raise NotImplementedError

    def measure(self, batch: Batch, mode: Mode) -> Mapping[str, Any]:
        """Return the sums of each objective, by its name, in the type that `Objective.measure` names."""
        raise NotImplementedError

    def predict(self, batch: Batch, mode: Mode) -> Sums:
        """Return the outputs of the heads by name, if they are scored on a development set."""
        raise NotImplementedError

    def whole_batch(self, execution: "Execution", comm: Communicator, seed: int) -> "WholeBatch | None":
        """Return a `WholeBatch` if the loss needs all samples of an update together; None if it is a sum over samples.

        seed: of the dropout masks.
        """
        return None


class WholeBatch(Protocol):
    """Computes what the loss of a micro-batch needs from the other micro-batches, before any loss is measured."""

    def complete(self, batches: Sequence[Batch], step: tf.Tensor, lap: Callable[[str], None]) -> list[Batch]:
        """Return this rank's micro-batches, with what their loss needs from the others. All ranks must call this.

        lap: as in `Step.update`.
        """


class Execution(NamedTuple):
    """How forward and backward passes are computed."""

    dtype: tf.DType  # of matrix products
    compile_all: bool = False  # XLA compiles a pass as a whole
    compile_parts: bool = False  # XLA compiles what lies between two sums over the model's parts
    residual: tf.DType = tf.float32  # of the residual stream

    @classmethod
    def of(cls, precision: PrecisionConfig, parts: Parts) -> "Execution":
        """Return how a precision is executed for a model in parts. XLA cannot compile the sums over the parts."""
        dtype = tf.float32 if precision.compute == "tf32" else tf.as_dtype(precision.compute)
        whole, in_parts = bool(precision.xla and parts.count == 1), bool(precision.xla and parts.count > 1)
        return cls(dtype, whole, in_parts, tf.as_dtype(precision.residual))

    def mode(self, dropout: DropoutRng, groups: Groups | None = None) -> Mode:
        """Return the mode of a forward pass."""
        return Mode(self.dtype, dropout, groups, self.compile_parts, residual=self.residual)

    def function(self, function: Callable[..., Any]) -> Any:
        """Return a graph of a function. Without XLA it is traced at most twice, whatever shapes it is called with."""
        return graphs.function(function, jit_compile=self.compile_all, reduce_retracing=not self.compile_all)


def flatten_measures(measures: Mapping[str, Any]) -> Sums:
    """Return the measures of all objectives as scalars by name: "mlm_loss", "mlm_correct"."""
    return {f"{name}_{field}": value for name, m in measures.items() for field, value in m._asdict().items()}


def names_of_sums(task: Task) -> list[str]:
    """Return the names of the scalars that `flatten_measures` returns for the task's measures."""
    return [name for objective in task.objectives for name in objective.sums]
