"""Fine-tuning with a teacher: which run may teach a task, and the task that learns from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.core.config import FineTuneConfig
from bert.core.errors import UsageError
from bert.runs import Run
from bert.training.communicator import Communicator
from extensions.distillation import training
from tasks.task_type import TaskType
from tasks.training import FineTuning, Prepared


def teacher_of(prepared: Prepared[Any], run: FineTuneConfig, comm: Communicator) -> Run:
    """Return the run of the teacher. Raise as `training.opened` does, UsageError for one of another task."""
    kind, distill = prepared.kind, run.distill
    if prepared.task is not FineTuning:
        raise UsageError("distill.teacher is not made for the training of embeddings; leave it out")
    if distill.has_soft_labels and kind.described.regression:
        raise UsageError(
            "distill.teacher needs classes, which numbers do not have; leave it out, or give --distill.weight 0"
        )
    if distill.outputs == 0:
        raise UsageError("distill.outputs 0 leaves the head of a task untrained; leave it out")

    def check(opened: Run) -> None:
        if distill.has_soft_labels and opened.head != kind.described:
            has, needed = (
                f"{head.kind} {head.listed()}".strip() if head else "no head" for head in (opened.head, kind.described)
            )
            raise UsageError(
                f"--distill.teacher {opened.path}: has {has}, but the data are for {needed}; in this order"
            )

    return training.opened(distill, run.model, kind.length, run.parallel, comm, check)


def with_teacher(
    kind: TaskType, task: FineTuning, opened: Run, run: FineTuneConfig, vocab: Path, comm: Communicator
) -> tuple[training.Distilled, Mapping[str, str]]:
    """Return the task with soft labels of a teacher, and what config.json says of it. Raise as `training.load`."""
    has_head = run.distill.has_soft_labels
    teacher = kind.model(opened.config, seed=0) if has_head else training.LayersTeacher(opened.config)
    entry = training.load(opened, teacher, vocab, run.model, run.run.path, comm)
    return training.Distilled(task, teacher, run.distill, run.run.seed), entry
