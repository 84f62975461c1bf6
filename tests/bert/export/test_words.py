"""Each word has the tag of its first piece, in the window of its sentence where that has the most context."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from bert.labels import Head
from squad import features
from tests.bert.export.served import Python, a_run, ask, exported, softmax

pytest.importorskip("tensorflow_text", reason="its operations are part of the graph")

NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
HEAD = Head(kind="tags", labels=NAMES)
LENGTH, STRIDE = 19, 5
SENTENCES = [
    ["river"],
    ["caf\u00e9", "river", "riverly", "\u6771\u4eac"],
    ["a", "\u200e", "b", "\u00ad"],  # words of which nothing is left
    [],
    [f"w{number}" for number in range(23)],
    ["z" * 40, "river", "b"],  # a word that fills more than a window
    ["x"] * 17,
    ["x"] * 18,
]


def expected(python: Python, sentence: list[str]) -> tuple[list[str], list[float]]:
    """Tags and their probabilities, one window at a time."""
    pieces = [(python.tokens(word) or [python.tokenizer.unk_id])[: LENGTH - 2] for word in sentence]
    ends = np.cumsum([0, *map(len, pieces)])
    ids = [piece for word in pieces for piece in word]
    cuts = features.cut(len(ids), LENGTH - 2, STRIDE)
    assert python.model.output is not None
    cls, sep = python.tokenizer.cls_id, python.tokenizer.sep_id
    windows = []
    for skipped, length in cuts:
        states = python.states([cls, *ids[skipped : skipped + length], sep], LENGTH)
        windows.append(softmax(python.model.output(states).numpy()[0]))
    rows = []
    for begin, end in itertools.pairwise(ends):
        context = {
            number: min(begin - skipped, skipped + length - end) + 0.01 * length
            for number, (skipped, length) in enumerate(cuts)
            if skipped <= begin < skipped + length
        }
        best = max(context, key=context.__getitem__)
        rows.append(windows[best][1 + begin - cuts[best][0]])
    return [NAMES[row.argmax()] for row in rows], [row.max() for row in rows]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a run with tags, in served/1, and the run."""
    folder = tmp_path_factory.mktemp("tags")
    exported(a_run(folder / "run", HEAD, length=LENGTH, stride=STRIDE), folder / "served")
    return folder


def test_words_have_their_tags_and_padding_has_none(served: Path) -> None:
    python, longest = Python(served / "run", HEAD), max(map(len, SENTENCES))
    padded = [sentence + [""] * (longest - len(sentence)) for sentence in SENTENCES]
    found = ask(served / "served/1", words=padded)
    told = set()
    for sentence, tags, probabilities in zip(SENTENCES, found["tags"], found["probabilities"], strict=True):
        names, certain = expected(python, sentence)
        rest = longest - len(sentence)
        assert [tag.decode() for tag in tags] == names + [""] * rest
        np.testing.assert_allclose(probabilities, certain + [0.0] * rest, atol=1e-5)
        told |= {*names}
    assert len(told) > 2


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3)])
def test_nothing_to_tag_is_answered_with_nothing(shape: tuple[int, int], served: Path) -> None:
    found = ask(served / "served/1", words=np.full(shape, "").astype(object))
    assert found["tags"].tolist() == np.full(shape, b"").tolist()
