"""The names of weights in our checkpoints, in Google's and in Hugging Face's for BERT.

Those of other families in Hugging Face's format follow from BERT's (families.py). bert/model/weights.py has the shapes.
Our kernels are [inputs, outputs], as in y = x W. Hugging Face stores every kernel as [outputs, inputs]; Google only
those named `output_weights`.
Sources: google-research/bert (modeling.py, run_pretraining.py, run_squad.py, run_classifier.py) and transformers
(modeling_bert.py, modeling_megatron_bert.py; modeling_gpt2.py for causal models, whose kernels are [inputs, outputs]).
"""

import fnmatch
import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from bert.convert.families import Family
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.heads import KINDS, REPLACED_TOKEN
from bert.model.weights import PARTS, of_part

Form = Literal["ours", "google"] | Family  # a family: its names in Hugging Face's format
Shape = tuple[int, ...]
MAX_LISTED = 4  # names in a message
AUTO: Final = "auto"  # which head of transformers `classifier` is, says `architectures`

Names = tuple[str, str, str]  # ours of a row of bert/model/weights.py, Google's, Hugging Face's; empty: it has none

EMBEDDINGS = (
    ("embeddings/word", "bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings"),
    ("embeddings/position", "bert/embeddings/position_embeddings", "bert.embeddings.position_embeddings"),
    ("embeddings/segment", "bert/embeddings/token_type_embeddings", "bert.embeddings.token_type_embeddings"),
    ("final/layer_norm", "", "bert.encoder.ln"),
    ("embeddings/layer_norm", "bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm"),
    ("embeddings/projection", "", "bert.embeddings_project"),  # of ELECTRA
)
LAYER = (  # below "layer_0/", "bert/encoder/layer_0/" and "bert.encoder.layer.0."
    ("attention/query", "attention/self/query", "attention.self.query"),
    ("attention/key", "attention/self/key", "attention.self.key"),
    ("attention/value", "attention/self/value", "attention.self.value"),
    ("attention/output", "attention/output/dense", "attention.output.dense"),
    ("attention/layer_norm", "attention/output/LayerNorm", "attention.output.LayerNorm"),
    ("mlp/inner", "intermediate/dense", "intermediate.dense"),
    ("mlp/gate", "", "intermediate.gate"),  # BERT has no name for it
    ("mlp/outer", "output/dense", "output.dense"),
    ("mlp/layer_norm", "output/LayerNorm", "output.LayerNorm"),
)
PRE_NORMS = {"attention/layer_norm": "attention.ln", "mlp/layer_norm": "ln"}  # before the sub-layers, in MegatronBert
CAUSAL_EMBEDDINGS = (
    ("embeddings/word", "", "transformer.wte"),
    ("embeddings/position", "", "transformer.wpe"),
    ("final/layer_norm", "", "transformer.ln_f"),
)
CAUSAL_LAYER = (  # below "layer_0/" and "transformer.h.0."
    ("attention/layer_norm", "", "ln_1"),
    ("attention/query", "", "attn.c_attn.query"),
    ("attention/key", "", "attn.c_attn.key"),
    ("attention/value", "", "attn.c_attn.value"),
    ("attention/output", "", "attn.c_proj"),
    ("mlp/layer_norm", "", "ln_2"),
    ("mlp/inner", "", "mlp.c_fc"),
    ("mlp/outer", "", "mlp.c_proj"),
)
HEADS = (
    ("pooler", "bert/pooler/dense", "bert.pooler.dense"),
    ("pooler/layer_norm", "", "bert.pooler.norm"),  # BERT has no name for it
    ("masked_lm/transform", "cls/predictions/transform/dense", "cls.predictions.transform.dense"),
    ("masked_lm/layer_norm", "cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm"),
    ("masked_lm/words", "", "cls.predictions.words"),  # BERT has no name for it
    ("masked_lm/bias", "cls/predictions/output_bias", "cls.predictions.bias"),
    ("next_sentence", "cls/seq_relationship/output", "cls.seq_relationship"),
    (f"{REPLACED_TOKEN}/transform", "", "discriminator_predictions.dense"),  # of ELECTRA
    (f"{REPLACED_TOKEN}/output", "", "discriminator_predictions.dense_prediction"),
    *((kind.name, kind.google, kind.huggingface) for kind in KINDS.values()),
)
OUTPUTS = ("next_sentence", *KINDS)  # heads whose suffixes are others in Google's format
HEAD_NAMES = list(dict.fromkeys(row[0].split("/")[0] for row in HEADS))
NOT_GOOGLE = [row[0] for row in HEADS if not row[1]]  # heads that Google's format has no name for
SAME_NAME = [row[0] for row in HEADS if row[2] == "classifier"]  # heads that Hugging Face's format calls the same
SUFFIXES = {  # of each variable of a part, in Google's format and in Hugging Face's
    "table": (("", ".weight"),),
    "vector": (("", ""),),
    "norm": (("/gamma", ".weight"), ("/beta", ".bias")),
    "dense": (("/kernel", ".weight"), ("/bias", ".bias")),
    "output": (("_weights", ".weight"), ("_bias", ".bias")),
}


