"""Pretraining with a teacher: which run may teach, and the task that learns from it."""

import dataclasses
from pathlib import Path

import tensorflow as tf

from bert.core.config import ModelConfig, PretrainConfig
from bert.core.errors import UsageError
from bert.heads import MASKED_LM
from bert.model.encoder import Mode
from bert.pretraining import Pretraining, PretrainingModel
from bert.runs import Run
from bert.text.sampler import Batch
from bert.training import checkpoint
from bert.training.communicator import Communicator
from bert.training.task import Task
from extensions.distillation import training


class WordTeacher(PretrainingModel):
    """A trained model of masked words that gives its scores of the vocabulary, biases included."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, seed=0, pairs="none")

    def __call__(self, batch: Batch, mode: Mode) -> tf.Tensor:
        """Return the scores of the masked positions [B, P, V], float32."""
        words, _ = super().__call__(batch, mode)
        return (tf.cast(words, tf.float32) + self.masked_lm.biases())[..., : self.masked_lm.vocab_size]


def teacher_of(config: PretrainConfig, tokens: int, comm: Communicator) -> Run:
    """Return the run of the teacher. Raise as `training.opened` does, UsageError without masked words.

    tokens: of a sequence.
    """

    def check(run: Run) -> None:
        if config.model.causal or config.further or run.config.causal:
            raise UsageError(f"--distill.teacher {run.path}: the model and its teacher must predict masked words")
        if config.distill.has_soft_labels and not run.has(MASKED_LM):
            raise UsageError(
                f"--distill.teacher {run.path}: has no head for masked words; give a run of bert.pretrain or an import "
                "with that head, or --distill.weight 0 to learn its layers alone"
            )

    return training.opened(config.distill, config.model, tokens, config.parallel, comm, check)


def with_teacher(
    task: Task, run: Run, config: PretrainConfig, vocab: Path, comm: Communicator
) -> tuple[Task, dict[str, str]]:
    """Return the task with soft labels of a teacher, and what config.json says of it. Raise as `training.load`."""
    assert isinstance(task, Pretraining), "`teacher_of` checks it"
    make = WordTeacher if config.distill.has_soft_labels else training.LayersTeacher
    teacher = make(dataclasses.replace(run.config, vocab_multiple=1))
    begun = config.run.path
    if config.init.step and config.init.source and not checkpoint.steps(begun):
        begun = config.init.source  # whose updates up to `init.step` this run has
    entry = training.load(run, teacher, vocab, config.model, begun, comm)
    return training.Distilled(task, teacher, config.distill, config.run.seed), entry
