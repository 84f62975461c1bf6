"""Distillation: a trained model, the teacher, gives soft labels while another one is trained (Hinton et al. 2015).

    (1 - w) L + w T^2 KL(softmax(z' / T) || softmax(z / T))     z: logits of the model, z': of the teacher

The teacher computes its logits in the step, without dropout and without gradients. Its weights are in no checkpoint of
the run; config.json has their hash, so that a run goes on with the same teacher only.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from bert import labels
from bert.core.config import DistillConfig, ModelConfig, ParallelConfig
from bert.core.errors import UsageError
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.model.losses import Measure
from bert.runs import Run
from bert.text import vocabulary
from bert.text.sampler import Batch
from bert.training import checkpoint, resume
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from bert.training.task import Sums, Task

ENTRY = "teacher"  # of config.json: the content hash of its weights


class Teachable(Task, Protocol):
    """A task that can learn from soft labels: `measure` is `measured` of the outputs of its module."""

    def measured(self, outputs: Any, batch: Batch) -> dict[str, Measure]:
        """Return the summed loss and the number of correct predictions of each objective, of the module's outputs."""

    def soft(self, outputs: Any, taught: Any, batch: Batch, temperature: float) -> Sums:
        """Return the summed loss with the teacher's outputs as labels, by the name of each objective that has one."""


class Distilled:
    """A task whose losses have soft labels while it is trained; `plain` is the task without, by which it is scored."""

    def __init__(self, plain: Teachable, teacher: tf.Module, config: DistillConfig) -> None:
        """teacher: a module with the inputs and outputs of the task's."""
        self.plain, self.teacher, self.config = plain, teacher, config
        self.module, self.objectives = plain.module, plain.objectives

    def __getattr__(self, name: str) -> Any:
        """Return what else the task has, such as `predict`."""
        return getattr(self.plain, name)

    def weights(self, batch: Batch) -> Sums:
        """Return those of the task."""
        return self.plain.weights(batch)

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure]:
        """Return the summed loss, soft labels included, and the number of correct predictions of each objective."""
        taught = tf.nest.map_structure(tf.stop_gradient, self.teacher(batch, Mode(mode.dtype, DropoutRng(None))))
        outputs, share = self.module(batch, mode), self.config.weight
        soft = self.plain.soft(outputs, taught, batch, self.config.temperature)
        return {
            name: measure._replace(loss=(1 - share) * measure.loss + share * soft[name]) if name in soft else measure
            for name, measure in self.plain.measured(outputs, batch).items()
        }


def opened(config: DistillConfig, parallel: ParallelConfig, comm: Communicator, check: Callable[[Run], None]) -> Run:
    """Return the teacher's run. Rank 0 alone reads it, and calls `check`, which raises an error if it does not fit.

    All ranks call it. Raise as `Run.open` and `check` do, UsageError for divided models.
    """
    path = config.teacher
    assert path is not None, "it is given"
    if parallel.tensor > 1:
        raise UsageError("distill.teacher is whole on each rank; leave out --parallel.tensor")

    def read() -> Run:
        run = Run.open(path, "the run directory of a trained model to --distill.teacher")
        check(run)
        return run

    return on_rank_zero(read, comm)


def load(
    run: Run, module: tf.Module, vocab: Path, student: ModelConfig, directory: Path, comm: Communicator
) -> dict[str, str]:
    """Set a teacher's weights in `module` on every rank; return the entry of config.json that says which they are.

    Rank 0 reads them, and the others have them from it. vocab: of the data. directory: of the student's run. All ranks
    call it. Raise UsageError if the teacher reads other tokens, or if the run was begun with another one.
    """
    if run.config.vocab_size != student.vocab_size:
        raise UsageError(
            f"--distill.teacher {run.path}: has {run.config.vocab_size} rows of word embeddings, but the model has "
            f"{student.vocab_size}; give a teacher with the same vocabulary"
        )
    loaded = on_rank_zero(lambda: _read(run, module, vocab, student, directory), comm)
    comm.broadcast_variables(list(variables(module).values()))
    return {ENTRY: loaded}


def _read(run: Run, module: tf.Module, vocab: Path, student: ModelConfig, directory: Path) -> str:
    """Load the weights; return their content hash. Raise as `load` does."""
    try:
        resume.check_vocabulary(vocabulary.path_in(run.path), vocab, student.causal)
    except UsageError as error:
        raise UsageError(f"--distill.teacher {run.path}: {error}") from error
    run.load(module)
    if checkpoint.steps(directory) and labels.settings(directory).get(ENTRY) not in (None, run.weights):
        raise UsageError(
            f"{directory}: was begun with a teacher of other weights than {run.path} has now; give that teacher, or "
            "another --run.directory"
        )
    return run.weights
