"""One table of names: what each weight is called here, in Google's checkpoints and in Hugging Face's, and its shape.

Shapes: D width, F feed-forward, V vocabulary, P positions, S segments, C classes. A kernel is [inputs, outputs] here,
as in y = x W; Hugging Face stores all of them, and Google those that it calls `output_weights`, as [outputs, inputs].
Sources: google-research/bert (modeling.py, run_pretraining.py, run_squad.py, run_classifier.py) and transformers
(modeling_bert.py).
"""

import fnmatch
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bert.config import ModelConfig
from bert.errors import InputError

Form = Literal["ours", "google", "huggingface"]
Shape = tuple[int, ...]
SHOWN = 4  # names in a message

# ours, Google's, Hugging Face's, what it is, the axes of its first tensor
EMBEDDINGS = (
    ("embeddings/word", "bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings", "table", "VD"),
    (
        "embeddings/position",
        "bert/embeddings/position_embeddings",
        "bert.embeddings.position_embeddings",
        "table",
        "PD",
    ),
    (
        "embeddings/segment",
        "bert/embeddings/token_type_embeddings",
        "bert.embeddings.token_type_embeddings",
        "table",
        "SD",
    ),
    ("embeddings/layer_norm", "bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm", "norm", "D"),
)
LAYER = (  # below "layer_0/", "bert/encoder/layer_0/" and "bert.encoder.layer.0."
    ("attention/query", "attention/self/query", "attention.self.query", "dense", "DD"),
    ("attention/key", "attention/self/key", "attention.self.key", "dense", "DD"),
    ("attention/value", "attention/self/value", "attention.self.value", "dense", "DD"),
    ("attention/output", "attention/output/dense", "attention.output.dense", "dense", "DD"),
    ("attention/layer_norm", "attention/output/LayerNorm", "attention.output.LayerNorm", "norm", "D"),
    ("mlp/inner", "intermediate/dense", "intermediate.dense", "dense", "DF"),
    ("mlp/outer", "output/dense", "output.dense", "dense", "FD"),
    ("mlp/layer_norm", "output/LayerNorm", "output.LayerNorm", "norm", "D"),
)
HEADS = (
    ("pooler", "bert/pooler/dense", "bert.pooler.dense", "dense", "DD"),
    ("masked_lm/transform", "cls/predictions/transform/dense", "cls.predictions.transform.dense", "dense", "DD"),
    ("masked_lm/layer_norm", "cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm", "norm", "D"),
    ("masked_lm/bias", "cls/predictions/output_bias", "cls.predictions.bias", "vector", "V"),
    ("next_sentence", "cls/seq_relationship", "cls.seq_relationship", "output", "D2"),
    ("answer_span", "cls/squad", "qa_outputs", "output", "D2"),
    ("classifier", "", "classifier", "classes", "DC"),
)
HEAD_NAMES = list(dict.fromkeys(row[0].split("/")[0] for row in HEADS))
TENSORS = {  # of what a row is: the ends of their names, in the three forms
    "table": (("", "", ".weight"),),
    "vector": (("", "", ""),),
    "norm": (("/gamma", "/gamma", ".weight"), ("/beta", "/beta", ".bias")),
    "dense": (("/kernel", "/kernel", ".weight"), ("/bias", "/bias", ".bias")),
    "output": (("/kernel", "/output_weights", ".weight"), ("/bias", "/output_bias", ".bias")),
    "classes": (("/kernel", "output_weights", ".weight"), ("/bias", "output_bias", ".bias")),
}


class Weight(NamedTuple):
    """One variable of ours: its names, and its shape here."""

    ours: str
    google: str
    huggingface: str
    shape: Shape

    def name(self, form: Form) -> str:
        """What it is called in a form."""
        return str(getattr(self, form))

    def transposed(self, form: Form) -> bool:
        """Whether a form stores it transposed."""
        kernel = self.ours.endswith("/kernel")
        return kernel and (form == "huggingface" or (form == "google" and self.google.endswith("output_weights")))

    def shape_in(self, form: Form) -> Shape:
        """Its shape as a form stores it."""
        return self.shape[::-1] if self.transposed(form) else self.shape

    def exchange(self, form: Form, value: np.ndarray) -> np.ndarray:
        """From a form to ours or back, which is the same: its values, transposed if they are to be."""
        return np.ascontiguousarray(value.T) if self.transposed(form) else value


