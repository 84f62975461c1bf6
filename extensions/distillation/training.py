"""Distillation: a trained model, the teacher, gives soft labels while another one is trained (Hinton et al. 2015).

    (1 - w) L + w T^2 KL(softmax(z' / T) || softmax(z / T))     z: logits of the model, z': of the teacher

Losses of the layers (extensions/distillation/layer_losses.py) can be added, or stand alone. Each is an objective of its
own, with a mean over the tokens of the whole batch.

The teacher computes in the step, without dropout and without gradients. Its weights are in no checkpoint of the run;
config.json has their hash, so that a run goes on with the same teacher only. A projection of hidden states is trained
with the model and kept in its checkpoints. Nothing else reads it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import tensorflow as tf

from bert import labels
from bert.core.config import DistillConfig, ModelConfig, ParallelConfig
from bert.core.errors import UsageError
from bert.model.dense import Dense
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, Observed, variables
from bert.model.initializers import Initializer
from bert.model.losses import Distance, Measure
from bert.runs import Run
from bert.text import vocabulary
from bert.text.sampler import Batch
from bert.training import checkpoint, resume
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from bert.training.objective import Objective
from bert.training.task import Sums, Task
from extensions.distillation import layer_losses

ENTRY = "teacher"  # of config.json: the content hash of its weights
PROJECTION = f"{checkpoint.DISTILLATION}/projection"  # of hidden states


class LayersTeacher(tf.Module):
    """A teacher without a head: what it computes is observed."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config, seed=0)


class Distillable(Protocol):
    """A task that can learn from soft labels: `measure` is `measured` of the outputs of its module."""

    module: tf.Module
    objectives: tuple[Objective, ...]
    divisors: Mapping[str, float]

    def weights(self, batch: Batch) -> Sums:
        """Return the weight of each objective in the batch."""

    def predict(self, batch: Batch, mode: Mode) -> Sums:
        """Return the outputs of the heads by name."""

    def measured(self, outputs: Any, batch: Batch) -> dict[str, Measure]:
        """Return the summed loss and the number of correct predictions of each objective, of the module's outputs."""

    def soft(self, outputs: Any, taught: Any, batch: Batch, temperature: float) -> Sums:
        """Return the summed loss with the teacher's outputs as labels, by the name of each objective that has one."""


class Distilled(Task):
    """A task that learns from a teacher; it is scored without it.

    Without a loss of outputs the heads do not learn, so that it is scored by the losses of the layers.
    """

    def __init__(self, task: Distillable, teacher: tf.Module, config: DistillConfig, seed: int = 0) -> None:
        """teacher: with an `encoder`; if its outputs are learned, with the inputs and outputs of the task's module.

        seed: of the projection.
        """
        self.task, self.teacher, self.config, self.module = task, teacher, config, task.module
        self.divisors, self.distances = task.divisors, tuple(config.distances)
        of_layers = [
            Objective(name, Distance, figures={}, factor=factor, learns_labels=False)
            for name, factor in config.distances.items()
        ]
        of_outputs = [_times(objective, config.outputs) for objective in task.objectives] if config.outputs else []
        self.objectives = (*of_outputs, *of_layers)
        self.projection: Dense | None = None
        if self.distances and config.projects(ours := task.module.encoder.config, theirs := teacher.encoder.config):
            self.projection = Dense(Initializer(ours, seed), PROJECTION, ours.hidden_size, theirs.hidden_size)
            task.module.projection_to_teacher = self.projection  # so it is one of the variables that learn

    @property
    def scored(self) -> Task:
        """Return the task without the teacher, if its heads learn."""
        return cast(Task, self.task) if self.config.outputs else self

    def predict(self, batch: Batch, mode: Mode) -> Sums:
        """Return the outputs of the heads by name."""
        return self.task.predict(batch, mode)

    def weights(self, batch: Batch) -> Sums:
        """Return the weights of the task. For each loss of layers, add its number of tokens, or of pairs of tokens."""
        weights, mask = self.task.weights(batch), batch["input_mask"] if self.distances else None
        for name in self.distances:
            counted = layer_losses.pairs if name == "attention" else layer_losses.tokens
            weights = weights | {name: tf.reduce_sum(counted(mask))}
        return {name: weights[name] for name in self.names}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, Measure | Distance]:
        """Return the summed losses, soft labels included, and the number of correct predictions of each objective."""
        own, theirs = (Observed(self.config.needs_last_states) if self.distances else None for _ in range(2))
        outputs, share = self.module(batch, mode._replace(observed=own)), self.config.weight
        by_teacher = Mode(mode.dtype, DropoutRng(None), observed=theirs)
        soft: Sums = {}
        if self.config.has_soft_labels:
            taught = tf.nest.map_structure(tf.stop_gradient, self.teacher(batch, by_teacher))
            soft = self.task.soft(outputs, taught, batch, self.config.temperature)
        elif own:
            self.teacher.encoder(own.tokens, by_teacher)
        measures: dict[str, Measure | Distance] = {}
        for name, measure in (self.task.measured(outputs, batch) if self.config.outputs else {}).items():
            mixed = (1 - share) * measure.loss + share * soft[name] if name in soft else measure.loss
            measures[name] = measure._replace(loss=mixed)
        if own and theirs:
            measures |= {name: Distance(loss) for name, loss in self._distances(own, theirs, mode, by_teacher).items()}
        return measures

    def _distances(self, own: Observed, theirs: Observed, mode: Mode, by_teacher: Mode) -> Sums:
        """Return the losses of the layers, by name."""
        assert own.tokens is not None, "the encoder has computed"
        student, teacher = self.module.encoder, self.teacher.encoder
        mask = own.tokens.mask if own.tokens.mask is not None else tf.ones_like(own.tokens.ids)
        weights = layer_losses.tokens(mask)  # [B, T]
        of_rows = tf.reshape(weights, [-1])
        taught = [tf.stop_gradient(x) for x in theirs.states]
        layers = self.config.teacher_layers(student.config, teacher.config)
        losses: Sums = {}
        if "cosine" in self.distances:
            losses["cosine"] = layer_losses.cosine(own.states[-1], taught[-1], of_rows)
        if "hidden" in self.distances:
            states = [self.projection(x) for x in own.states] if self.projection else own.states
            mapped = [taught[0], *(taught[layer + 1] for layer in layers)]
            losses["hidden"] = layer_losses.hidden(states, mapped, of_rows)
        if "attention" in self.distances:
            losses["attention"] = layer_losses.scores(
                [_scores(student, own, number, mode) for number in range(len(layers))],
                [tf.stop_gradient(_scores(teacher, theirs, layer, by_teacher)) for layer in layers],
                layer_losses.pairs(mask),
            )
        if "relations" in self.distances:
            layer, heads = self.config.relation(teacher.config)
            losses["relations"] = layer_losses.relations(
                student.projected(own, len(student.layers) - 1, mode),
                [tf.stop_gradient(x) for x in teacher.projected(theirs, layer, by_teacher)],
                heads,
                own.tokens.attention_mask(),
                weights,
            )
        return losses


