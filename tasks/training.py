"""Fine-tuning of every kind: the objective, the development set, and what one command does for all tasks."""

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from bert.core import ending, paths, rows, stores
from bert.core.config import BatchConfig, FineTuneConfig, ModelConfig
from bert.core.errors import UsageError
from bert.core.rows import Rows
from bert.heads import MASKED_LM, TAGS
from bert.model import losses
from bert.model.encoder import Mode
from bert.model.model_shard import UNSHARDED, Parts
from bert.text import records
from bert.text.sampler import Batch
from bert.text.tokenization import Tokenizer, tokenizer_for
from bert.training import checkpoint, fine_tuning, loop, prediction, preflight, stored_runs
from bert.training.communicator import Communicator
from bert.training.distributed import connect, on_rank_zero
from bert.training.objective import ACCURACY, Objective
from bert.training.step import Step
from bert.training.task import Task
from tasks.model import spaces_words
from tasks.task_type import TaskType

C = TypeVar("C", bound=FineTuneConfig)
Score = Callable[[dict[str, np.ndarray]], loop.Measures]
ADAPT = "extensions.lora.model:adapt"  # what gives an encoder the low-rank updates of `lora`
TEACHING: Rows[Callable[..., Any]] = Rows(
    {
        "teacher_of": "extensions.distillation.tasks:teacher_of",
        "with_teacher": "extensions.distillation.tasks:with_teacher",
    }
)
"""what opens the run of a teacher, and what makes of a task one that learns from it too"""


class FineTuning(Task):
    """Fine-tuning: the loss of a kind of task, as a mean over the weights of a batch."""

    def __init__(self, kind: TaskType, config: ModelConfig, seed: int, parts: Parts = UNSHARDED) -> None:
        self.kind, self.module = kind, kind.model(config, seed, parts)
        figures = ACCURACY if kind.counts_correct else {}
        self.objectives = (Objective(kind.objective, figures=figures),)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the sum of the weights."""
        return {self.kind.objective: tf.reduce_sum(self.kind.weights(batch))}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, losses.Measure]:
        """Return the summed loss and the number of right answers."""
        return self.measured(self.module(batch, mode), batch)

    def measured(self, outputs: Any, batch: Batch) -> dict[str, losses.Measure]:
        """Return the same as `measure`, from the logits."""
        return {self.kind.objective: self.kind.measure(outputs, batch)}

    def soft(self, outputs: Any, taught: Any, batch: Batch, temperature: float) -> dict[str, tf.Tensor]:
        """Return the summed loss with a teacher's logits as labels."""
        return {self.kind.objective: self.kind.soft(outputs, taught, batch, temperature)}

    def predict(self, batch: Batch, mode: Mode) -> dict[str, tf.Tensor]:
        """Return the logits, by the names of the head's outputs."""
        logits = self.module(batch, mode)
        return dict(zip(self.kind.head.logits, logits if isinstance(logits, tuple) else (logits,), strict=True))


class DevelopmentSet:
    """The scores on a development set; the first metric of the task tells which checkpoint is the best."""

    def __init__(self, kind: TaskType, data: records.Dataset, batch: BatchConfig, score: Score) -> None:
        """score: returns all metrics, in percent, for the logits of all samples by the names of the head's outputs."""
        self.kind, self.data, self.batch, self.score, self.measure = kind, data, batch, score, kind.metrics[0]

    def scores(self, step: Step, alive: Callable[[], None]) -> loop.Measures:
        """Return all metrics, in percent."""
        by_position = not self.kind.head.pooled
        return self.score(prediction.predict(step, self.data, self.batch, alive, by_position=by_position))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared(Generic[C]):
    """What a run trains on."""

    config: C
    """of the run, with what the examples say"""
    kind: TaskType
    data: records.Dataset
    """the training samples"""
    development: Callable[[BatchConfig], loop.Evaluator] | None
    """makes what scores the development set of the batch of the run; None: there is none"""
    entries: dict[str, Any]
    """entries of the run's config.json"""
    task: type[FineTuning] = FineTuning
    """what is trained"""
    weight: float | None = None
    """mean weight of a sample in the loss, if all updates are divided by the same; None: each by that of its own"""
    predict: str = ""
    """module of the command that uses the run, for the last line; empty: predict, in the folder of the command"""
    then: tuple[str, ...] = ("--input", "FILE", "--output", "FILE")
    """its flags"""
    finish: Callable[[Path], Any] | None = None
    """what one rank does with the directory of a finished run"""