def _weights(row: tuple[str, str, str, str, str], config: ModelConfig, classes: int = 0) -> Iterator[Weight]:
    *names, kind, axes = row
    sizes = {
        "D": config.hidden_size,
        "F": config.intermediate_size,
        "V": config.vocab_size,
        "2": 2,
        "C": classes,
        "P": config.max_position_embeddings,
        "S": config.type_vocab_size,
    }
    first = tuple(sizes[axis] for axis in axes)
    for ends, shape in zip(TENSORS[kind], (first, first[-1:]), strict=False):
        ours, google, huggingface = (name + end for name, end in zip(names, ends, strict=True))
        yield Weight(ours, google, huggingface, shape)


def encoder(config: ModelConfig) -> Iterator[Weight]:
    """The encoder's weights, one by one: a file may claim any number of layers."""
    for row in EMBEDDINGS:
        yield from _weights(row, config)
    for number in range(config.num_hidden_layers):
        for ours, google, huggingface, kind, axes in LAYER:
            here, there, elsewhere = f"layer_{number}", f"bert/encoder/layer_{number}", f"bert.encoder.layer.{number}"
            row = f"{here}/{ours}", f"{there}/{google}", f"{elsewhere}.{huggingface}", kind, axes
            yield from _weights(row, config)


def heads(config: ModelConfig, classes: int) -> dict[str, list[Weight]]:
    """The weights of each head that we have, by the head's name, the classifier's for so many classes."""
    found: dict[str, list[Weight]] = {}
    for row in HEADS:
        found.setdefault(row[0].split("/")[0], []).extend(_weights(row, config, classes))
    return found


def classes(form: Form, shapes: Mapping[str, Shape]) -> int:
    """How many classes a set of tensors has, which not every form states beside them: its biases of them, or 0."""
    bias = {"ours": "classifier/bias", "google": "output_bias", "huggingface": "classifier.bias"}[form]
    return next(iter(shapes.get(bias, ())), 0)


class Match(NamedTuple):
    """What a set of tensors is to us."""

    weights: list[Weight]
    heads: list[str]
    missing_heads: list[str]  # the heads that we have, and it has not
    aside: list[str]  # tensors that a model does not need


def match(config: ModelConfig, form: Form, shapes: Mapping[str, Shape], where: object, aside: Sequence[str]) -> Match:
    """The whole encoder, and each head of which there is a tensor; names that fit a pattern of `aside` are left aside.

    Raises InputError, naming tensors, if some are missing, of another shape, or unknown.
    """
    every = heads(config, classes(form, shapes))
    chosen = [name for name, of_head in every.items() if any(weight.name(form) in shapes for weight in of_head)]
    wanted = itertools.chain(encoder(config), *(every[name] for name in chosen))
    found: dict[str, Weight] = {}
    missing: list[str] = []
    for weight in wanted:
        name = weight.name(form)
        if name in shapes:
            found[name] = weight
        elif len(missing := [*missing, name]) > SHOWN:
            break
    if missing:
        what = ", ".join(missing[:SHOWN]) + (" and more" if len(missing) > SHOWN else "")
        raise InputError(f"{where}: no tensor {what}; the architecture in its configuration needs it")
    for name, weight in found.items():
        if shapes[name] != weight.shape_in(form):
            raise InputError(
                f"{where}: {name} has shape {list(shapes[name])}, its configuration gives "
                f"{list(weight.shape_in(form))}; the two are not of one model"
            )
    rest = sorted(shapes.keys() - found.keys())
    left = [name for name in rest if any(fnmatch.fnmatchcase(name, pattern) for pattern in aside)]
    if unknown := [name for name in rest if name not in left]:
        raise InputError(f"{where}: {listed(unknown)}: no part of a BERT model that we know; remove it from the file")
    return Match(list(found.values()), chosen, [name for name in HEAD_NAMES if name not in chosen], left)


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first few if there are many."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
