"""One's own files of texts whose embeddings are compared."""

from collections.abc import Iterator
from pathlib import Path

from extensions.embeddings import groups, similarity, sts
from extensions.embeddings.kind import Embedded
from tasks import tables
from tasks.config import SCORED, TaskData
from tasks.examples import Skipped, TextGroup
from tasks.known import KnownData, Split


def _read(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[TextGroup]:
    score = data.label if data.loss in SCORED else None
    return groups.read(path, data.text, score, skipped=skipped, where=tables.conditions(data.where))


EMBED = KnownData(
    kind=Embedded,
    read=_read,
    files={},
    columns=True,
    metrics=similarity.METRICS,
    regression=True,
    label="score",
    beside=sts.gold,
)
