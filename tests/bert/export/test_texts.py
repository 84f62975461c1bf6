"""The graph gives for texts, pairs and choices what the model gives for the input that tasks makes of them."""

import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert import thresholds
from bert.export import texts
from bert.export.trained import load
from bert.labels import Head
from bert.runs import Run
from bert.thresholds import Tuned
from tasks import inputs
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


@pytest.mark.slow
def test_texts_have_the_classes_that_they_have_alone(classes: Path) -> None:
    python, found = Python(classes / "run", CLASSES), ask(classes / "served/1", text=HOSTILE)
    expected = softmax(python.logits(inputs.pairs(python.tokenizer, HOSTILE, [None] * len(HOSTILE), 29)))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(found["probability"], expected.max(axis=1), atol=1e-5)
    assert [name.decode() for name in found["label"]] == [NAMES[number] for number in expected.argmax(axis=1)]
    assert found["labels"].tolist() == [[name.encode() for name in NAMES]] * len(HOSTILE)
    assert len({*found["label"].tolist()}) > 1  # the classes are told apart


@pytest.mark.slow
def test_pairs_are_cut_as_in_training(classes: Path) -> None:
    python = Python(classes / "run", CLASSES)
    columns = dict(zip(("first", "second"), zip(*PAIRS, strict=True), strict=True))
    found = ask(classes / "served/1", "pairs", **columns)
    arrays = inputs.pairs(python.tokenizer, columns["first"], columns["second"], 29, 11)
    np.testing.assert_allclose(found["probabilities"], softmax(python.logits(arrays)), atol=1e-5)
    # A pair with an empty second text is not that text alone.
    alone = ask(classes / "served/1", text=["river"])["probabilities"]
    pair = ask(classes / "served/1", "pairs", first=["river"], second=[""])["probabilities"]
    assert abs(alone - pair).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mean", "max"])
def test_long_texts_have_the_labels_of_their_windows(how: str, tmp_path: Path) -> None:
    head = Head(kind="multilabel", labels=NAMES)
    run = a_run(tmp_path / "run", head, length=23, stride=9, windows=how)
    weights = Run.open(run)
    weights.encoder()  # of which the hash is
    names = dict(zip(NAMES, (0.25, 0.5, 0.875), strict=True))
    tuned = Tuned(thresholds=names, f1=names, examples=1, dataset="", dataset_sha256="", weights=weights.weights)
    thresholds.write(run, tuned)
    python, found = Python(run, head), ask(exported(run, tmp_path / "served"), text=HOSTILE)
    arrays = inputs.windows(python.tokenizer, HOSTILE, 23, 9)
    of_texts = np.split(python.logits(arrays), np.flatnonzero(arrays["window"] == 0)[1:])
    assert max(map(len, of_texts)) > 3 and len(of_texts) == len(HOSTILE)
    logits = np.array([rows.mean(axis=0) if how == "mean" else rows.max(axis=0) for rows in of_texts])
    np.testing.assert_allclose(found["probabilities"], 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert (found["given"] == (found["probabilities"] >= [*names.values()])).all() and {*found["given"].flat} == {0, 1}
    assert found["labels"].tolist() == [[name.encode() for name in NAMES]] * len(HOSTILE)


@pytest.mark.slow
def test_a_number_is_given_as_it_is(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", NUMBER)  # no lengths: as of an import
    python, found = Python(run, NUMBER), ask(exported(run, tmp_path / "served"), text=HOSTILE)
    expected = python.logits(inputs.pairs(python.tokenizer, HOSTILE, [None] * len(HOSTILE), 73))[:, 0]
    assert [*found] == ["value"] and np.std(expected) > 0.1
    np.testing.assert_allclose(found["value"], expected, atol=1e-4)


@pytest.mark.slow
def test_choices_are_compared_with_each_other(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", CHOICE, length=31)
    python, folder = Python(run, CHOICE), exported(run, tmp_path / "served")
    for choices in (3, 5):
        pairs = PAIRS[: len(PAIRS) // choices * choices]
        grid = [pairs[begin : begin + choices] for begin in range(0, len(pairs), choices)]
        first, second = ([[pair[i] for pair in row] for row in grid] for i in (0, 1))
        found = ask(folder, first=first, second=second)
        arrays = inputs.pairs(python.tokenizer, [pair[0] for pair in pairs], [pair[1] for pair in pairs], 31)
        scores = python.logits(arrays).reshape(-1, choices)
        np.testing.assert_allclose(found["probabilities"], softmax(scores), atol=1e-5)
        assert found["choice"].tolist() == scores.argmax(axis=1).tolist()


@pytest.mark.slow
def test_an_encoder_alone_gives_features(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", None)
    python, found = Python(run, None), ask(exported(run, tmp_path / "served", "--length", 17), text=HOSTILE)
    arrays = inputs.pairs(python.tokenizer, HOSTILE, [None] * len(HOSTILE), 17)
    states, mask = python.states(arrays).numpy(), arrays["input_mask"][..., None]
    np.testing.assert_allclose(found["mean"], (states * mask).sum(axis=1) / mask.sum(axis=1), atol=1e-4)
    np.testing.assert_allclose(found["cls"], states[:, 0], atol=1e-4)
    assert found["cls"].shape == (len(HOSTILE), CONFIG.hidden_size)


@pytest.mark.slow
def test_no_texts_have_no_classes(classes: Path) -> None:
    empty: list[str] = []
    for found in (ask(classes / "served/1", text=empty), ask(classes / "served/1", "pairs", first=empty, second=empty)):
        assert {name: len(value) for name, value in found.items()} == dict.fromkeys(found, 0)


def test_a_request_that_cannot_be_meant_is_refused(classes: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="every first text needs its second"):
        ask(classes / "served/1", "pairs", first=["a", "b"], second=["a"])


def test_scores_that_are_no_numbers_are_an_error_not_an_answer(classes: Path) -> None:
    module = texts.Classifying(load(classes / "run"))
    assert module.output is not None
    module.output.output.output.bias.assign([math.nan, 0, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        module._of_texts(tf.constant(["river"]))  # eagerly
