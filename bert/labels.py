"""What the outputs of a fine-tuned model mean: its head and the names of its classes, as `config.json` of a run says.

    "head": "classifier", "id2label": {"0": "negative", "1": "positive"}    classes of a text or of a pair of texts
    "head": "classifier", "regression": true                                a number for a text or for a pair
    "head": "classifier", "regression": true, "activation": "sigmoid"       the same, as the sigmoid of its logit
    "head": "multilabel", "id2label": {"0": "toxic", ...}                   labels, any number of which are right
    "head": "tags", "id2label": {"0": "O", "1": "B-PER", ...}               classes of each word
    "head": "choice"                                                        a score of each choice
    "head": "answer_span"                                                   the first and the last token of an answer

The names are in the order of the logits. Everything else, such as labels in files and another model's classes, is
mapped by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert.core import files
from bert.core.errors import InputError
from bert.heads import CLASSIFIER, KINDS

MAX_LISTED = 10  # names in a message
SIGMOID = "sigmoid"  # an activation


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head of a fine-tuned model."""

    kind: str
    """one of `bert.heads.KINDS`"""
    labels: tuple[str, ...] = ()
    """names of the classes, in the order of the logits; none for a number, an answer, or choices without names"""
    regression: bool = False
    """whether the output is a number"""
    activation: str = ""
    """what makes the number of its logit: sigmoid; empty: it is the logit"""
    spaced: bool = field(default=True, compare=False)
    """whether each word that gets a tag is read as one within a text (`bert.text.tokenization.Tokenizer.spaced`)"""

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return KINDS[self.kind].outputs or (1 if self.regression else len(self.labels))

    def entries(self) -> dict[str, Any]:
        """Return the entries for `config.json`."""
        named: dict[str, Any] = {"id2label": by_number(self.labels)} if self.labels else {}
        named |= {"activation": self.activation} if self.activation else {}
        named |= {} if self.spaced else {"spaced_words": False}
        return {"head": self.kind, "regression": self.regression} | named

    def listed(self) -> str:
        """Return the names of the classes, for a message."""
        return ", ".join(self.labels[:MAX_LISTED]) + (", ..." if len(self.labels) > MAX_LISTED else "")


def by_number(labels: Iterable[str]) -> dict[str, str]:
    """Return the names as JSON's `id2label` needs them: by the number of the logit, as text."""
    return {str(number): label for number, label in enumerate(labels)}


def is_complete(id2label: object, classes: int) -> bool:
    """Return whether `id2label`, as read from a file, names each of `classes` classes."""
    if not isinstance(id2label, dict):
        return False
    return id2label.keys() == {*map(str, range(classes))} and all(type(name) is str for name in id2label.values())


def ordered(id2label: Mapping[str, str], path: Path) -> tuple[str, ...]:
    """Return the names in a complete `id2label`, in the order of the logits.

    path: the file that it was read from. Raise InputError if two classes have the same name, or if a name cannot be
    written to a file.
    """
    names = tuple(id2label[str(number)] for number in range(len(id2label)))
    if broken := [name for name in names if files.SURROGATE.search(name)]:
        raise InputError(f"{path}: id2label has half a surrogate pair in {broken[0]!a}; correct the name")
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise InputError(f"{path}: id2label names two classes {twice!a}; give each its own name")
    return names


def of(settings: Mapping[str, Any], path: Path) -> Head | None:
    """Return the head that a run's `config.json` names; None if it names none, as after pretraining.

    settings: the content of that file. Raise InputError, naming the file, if it has wrong entries for a head.
    """
    id2label = settings.get("id2label")
    kind = settings.get("head", None if id2label is None else CLASSIFIER.name)  # earlier imports have no "head"
    if kind is None:
        return None
    regression, spaced = settings.get("regression", False), settings.get("spaced_words", True)
    if type(kind) is not str or kind not in KINDS or type(regression) is not bool or type(spaced) is not bool:
        raise InputError(f"{path}: head is {kind!a} and regression is {regression!a}; give a run of this program")
    activation = settings.get("activation", "")
    if activation not in (("", SIGMOID) if regression else ("",)):
        raise InputError(f"{path}: activation is {activation!a:.60}; give a run of this program")
    if id2label is None:
        return Head(kind=kind, regression=regression, activation=activation)
    if not isinstance(id2label, dict) or not is_complete(id2label, len(id2label)):
        raise InputError(f"{path}: id2label does not name each class; give a run of this program")
    return Head(kind=kind, labels=ordered(id2label, path), regression=regression, activation=activation, spaced=spaced)


def settings(run: Path) -> dict[str, Any]:
    """Return the content of a run's `config.json`; {} if there is none. Raise InputError if it is damaged.

    Runs of pretraining have this file, too.
    """
    path = run / "config.json"
    try:
        content = files.read_json(path)
    except FileNotFoundError:
        return {}
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}); restore it, or train the model again") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: damaged (not an object); restore it, or train the model again")
    return content


def read(run: Path) -> Head:
    """Return the head of a run directory. Raise InputError if it has none, or if its `config.json` is damaged."""
    path = run / "config.json"
    head = of(settings(run), path)
    if head is None:
        raise InputError(f"{path}: names no head; give the run directory of a fine-tuned model, or an import of one")
    return head