def fine_tune(
    command: str,
    recipe: str,
    config: C,
    flagged: Collection[str],
    *,
    vocab: Path | None,
    longest: tuple[str, int],
    prepare: Callable[[C, Tokenizer, Path, Communicator], Prepared[C]],
) -> Path:
    """Train on the examples that `prepare` writes as records; return the run directory.

    command: name of the folder of its runs. flagged: fields of the model that the command line gives. vocab: the
    vocabulary that the command line gives. longest: name and value of the setting with the number of tokens of an
    input. prepare: takes the configuration, the tokenizer, its file and the ranks. Raise as `fine_tuning.sources` and
    `loop.train` do, and UsageError for inputs that are longer than the model's.
    """
    vocab, model = fine_tuning.sources(config, flagged, vocab)
    setting, tokens = longest
    if tokens > model.max_position_embeddings:
        raise UsageError(
            f"{setting} {tokens} is more than the model's {model.max_position_embeddings} positions; lower it"
        )
    comm = connect(config.run, config.parallel)
    tokenizer = tokenizer_for(vocab, model, all(map(spaces_words, (config.init.source, config.distill.teacher))))
    prepared = prepare(config, tokenizer, vocab, comm)
    data, kind = prepared.data, prepared.kind
    model = dataclasses.replace(model, vocab_size=model.vocab_size or data.description.vocab_size)
    run = fine_tuning.resolve(prepared.config, paths.workdir() / command / recipe, model, len(data), comm)
    stored_runs.take_up(run.run.path, comm)
    loop.print_on_first_rank(run.batch.change(config.batch), comm)
    teacher = TEACHING["teacher_of"](prepared, run, comm) if run.distill.teacher else None
    preflight.before_weights(run, comm, run.lora, teacher.config if teacher else None)
    task = prepared.task(kind, model, run.run.seed, comm.parts)
    if prepared.weight is not None:
        task.divisors = {kind.objective: run.batch.total * prepared.weight}
    if run.lora.rank:
        rows.load(ADAPT)(task.module.encoder, run.lora, run.run.seed, run.init.frozen_layers)
    read = {} if tokenizer.spaced or kind.head != TAGS else {"spaced_words": False}
    made, taught = TEACHING["with_teacher"](kind, task, teacher, run, vocab, comm) if teacher else (task, {})
    training = loop.Training(
        task=made,
        config=run,
        comm=comm,
        data=data,
        heldout=prepared.development(run.batch) if prepared.development else None,
        vocab=vocab,
        start_from=run.init.source,
        new_heads=("pooler", MASKED_LM, kind.head.name),
        entries={"recipe": recipe, **prepared.entries, **read, **taught},
    )
    loop.train(training)
    if finish := prepared.finish:
        on_rank_zero(lambda: finish(run.run.path), comm)
        on_rank_zero(lambda: stores.send_run(run.run.path), comm)
    if comm.rank == 0:
        updates = f"{checkpoint.newest(run.run.path):,} updates"
        then = ("python", "-m", prepared.predict or f"{command}.predict", "--model", run.run.path, *prepared.then)
        ending.print_next_command(run.run.path, updates, *then)
    return run.run.path


def scored(kind: TaskType, dev: records.Dataset | None, score: Score) -> Callable[[BatchConfig], loop.Evaluator] | None:
    """Return a function that makes the DevelopmentSet for a batch; None without samples."""
    return None if dev is None else lambda batch: DevelopmentSet(kind, dev, batch, score)
