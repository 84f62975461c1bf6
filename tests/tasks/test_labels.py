"""Labels are found, ordered, weighted, stored and read back by name."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert.core.errors import InputError
from tasks import datasets, features, labels
from tasks.config import TaskData
from tasks.examples import TextExample
from tasks.labels import Labels


def test_numbers_are_sorted_by_value_and_names_by_name() -> None:
    assert labels.classes(Counter(["10", "9", "-1", "9"]), "f") == ("-1", "9", "10")
    assert labels.classes(Counter(["no", "Yes", "maybe", "7"]), "f") == ("7", "Yes", "maybe", "no")


def test_one_class_is_no_classification() -> None:
    with pytest.raises(InputError, match=r"^f: all 3 examples have the label 'x'"):
        labels.classes(Counter({"x": 3}), "f")
    with pytest.raises(InputError, match=r"^f: 10001 different labels"):
        labels.classes(Counter(map(str, range(10_001))), "f")


def test_names_that_look_alike_are_told() -> None:
    names = (" neg", "neg", "Neg", "New  York", "new york", "1", "01", "1.0", "-1", "nan", "inf", "pos")
    pairs = [(" neg", "neg"), (" neg", "Neg"), ("New  York", "new york"), ("1", "01"), ("1", "1.0")]
    assert labels.alike(names) == pairs


def test_names_that_mean_no_label_are_told() -> None:
    # "-" is gold_label of SNLI without a majority; -1 is what `datasets` has there (card of stanfordnlp/snli)
    for names, doubted in (
        (("-", "entailment", "neutral"), ["-"]),
        (("-1", "0", "1", "2"), ["-1"]),
        (("-1", "1"), []),
        (("-1", "1", "2", "3"), ["-1"]),
        (("-1", "no", "yes"), ["-1"]),
        (("-100", "0", "1"), ["-100"]),  # ignore_index of torch.nn.CrossEntropyLoss
        (("-2", "-1", "0", "1", "2"), []),
        (("NaN", "pos"), ["NaN"]),
        (("none", "favor"), []),  # a class of SemEval-2016's stances
    ):
        assert labels.doubtful(names) == doubted


def test_a_name_whose_parts_are_all_names_is_told() -> None:
    two = ["a b", "a/b", "a & b", "a+b", "a, b", "a and b", "__label__a __label__b"]  # the last: fastText
    assert labels.joined(["a", "b", "c d", "a c", "rock and roll", "__label__a", "__label__b", *two]) == two


@pytest.mark.parametrize("between", ["|", ";", "\t", "\n", "\u3001", ",", "#"])
def test_several_names_in_one_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], between: str) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "a", "labels": [f"good{between}cheap", "-"]},
        {"text": "b", "labels": ["Food, fresh"]},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    data = TaskData(task="multilabel", label="labels", train=path)
    features._of_sets(data, datasets.of(data), {"train": path}, ())
    told = capsys.readouterr().err
    assert f"is {f'good{between}cheap'!r} one label?" in told and "'-' is a class; where it means" in told


def test_balanced_classes_have_the_same_weight_together_and_all_that_of_the_examples() -> None:
    counts = Counter({"a": 6, "b": 1, "c": 2})
    weights = labels.balanced(("a", "b", "c", "never"), counts)
    assert weights == pytest.approx((9 / 24, 9 / 4, 9 / 8, 0))
    assert {counts[name] * weight for name, weight in zip("abc", weights, strict=False)} == {9 / 4}


@pytest.mark.parametrize(
    "stored", [Labels(names=("no", "yes"), weights=(0.5, 1.5)), Labels(names=("b", "a")), Labels(regression=True)]
)
def test_stored_labels_are_read_back(stored: Labels) -> None:
    assert labels.from_entries(stored.entries("classifier")) == stored


@pytest.mark.parametrize("names", [{"0": "a", "2": "b"}, {"0": 1, "1": "b"}])
def test_damaged_names_are_refused(names: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="id2label"):
        labels.from_entries({"id2label": names})


def test_a_number_stays_a_number() -> None:
    numbers = Labels(regression=True).numbers([TextExample(id="0", first="x", label=2.5)])
    assert numbers.dtype == np.float32 and numbers.tolist() == [2.5]


@pytest.mark.parametrize("number", [1e39, -1e39, 1e200, 3e38, 1e20])
def test_a_number_whose_squared_error_float32_cannot_hold_is_refused(number: float) -> None:
    """The largest float32 is about 3.4e38 (IEEE 754), so the square of 1.9e19 and more is infinite."""
    assert not np.isfinite(np.float32(number) ** 2)
    examples = [TextExample(id="a", first="x", label=-1e15), TextExample(id="b", first="x", label=number)]
    assert Labels(regression=True).numbers(examples[:1]).tolist() == [np.float32(-1e15)]
    with pytest.raises(InputError, match=r"example b: the number .* is beyond 1e\+15, too large"):
        Labels(regression=True).numbers(examples)