class Weight(NamedTuple):
    """One variable: its names in the forms, and its shape in ours."""

    ours: str
    google: str
    huggingface: str
    part: str  # our name of the part that it belongs to
    suffix: str  # the end of its name in Hugging Face's format
    shape: Shape

    def name(self, form: Form) -> str:
        """Return its name in a form."""
        if isinstance(form, Family):
            return form.name(self.part, self.huggingface.removesuffix(self.suffix)) + self.suffix
        return self.ours if form == "ours" else self.google

    def is_transposed(self, form: Form) -> bool:
        """Return whether a form stores it transposed."""
        if not self.ours.endswith("/kernel"):
            return False
        if form == "google":
            return self.google.endswith("output_weights")
        return form != "ours" and not self.huggingface.startswith("transformer.")

    def shape_in(self, form: Form) -> Shape:
        """Return the shape in which a form stores it."""
        if unused := self._unused_rows(form):
            return (unused + self.shape[0], *self.shape[1:])
        return self.shape[::-1] if self.is_transposed(form) else self.shape

    def read(self, form: Form, value: np.ndarray) -> np.ndarray:
        """Convert a value from a form to ours."""
        return np.ascontiguousarray(value.T) if self.is_transposed(form) else value[self._unused_rows(form) :]

    def write(self, form: Form, value: np.ndarray) -> np.ndarray:
        """Convert a value from ours to a form; rows that no model reads are zeros."""
        if unused := self._unused_rows(form):
            return np.concatenate([np.zeros((unused, *value.shape[1:]), value.dtype), value])
        return np.ascontiguousarray(value.T) if self.is_transposed(form) else value

    def _unused_rows(self, form: Form) -> int:
        return form.unused_positions if isinstance(form, Family) and self.ours == "embeddings/position" else 0


def _suffixes(ours: str) -> tuple[tuple[str, str], ...]:
    return SUFFIXES["output" if ours in OUTPUTS else PARTS[ours].kind]


def _weights(row: Names, config: ModelConfig, layer: int | None = None, classes: int = 0) -> Iterator[Weight]:
    ours, google, huggingface = row
    here = "" if layer is None else f"layer_{layer}/"
    if layer is not None:
        google = f"bert/encoder/layer_{layer}/{google}"
        huggingface = f"{'transformer.h' if config.causal else 'bert.encoder.layer'}.{layer}.{huggingface}"
    made = of_part(PARTS[ours], config, here, layer or 0, classes)
    for weight, (of_google, last) in zip(made, _suffixes(ours), strict=False):
        yield Weight(weight.name, google + of_google, huggingface + last, here + ours, last, weight.shape)


