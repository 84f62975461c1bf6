"""Each word has the tag of its first piece, in the window of its sentence where that has the most context."""

from pathlib import Path

import numpy as np
import pytest

from bert.labels import Head
from tasks import alignment, inputs
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
    ["x"] * 9 + ["z" * 15, "y"] * 5,  # words that are longer than the overlap of windows
    ["x"] * 17,
    ["x"] * 18,
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a run with tags, in served/1, and the run."""
    folder = tmp_path_factory.mktemp("tags")
    exported(a_run(folder / "run", HEAD, length=LENGTH, stride=STRIDE), folder / "served")
    return folder


@pytest.mark.slow
def test_words_have_their_tags_and_padding_has_none(served: Path) -> None:
    python, longest = Python(served / "run", HEAD), max(map(len, SENTENCES))
    cut = alignment.windows(python.tokenizer, SENTENCES, LENGTH, STRIDE)
    assert len(cut.input_ids) > len(SENTENCES)
    probabilities = softmax(python.logits({name: getattr(cut, name) for name in inputs.NAMES}))
    padded = [sentence + [""] * (longest - len(sentence)) for sentence in SENTENCES]
    found = ask(served / "served/1", words=padded)
    for row, expected in enumerate(alignment.collect(cut, probabilities)):
        rest = longest - len(expected)
        names = [NAMES[number] for number in expected.argmax(axis=1)]
        assert [tag.decode() for tag in found["tags"][row]] == names + [""] * rest
        certain = [*expected.max(axis=1), *[0.0] * rest]
        np.testing.assert_allclose(found["probabilities"][row], certain, atol=1e-5)
    assert len({*found["tags"].flatten()}) > 3


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3)])
def test_nothing_to_tag_is_answered_with_nothing(shape: tuple[int, int], served: Path) -> None:
    found = ask(served / "served/1", words=np.full(shape, "").astype(object))
    assert found["tags"].tolist() == np.full(shape, b"").tolist()
