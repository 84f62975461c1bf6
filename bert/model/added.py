"""Variables beside a weight that are added to it, in a form that their row states.

Training changes them, and the weights of the encoder keep their values. Who reads a model's weights of a checkpoint
gets the sums (`bert.training.checkpoint.Stored`); the training that goes on gets the variables. So no reader knows what
they are for. A row names its function as a string, and it is imported where there are such variables.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert.core import rows
from bert.model.weights import axis_of


class Added(NamedTuple):
    """Variables that a term is computed from, and the weight that the term is added to."""

    name: re.Pattern[str]
    """of each of the variables; its group is what the weight's name has, too"""
    weight: str
    """name of the weight, with that group"""
    made_of: tuple[str, ...]
    """names of the variables, in the order of the arguments of `term`"""
    term: str
    """"package.module:name" of the function that makes of the variables what is added"""
    learnt: re.Pattern[str]
    """names of those variables which alone learn in an encoder that has some"""
    called: str
    """in messages"""


Term = Callable[..., np.ndarray]  # of the values of the variables
LOW_RANK = Added(
    name=re.compile(r"(.+)/lora_(?:a|b|scale)"),
    weight=r"\1/kernel",
    made_of=(r"\1/lora_a", r"\1/lora_b", r"\1/lora_scale"),
    term="extensions.lora.model:term",
    learnt=re.compile(r".+/lora_[ab]"),
    called="low-rank updates",
)
ADDED = (LOW_RANK,)


def row_of(name: str) -> Added | None:
    """Return the row of `ADDED` that a variable of this name belongs to, or None."""
    return next((row for row in ADDED if row.name.fullmatch(name)), None)


def terms(names: Iterable[str]) -> dict[str, list[tuple[Added, tuple[str, ...]]]]:
    """Return what these variables add to weights, by the name of the weight.

    Each entry is a row and the names of its variables, in the order of `Added.made_of`.
    """
    found: dict[str, dict[Added, tuple[str, ...]]] = {}
    for name in names:
        if (row := row_of(name)) and (match := row.name.fullmatch(name)):
            found.setdefault(match.expand(row.weight), {})[row] = tuple(map(match.expand, row.made_of))
    return {weight: list(of_weight.items()) for weight, of_weight in found.items()}


def term(row: Added, values: Sequence[np.ndarray]) -> np.ndarray:
    """Return what is added to the weight, computed from the values of the row's variables."""
    of_values: Term = rows.load(row.term)
    return of_values(*values)


def tunes(name: str) -> bool:
    """Return whether a variable belongs to an update that is added to a weight.

    In a model with such updates, the encoder's own weights do not learn.
    """
    return row_of(name) is not None


def is_learnt(name: str) -> bool:
    """Return whether a variable learns in place of the encoder's weights."""
    row = row_of(name)
    return row is not None and row.learnt.fullmatch(name) is not None


def has_terms(name: str) -> bool:
    """Return whether each part of the model computes only a term of this variable's gradient.

    All parts have the same variable, so its gradient is the sum of these terms.
    """
    return is_learnt(name) and axis_of(name) is None
