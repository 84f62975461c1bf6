"""Sentences whose words have tags: CoNLL-2003, and one's own files."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from bert.core.errors import InputError
from tasks import conll, entities
from tasks.config import TaskData
from tasks.examples import Skipped, TaggedSentence
from tasks.known import KnownData, Split
from tasks.tagging import Tagging

FILES: dict[Split, dict[str, str]] = {
    "train": {"": "eng.train"},
    "dev": {"": "eng.testa"},
    "test": {"": "eng.testb"},
}
ENTITIES = ("f1", "precision", "recall", "accuracy")


def _sentences(data: TaskData, path: Path, split: Split, skipped: Skipped) -> Iterator[TaggedSentence]:
    """Yield tagged sentences; tags of entities are converted to the scheme IOB2.

    Raise InputError for a tag that is no tag of an entity.
    """
    options = conll.ReadOptions(word=data.word, tag=data.tag, tags=split != "test", names=data.tag_names)
    for sentence in conll.read(path, skipped, options):
        if data.entities and sentence.tags is not None:
            try:
                tags = entities.to_iob2(sentence.tags)
            except InputError as error:
                raise InputError(
                    f"{path}: sentence {sentence.id}: {error}; for tags of another kind give --data.entities false"
                ) from error
            yield dataclasses.replace(sentence, tags=tuple(tags))
        else:
            yield sentence


CONLL2003 = KnownData(kind=Tagging, read=_sentences, files=FILES, metrics=ENTITIES)
TAG = KnownData(kind=Tagging, read=_sentences, files={}, metrics=ENTITIES)
