"""One's own files of texts whose embeddings are compared."""

from collections.abc import Iterator
from pathlib import Path

from tasks import similarity, tables
from tasks.config import SCORED, TaskData
from tasks.embedding import Embedded
from tasks.examples import Skipped, TextGroup
from tasks.known import KnownData, Split


def _groups(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[TextGroup]:
    score = data.label if data.loss in SCORED else None
    return tables.groups(path, data.text, score, skipped=skipped, where=tables.conditions(data.where))


EMBED = KnownData(kind=Embedded, read=_groups, files={}, metrics=similarity.METRICS, regression=True, label="score")