def encoder(config: ModelConfig) -> Iterator[Weight]:
    """Yield the encoder's weights. (A generator, since a damaged file may claim any number of layers.)"""
    embeddings: tuple[Names, ...] = CAUSAL_EMBEDDINGS if config.causal else EMBEDDINGS
    layers: tuple[Names, ...] = CAUSAL_LAYER if config.causal else LAYER
    if config.norm_placement == "pre" and not config.causal:  # Google's format has none of these
        embeddings = tuple((ours, "", theirs) for ours, _, theirs in embeddings)
        layers = tuple((ours, "", PRE_NORMS.get(ours, theirs)) for ours, _, theirs in layers)
    for row in embeddings:
        yield from _weights(row, config)
    for layer in range(config.num_hidden_layers):
        for row in layers:
            yield from _weights(row, config, layer)


def heads(config: ModelConfig, classes: int) -> dict[str, list[Weight]]:
    """Return the weights of every known head, by its name; a causal model has none.

    classes: of texts or of tokens.
    """
    weights: dict[str, list[Weight]] = {}
    for row in () if config.causal else HEADS:
        weights.setdefault(row[0].split("/")[0], []).extend(_weights(row, config, classes=classes))
    return weights


def class_count(form: Form, shapes: Mapping[str, Shape], absent: Container[str] = ()) -> int:
    """Return the number of classes of texts or tokens in a set of tensors (the size of a bias); 0 if there are none.

    absent: as in `match`.
    """
    for ours, google, theirs in HEADS:
        of_google, last = _suffixes(ours)[-1]
        if isinstance(form, Family):
            bias = form.name(ours, theirs) + last
        else:
            bias = f"{ours}/bias" if form == "ours" else google + of_google
        if PARTS[ours].axes == "DC" and ours not in absent and bias in shapes:
            return next(iter(shapes[bias]), 0)
    return 0


class Match(NamedTuple):
    """The weights among a set of tensors."""

    weights: list[Weight]
    heads: list[str]
    missing_heads: list[str]
    ignored: list[str]  # names of tensors that a model does not need


def match(
    config: ModelConfig,
    form: Form,
    shapes: Mapping[str, Shape],
    where: object,
    ignored: Sequence[str],
    absent: Container[str] = (),
    remedy: str = "remove them if the model does not need them",
) -> Match:
    """Find the encoder and the heads among tensors with these names and shapes.

    If one tensor of a head is there, all of them must be. where: for error messages. ignored: patterns of names that a
    model does not need. absent: heads that cannot be there, even if a tensor has the name of one of their tensors.
    remedy: for unknown tensors. Raises InputError, naming tensors, if some are missing, unknown or of another shape.
    """
    known_heads = heads(config, class_count(form, shapes, absent))
    possible = {name: head for name, head in known_heads.items() if name not in absent}
    present = [name for name, head in possible.items() if any(weight.name(form) in shapes for weight in head)]
    matched: dict[str, Weight] = {}
    missing: list[str] = []
    for weight in itertools.chain(encoder(config), *(known_heads[name] for name in present)):
        name = weight.name(form)
        if name in shapes:
            matched[name] = weight
        elif len(missing := [*missing, name]) > MAX_LISTED:
            break
    if missing:
        some = ", ".join(missing[:MAX_LISTED]) + (" and more" if len(missing) > MAX_LISTED else "")
        raise InputError(f"{where}: missing tensor {some}; the architecture in the configuration needs it")
    for name, weight in matched.items():
        if shapes[name] != weight.shape_in(form):
            raise InputError(
                f"{where}: {name} has shape {list(shapes[name])}, but the configuration gives "
                f"{list(weight.shape_in(form))}; use the weights and the configuration of one model"
            )
    rest = sorted(shapes.keys() - matched.keys())
    ignorable = [name for name in rest if any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored)]
    if unknown := [name for name in rest if name not in ignorable]:
        raise InputError(f"{where}: unknown tensors: {shortened(unknown)}; {remedy}")
    return Match(list(matched.values()), present, [name for name in known_heads if name not in present], ignorable)


def shortened(names: Sequence[str]) -> str:
    """Return the names for a message, only the first few if there are many, and without control characters."""
    names = [name if name.isprintable() else ascii(name) for name in names]
    return ", ".join(names[:MAX_LISTED]) + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
