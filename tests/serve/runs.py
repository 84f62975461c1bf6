"""Small runs with random weights, one for each thing that a service can be asked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert import labels
from bert.core import files
from bert.core.config import ModelConfig
from bert.labels import Head
from bert.model import heads
from bert.model.encoder import Encoder, variables
from bert.model.heads import TaskModel
from bert.training import checkpoint
from squad.model import AnswerSpans
from tasks import datasets
from tasks.config import TaskData
from tasks.labels import Labels
from tasks.loading import entries
from tests.bert.export.served import CONFIG, VOCAB, a_run

WINDOWS = {"windows.max_seq_length": 47, "windows.doc_stride": 11, "windows.max_query_length": 9}
TASKS = {
    "classify": (TaskData(task="classify", length=29), Labels(names=("no", "yes", "perhaps"))),
    "label": (
        TaskData(task="multilabel", length=29, windows="mean", stride=11),
        Labels(names=("toxic", "insult", "threat")),
    ),
    "regress": (TaskData(task="regress", length=31), Labels(regression=True)),
    "choose": (TaskData(task="choose", length=33), Labels(names=("0", "1", "2"))),
    "tag": (TaskData(task="tag", length=19, stride=5), Labels(names=("O", "B-PER", "I-PER"))),
}


def of_task(folder: Path, name: str) -> Path:
    """A run of tasks.train."""
    data, names = TASKS[name]
    described = entries(datasets.kind(data, names))
    return a_run(folder, labels.of(described, folder), described)


def of_questions(folder: Path, impossible: bool = True, seed: int = 1) -> Path:
    """A run of squad.train."""
    described = Head(kind="answer_span").entries() | {"config": WINDOWS | {"data.impossible": impossible}}
    return save(folder, variables(TaskModel(CONFIG, seed, AnswerSpans.described)), described)


def of_pretraining(folder: Path) -> Path:
    """A run of bert.pretrain that predicts masked words."""
    return save(folder, variables(Encoder(CONFIG, 1)) | variables(heads.MaskedLM(CONFIG, 1)), {"config": {}})


def save(
    folder: Path,
    weights: Mapping[str, tf.Variable],
    described: dict[str, Any],
    step: int = 3,
    config: ModelConfig = CONFIG,
) -> Path:
    """Write a run directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    config.save(folder / "bert_config.json")
    files.write_json(folder / "config.json", described)
    checkpoint.save(folder, step, {name: tf.identity(x) for name, x in weights.items()}, keep=1)
    return folder
