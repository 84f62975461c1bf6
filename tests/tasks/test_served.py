"""What an export answers is what tasks.predict writes, for a run of each kind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import labels
from tasks import datasets
from tasks.config import TaskData
from tasks.examples import TaggedSentence, TextExample
from tasks.labels import Labels
from tasks.loading import entries, load
from tasks.model import Reader
from tasks.predict import predictions
from tests.bert.export.served import HOSTILE, a_run, ask, exported

pytest.importorskip("tensorflow_text", reason="its operations are part of the graph")
pytestmark = pytest.mark.slow

PAIRS = [(first, second) for first in HOSTILE[::4] for second in HOSTILE[::3]]
NAMES = Labels(names=("no", "yes", "perhaps"))


def served_and_predicted(
    folder: Path, data: TaskData, names: Labels, examples: Sequence[Any]
) -> tuple[Path, list[dict[str, Any]]]:
    """The SavedModel of a run with random weights, and the lines that tasks.predict writes."""
    described = entries(datasets.kind(data, names))
    run = a_run(folder / "run", labels.of(described, folder), described)
    model = load(run)
    return exported(run, folder / "served"), list(predictions(Reader(model, batch=8), examples))


def test_classes_of_texts_and_pairs(tmp_path: Path) -> None:
    data = TaskData(task="classify", length=29, first_length=11)
    texts = [TextExample(id=str(number), first=text) for number, text in enumerate(HOSTILE)]
    pairs = [TextExample(id="", first=first, second=second) for first, second in PAIRS]
    served, lines = served_and_predicted(tmp_path, data, NAMES, [*texts, *pairs])
    alone = ask(served, text=HOSTILE)
    both = ask(served, "pairs", first=[first for first, _ in PAIRS], second=[second for _, second in PAIRS])
    for name in ("label", "labels", "probabilities"):
        alone[name] = np.concatenate([alone[name], both[name]])
    assert [label.decode() for label in alone["label"]] == [line["label"] for line in lines]
    for told, row, line in zip(alone["labels"], alone["probabilities"], lines, strict=True):
        assert [name.decode() for name in told] == [*line["probabilities"]]
        np.testing.assert_allclose(row, [*line["probabilities"].values()], atol=1e-5)


def test_tags(tmp_path: Path) -> None:
    sentences = [["river"], ["a", "\u200e", "b"], [f"w{number}" for number in range(23)], ["z" * 40, "river"]]
    examples = [TaggedSentence(id="", words=tuple(words)) for words in sentences]
    data = TaskData(task="tag", length=19, stride=5)
    served, lines = served_and_predicted(tmp_path, data, Labels(names=("O", "B-PER", "I-PER")), examples)
    found = ask(served, words=[words + [""] * (23 - len(words)) for words in sentences])
    for row, line in enumerate(lines):
        count = len(line["words"])
        assert [tag.decode() for tag in found["tags"][row, :count]] == line["tags"]
        np.testing.assert_allclose(found["probabilities"][row, :count], line["probabilities"], atol=1e-5)
