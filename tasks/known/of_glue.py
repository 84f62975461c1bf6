"""The tasks of GLUE."""

from collections.abc import Iterator
from pathlib import Path

from tasks import glue
from tasks.classification import Classification
from tasks.config import TaskData
from tasks.examples import Skipped, TextExample
from tasks.known import KnownData, Split


def _of(name: str) -> KnownData:
    task = glue.TASKS[name]

    def read(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[TextExample]:
        return glue.read(task, path, split, skipped)

    return KnownData(
        kind=Classification,
        read=read,
        files=task.files,
        originals=task.originals,
        metrics=task.metrics,
        labels=task.labels,
        pairs=bool(task.second),
        regression=task.regression,
        folder=task.folder,
    )


COLA = _of("cola")
SST2 = _of("sst2")
MRPC = _of("mrpc")
QQP = _of("qqp")
STSB = _of("stsb")
MNLI = _of("mnli")
QNLI = _of("qnli")
RTE = _of("rte")
WNLI = _of("wnli")
AX = _of("ax")
