"""The graph gives for texts, pairs and choices what the model gives for the same tokens, one at a time."""

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.export import texts
from bert.export.trained import load
from bert.labels import Head
from tests.bert.export.served import CONFIG, HOSTILE, Python, a_run, ask, exported, softmax

pytest.importorskip("tensorflow_text", reason="its operations are part of the graph")

NAMES = ("no", "yes", "perhaps")
CLASSES = Head(kind="classifier", labels=NAMES)
NUMBER = Head(kind="classifier", regression=True)
CHOICE = Head(kind="choice", labels=("0", "1", "2"))
PAIRS = [(first, second) for first in HOSTILE[::3] for second in HOSTILE]


def one_by_one(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """As `_truncate_seq_pair` of google-research/bert: pop from the longer one, from the second if they are equal."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return first, second


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=9), st.integers(2, 50))
def test_what_does_not_fit_is_cut_from_the_longer_text(lengths: list[tuple[int, int]], room: int) -> None:
    first, second = (tf.constant(column) for column in zip(*lengths, strict=True))
    found = np.stack(texts.shares(first, second, room), axis=1)
    expected = [[len(x) for x in one_by_one([1] * one, [1] * two, room)] for one, two in lengths]
    assert found.tolist() == expected


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a run with classes, in served/1, and the run."""
    folder = tmp_path_factory.mktemp("classes")
    exported(a_run(folder / "run", CLASSES, length=29, first_length=11), folder / "served")
    return folder


def test_texts_have_the_classes_that_they_have_alone(classes: Path) -> None:
    python, found = Python(classes / "run", CLASSES), ask(classes / "served/1", text=HOSTILE)
    expected = softmax(np.stack([python.logits(python.tokens(text)[:27]) for text in HOSTILE]))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(found["probability"], expected.max(axis=1), atol=1e-5)
    assert [name.decode() for name in found["label"]] == [NAMES[number] for number in expected.argmax(axis=1)]
    assert found["labels"].tolist() == [[name.encode() for name in NAMES]] * len(HOSTILE)
    assert len({*found["label"].tolist()}) > 1  # the classes are told apart


def test_pairs_are_cut_as_in_training(classes: Path) -> None:
    python = Python(classes / "run", CLASSES)
    columns = dict(zip(("first", "second"), zip(*PAIRS, strict=True), strict=True))
    found = ask(classes / "served/1", "pairs", **columns)
    rows = []
    for first, second in PAIRS:
        kept = one_by_one(python.tokens(first)[:11], python.tokens(second), 26)
        rows.append(python.logits(*kept))
    np.testing.assert_allclose(found["probabilities"], softmax(np.stack(rows)), atol=1e-5)
    # A pair with an empty second text is not that text alone.
    alone = ask(classes / "served/1", text=["river"])["probabilities"]
    pair = ask(classes / "served/1", "pairs", first=["river"], second=[""])["probabilities"]
    assert abs(alone - pair).max() > 1e-3


def test_a_number_is_given_as_it_is(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", NUMBER)  # no lengths: as of an import
    python, found = Python(run, NUMBER), ask(exported(run, tmp_path / "served"), text=HOSTILE)
    expected = [python.logits(python.tokens(text)[:71])[0] for text in HOSTILE]
    assert [*found] == ["value"] and np.std(expected) > 0.1
    np.testing.assert_allclose(found["value"], expected, atol=1e-4)


def test_choices_are_compared_with_each_other(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", CHOICE, length=31)
    python, folder = Python(run, CHOICE), exported(run, tmp_path / "served")
    for choices in (3, 5):
        pairs = PAIRS[: len(PAIRS) // choices * choices]
        grid = [pairs[begin : begin + choices] for begin in range(0, len(pairs), choices)]
        first, second = ([[pair[i] for pair in row] for row in grid] for i in (0, 1))
        found = ask(folder, first=first, second=second)
        scores = [
            [python.logits(*one_by_one(python.tokens(one), python.tokens(two), 28))[0] for one, two in row]
            for row in grid
        ]
        np.testing.assert_allclose(found["probabilities"], softmax(np.array(scores)), atol=1e-5)
        assert found["choice"].tolist() == np.argmax(scores, axis=1).tolist()


def test_an_encoder_alone_gives_features(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", None)
    python, found = Python(run, None), ask(exported(run, tmp_path / "served", "--length", 17), text=HOSTILE)
    cls, sep = python.tokenizer.cls_id, python.tokenizer.sep_id
    states = [python.states([cls, *python.tokens(text)[:15], sep], 17)[0].numpy() for text in HOSTILE]
    np.testing.assert_allclose(found["mean"], [x.mean(axis=0) for x in states], atol=1e-4)
    np.testing.assert_allclose(found["cls"], [x[0] for x in states], atol=1e-4)
    assert found["cls"].shape == (len(HOSTILE), CONFIG.hidden_size)


def test_no_texts_have_no_classes(classes: Path) -> None:
    empty: list[str] = []
    for found in (
        ask(classes / "served/1", text=empty),
        ask(classes / "served/1", "pairs", first=empty, second=empty),
    ):
        assert {name: len(value) for name, value in found.items()} == dict.fromkeys(found, 0)


def test_a_request_that_cannot_be_meant_is_refused(classes: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="every first text needs its second"):
        ask(classes / "served/1", "pairs", first=["a", "b"], second=["a"])


def test_scores_that_are_no_numbers_are_an_error_not_an_answer(classes: Path) -> None:
    module = texts.Classifying(load(classes / "run"))
    assert module.output is not None
    module.output.output.bias.assign([math.nan, 0, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        module._of_texts(tf.constant(["river"]))  # eagerly
