"""The names of a task's classes: found in the training examples, stored with the weights, mapped by name."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert.core.errors import InputError
from tasks.examples import TextExample

# Of numbers: the gradient of a squared error, and the square of its norm, are then finite in float32.
LARGEST = 1e15
MOST = 10_000  # classes; more are probably a column that is not the label
# Characters between several names, also in Chinese and Japanese; a comma without a space; and doccano's #.
JOINED = re.compile("[|;\t\r\n\u3001\uff0c\uff1b]|,(?! )|(?<=\\w)#(?=\\w)")
BETWEEN = re.compile(r"\s*[,/&+:]\s*|\s+(?:and\s+)?")  # between names where all parts of a name are names themselves
UNSET = ("-1", "-100")  # what `datasets` has for no label, and what PyTorch's loss leaves out
NO_LABEL = {"-", "?", "nan", "null", "<na>", "n/a"}  # SNLI where annotators do not agree; what pandas writes for none


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The classes in the order of the logits; none for a number."""

    names: tuple[str, ...] = ()
    """of the classes"""
    regression: bool = False
    """whether the label is a number"""
    activation: str = ""
    """what makes the number of its logit, as `bert.labels.Head` has it"""
    weights: tuple[float, ...] | None = None
    """of each class in the loss, or of the texts that have a label; None weights all equally"""

    @property
    def outputs(self) -> int:
        """Number of logits."""
        return 1 if self.regression else len(self.names)

    def numbers(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return the labels [n]: indices of classes int64, or numbers float32.

        Raise InputError for an unknown one, and for a number whose squared error float32 cannot hold.
        """
        if self.regression:
            for example in examples:
                check_size(float(example.label or 0), example.id)
            return np.array([example.label for example in examples], np.float32)
        return np.array([self.index(str(example.label), example.id) for example in examples], np.int64)

    def index(self, name: str, example: str) -> int:
        """Return the index of a class. Raise InputError, naming the example's id, if there is no such class."""
        try:
            return self.names.index(name)
        except ValueError as error:
            choices = ", ".join(self.names[:10]) + (", ..." if len(self.names) > 10 else "")
            raise InputError(f"example {example}: label {name!r} is not one of the model's ({choices})") from error

    def entries(self, head: str) -> dict[str, Any]:
        """Return the entries about labels and head for the records' manifest and a run's `config.json`."""
        named = {"id2label": {str(number): name for number, name in enumerate(self.names)}} if self.names else {}
        return {"head": head, "regression": self.regression, "class_weights": self.weights} | named

    def named(self, values: np.ndarray) -> dict[str, float]:
        """Return values [C] by the names of the classes."""
        return dict(zip(self.names, values.tolist(), strict=True))


def check_size(number: float, example: str) -> None:
    """Raise InputError, naming the example's id, for a number that cannot be learned in float32."""
    if abs(number) > LARGEST:
        raise InputError(
            f"example {example}: the number {number:g} is beyond {LARGEST:g}, too large to be learned in float32; "
            "divide all numbers, or take their logarithm"
        )


def from_entries(settings: Mapping[str, Any]) -> Labels:
    """Return the labels that `Labels.entries` described. Raise ValueError if it is something else."""
    names = settings.get("id2label", {})
    numbers = [str(number) for number in range(len(names))]
    if sorted(names) != sorted(numbers) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError("id2label does not name each class")
    weights = settings.get("class_weights")
    return Labels(
        names=tuple(names[number] for number in numbers),
        regression=bool(settings.get("regression", False)),
        weights=None if weights is None else tuple(map(float, weights)),
    )


def classes(counts: Counter[str], where: object) -> tuple[str, ...]:
    """Return the classes of training examples, sorted: numbers by value, others by name.

    counts: how often each occurs. Raise InputError if there is only one, or too many to be classes.
    """
    if len(counts) < 2:
        raise InputError(
            f"{where}: all {counts.total()} examples have the label {next(iter(counts), None)!r}; check it"
        )
    return ordered(counts, where)


def ordered(names: Collection[str], where: object) -> tuple[str, ...]:
    """Return the names sorted: numbers by value, others by name. Raise InputError if there are too many."""
    if len(names) > MOST:
        raise InputError(f"{where}: {len(names)} different labels; is it the column of the label?")
    return tuple(sorted(names, key=lambda name: (_number(name), name)))


def alike(names: Collection[str]) -> list[tuple[str, str]]:
    """Return pairs of names that differ only in white space, in case, or in how a number is written."""
    seen: dict[object, str] = {}
    keys = [(_number(name) if math.isfinite(_number(name)) else " ".join(name.casefold().split())) for name in names]
    pairs = zip(keys, names, strict=True)
    return [(other, name) for key, name in pairs if (other := seen.setdefault(key, name)) != name]


def doubtful(names: Collection[str]) -> list[str]:
    """Return names that often mean that there is no label: a dash and similar, and -1 if no other name is negative.

    -1 and 1 alone are two classes.
    """
    unset = [name for name in names if name in UNSET]
    if {*names} == {"-1", "1"} or sum(-math.inf < _number(name) < 0 for name in names) > len(unset):
        unset = []
    return [name for name in names if name.lower() in NO_LABEL or name in unset]


def joined(names: Collection[str]) -> list[str]:
    """Return names that are probably several names: by a separator in them, or because all their parts are names."""
    known = {*names}

    def is_of_names(name: str) -> bool:
        parts = BETWEEN.split(name)
        return len(parts) > 1 and known.issuperset(parts)

    return [name for name in names if JOINED.search(name) or is_of_names(name)]


def balanced(names: Iterable[str], counts: Counter[str]) -> tuple[float, ...]:
    """Return the weight of each class: n / (C n_c), so that all examples together weigh n; 0 for an absent class."""
    names = tuple(names)
    return tuple(counts.total() / (len(names) * counts[name]) if counts[name] else 0.0 for name in names)


def of_positives(having: Sequence[int], labelled: Sequence[int]) -> tuple[float, ...]:
    """Return for each label the weight of the texts that have it: texts without it, divided by texts with it.

    having: number of texts with each label. labelled: number of texts for which each label is known. If all of them
    have a label, or none, its weight is 1.
    """
    return tuple((all_ - ones) / ones if 0 < ones < all_ else 1.0 for ones, all_ in zip(having, labelled, strict=True))


def _number(name: str) -> float:
    try:
        value = float(name)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) else math.inf