def _times(objective: Objective, factor: float) -> Objective:
    """Return an objective with its loss multiplied by `factor`."""
    if factor == 1:
        return objective
    return objective._replace(factor=factor * (1.0 if objective.factor is None else objective.factor))


def _scores(encoder: Encoder, observed: Observed, layer: int, mode: Mode) -> tf.Tensor:
    q, k, _ = encoder.projected(observed, layer, mode)
    return layer_losses.attention_scores(q, k)


def opened(
    config: DistillConfig,
    student: ModelConfig,
    tokens: int,
    parallel: ParallelConfig,
    comm: Communicator,
    check: Callable[[Run], None],
) -> Run:
    """Return the teacher's run. Rank 0 alone reads it, and calls `check`, which raises an error if it does not fit.

    tokens: of the longest input. All ranks call it. Raise as `Run.open` and `check` do, UsageError for divided models,
    and for models whose layers cannot be compared.
    """
    path = config.teacher
    assert path is not None, "it is given"
    if parallel.tensor > 1:
        raise UsageError("distill.teacher is whole on each rank; leave out --parallel.tensor")
    if config.distances and parallel.overlap:
        raise UsageError(
            f"distill.{next(iter(config.distances))} needs the hidden states of all layers at once; leave out "
            "--parallel.overlap"
        )
    if not (config.distances or config.has_soft_labels):
        raise UsageError(
            "distill.teacher has no effect with distill.weight 0; leave it out, or give --distill.relations"
        )

    def read() -> Run:
        run = Run.open(path, "the run directory of a trained model to --distill.teacher")
        check(run)
        if (longest := run.config.max_position_embeddings) < tokens:
            raise UsageError(
                f"--distill.teacher {path}: has {longest} positions, fewer than the {tokens} tokens of an input"
            )
        try:
            config.check_fit(student, run.config)
        except UsageError as error:
            raise UsageError(f"--distill.teacher {path}: {error}") from error
        return run

    return on_rank_zero(read, comm)


def load(
    run: Run, module: tf.Module, vocab: Path, student: ModelConfig, directory: Path, comm: Communicator
) -> dict[str, str]:
    """Set a teacher's weights in `module` on every rank; return the entry of config.json that names these weights.

    Rank 0 reads the weights and sends them to the others. All ranks call this function. vocab: of the data. directory:
    of the student's run, or of the run that it continues from an update. Raise UsageError if the teacher reads other
    tokens, or if the run began with another teacher.
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
            "begin a new run in another --run.directory"
        )
    return run.weights
