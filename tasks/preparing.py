"""What a run of `tasks.train` trains on: the records of its examples, and how its development set is scored."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert.core import paths
from bert.core.rows import Rows
from bert.text import records
from bert.text.tokenization import Tokenizer
from bert.thresholds import DEFAULT, Tuned
from bert.training import loop
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from tasks import datasets, features, inputs, labels, thresholds
from tasks.config import EMBED, TaskConfig
from tasks.loading import entries, load
from tasks.model import trained_labels
from tasks.task_type import TaskType
from tasks.texts import OfTexts
from tasks.training import Prepared, scored

OTHERS: Rows[Callable[[TaskConfig, Tokenizer, Path, Communicator], Prepared[TaskConfig]]] = Rows(
    {EMBED: "extensions.embeddings.training:prepare"}
)
"""what prepares instead of `prepare`, by the task"""
CHUNK = 4096  # records whose labels are read at once


def prepare(config: TaskConfig, tokenizer: Tokenizer, vocab: Path, comm: Communicator) -> Prepared[TaskConfig]:
    """Write the records of a task; return what the run trains on."""
    trained = trained_labels(config.init.source) or taught_labels(config)
    folder = on_rank_zero(lambda: features.build(config.data, tokenizer, vocab, paths.workdir(), trained), comm)
    data, kind = records.Dataset(folder, "train"), features.kind(config.data, folder)
    dev = records.Dataset(folder, "dev") if data.manifest.count("dev") > 0 else None
    gold: dict[str, np.ndarray] = {}

    def score(logits: dict[str, np.ndarray]) -> loop.Measures:
        assert dev is not None, "what is scored is there"
        gold.update(gold or expected(dev))
        (outputs,) = logits.values()
        return dict(kind.scores(outputs, gold).values)

    def tune(run: Path) -> Tuned:
        assert config.data.dev is not None, "it has been scored"
        return thresholds.tune(load(run, threshold=DEFAULT), config.data.dev, config.batch.per_device)

    finish = tune if kind.head.several and dev is not None else None
    in_windows = isinstance(kind, OfTexts) and kind.in_windows
    return Prepared(
        config=config,
        kind=kind,
        data=data,
        development=scored(kind, dev, score),
        entries=entries(kind),
        weight=on_rank_zero(lambda: mean_weight(kind, data), comm) if in_windows else None,
        finish=finish,
    )


def mean_weight(kind: TaskType, data: records.Dataset) -> float:
    """Return the mean weight of a record in the loss.

    The loss of an update is divided by this mean times its number of records. So all windows of a text together weigh
    as much as any other text, whatever updates they are in. Divided by the sum of its weights, an update of windows of
    one text would be a full step.
    """
    indices = np.arange(len(data))
    parts = (data.read(indices[begin : begin + CHUNK]) for begin in range(0, len(indices), CHUNK))
    return sum(float(np.sum(kind.weights(part), dtype=np.float64)) for part in parts) / len(indices)


def taught_labels(config: TaskConfig) -> tuple[str, ...]:
    """Return the classes of a teacher, so that the student's have the same order; () if the order is the usual one."""
    names = trained_labels(config.distill.teacher) if config.distill.has_soft_labels else ()
    usual = datasets.of(config.data).labels or labels.ordered(names, config.distill.teacher)
    return () if names == usual else names


def expected(data: records.Dataset) -> dict[str, np.ndarray]:
    """Return the features of all records, without the model's inputs."""
    indices = np.arange(len(data))
    parts = [data.read(indices[begin : begin + CHUNK]) for begin in range(0, len(indices), CHUNK)]
    names = [name for name in data.spec if name not in inputs.NAMES]
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in names}
