"""The table of weights: names in our checkpoints, in Google's and in Hugging Face's for BERT, and shapes.

Those of other families in Hugging Face's format follow from BERT's (families.py).

Shapes: D width, E width of the embeddings, F feed-forward, V vocabulary, P positions, S segments, C classes. Our
kernels are [inputs, outputs], as in y = x W. Hugging Face stores every kernel as [outputs, inputs]; Google only those
named `output_weights`.
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

Form = Literal["ours", "google"] | Family  # a family: its names in Hugging Face's format
Shape = tuple[int, ...]
MAX_LISTED = 4  # names in a message
AUTO: Final = "auto"  # which head of transformers `classifier` is, says `architectures`

# our name, Google's, Hugging Face's, kind (a key of TENSORS), axes of the first tensor
EMBEDDINGS = (
    ("embeddings/word", "bert/embeddings/word_embeddings", "bert.embeddings.word_embeddings", "table", "VE"),
    (
        "embeddings/position",
        "bert/embeddings/position_embeddings",
        "bert.embeddings.position_embeddings",
        "table",
        "PE",
    ),
    (
        "embeddings/segment",
        "bert/embeddings/token_type_embeddings",
        "bert.embeddings.token_type_embeddings",
        "table",
        "SE",
    ),
    ("embeddings/layer_norm", "bert/embeddings/LayerNorm", "bert.embeddings.LayerNorm", "norm", "E"),
    ("embeddings/projection", "", "bert.embeddings_project", "dense", "ED"),  # if E is not D, in ELECTRA
)
LAYER = (  # below "layer_0/", "bert/encoder/layer_0/" and "bert.encoder.layer.0."
    ("attention/query", "attention/self/query", "attention.self.query", "dense", "DD"),
    ("attention/key", "attention/self/key", "attention.self.key", "dense", "DD"),
    ("attention/value", "attention/self/value", "attention.self.value", "dense", "DD"),
    ("attention/output", "attention/output/dense", "attention.output.dense", "dense", "DD"),
    ("attention/layer_norm", "attention/output/LayerNorm", "attention.output.LayerNorm", "norm", "D"),
    ("mlp/inner", "intermediate/dense", "intermediate.dense", "dense", "DF"),
    ("mlp/gate", "", "intermediate.gate", "dense", "DF"),  # if feed-forward layers are gated; BERT has no name for it
    ("mlp/outer", "output/dense", "output.dense", "dense", "FD"),
    ("mlp/layer_norm", "output/LayerNorm", "output.LayerNorm", "norm", "D"),
)
PRE_EMBEDDINGS = (  # of models whose norms precede the sub-layers, MegatronBert there; Google's format has none
    *((ours, "", theirs, kind, axes) for ours, _, theirs, kind, axes in EMBEDDINGS[:3]),
    ("final/layer_norm", "", "bert.encoder.ln", "norm", "D"),
    ("embeddings/layer_norm", "", "bert.embeddings.LayerNorm", "norm", "E"),  # of `embedding_norm`; not in MegatronBert
)
PRE_NORMS = {"attention/layer_norm": "attention.ln", "mlp/layer_norm": "ln"}
PRE_LAYER = tuple((ours, "", PRE_NORMS.get(ours, theirs), kind, axes) for ours, _, theirs, kind, axes in LAYER)
CAUSAL_EMBEDDINGS = (  # as above; Google's format has none
    ("embeddings/word", "", "transformer.wte", "table", "VD"),
    ("embeddings/position", "", "transformer.wpe", "table", "PD"),
    ("final/layer_norm", "", "transformer.ln_f", "norm", "D"),
)
CAUSAL_LAYER = (  # below "layer_0/" and "transformer.h.0."
    ("attention/layer_norm", "", "ln_1", "norm", "D"),
    ("attention/query", "", "attn.c_attn.query", "dense", "DD"),
    ("attention/key", "", "attn.c_attn.key", "dense", "DD"),
    ("attention/value", "", "attn.c_attn.value", "dense", "DD"),
    ("attention/output", "", "attn.c_proj", "dense", "DD"),
    ("mlp/layer_norm", "", "ln_2", "norm", "D"),
    ("mlp/inner", "", "mlp.c_fc", "dense", "DF"),
    ("mlp/outer", "", "mlp.c_proj", "dense", "FD"),
)
HEADS = (
    ("pooler", "bert/pooler/dense", "bert.pooler.dense", "dense", "DD"),
    ("pooler/layer_norm", "", "bert.pooler.norm", "norm", "D"),  # of `head_transform`; BERT has no name for it
    ("masked_lm/transform", "cls/predictions/transform/dense", "cls.predictions.transform.dense", "dense", "DE"),
    ("masked_lm/layer_norm", "cls/predictions/transform/LayerNorm", "cls.predictions.transform.LayerNorm", "norm", "E"),
    ("masked_lm/words", "", "cls.predictions.words", "table", "VD"),  # if `masked_lm_head` is linear; BERT has no name
    ("masked_lm/bias", "cls/predictions/output_bias", "cls.predictions.bias", "vector", "V"),
    ("next_sentence", "cls/seq_relationship/output", "cls.seq_relationship", "output", "D2"),
    (f"{REPLACED_TOKEN}/transform", "", "discriminator_predictions.dense", "dense", "DD"),  # of ELECTRA
    (f"{REPLACED_TOKEN}/output", "", "discriminator_predictions.dense_prediction", "dense", "D1"),
    *((kind.name, kind.google, kind.huggingface, "output", f"D{kind.outputs or 'C'}") for kind in KINDS.values()),
)
NEW_HEADS = ("pooler", "next_sentence", REPLACED_TOKEN, *KINDS)  # which have biases whatever the encoder has
HEAD_NAMES = list(dict.fromkeys(row[0].split("/")[0] for row in HEADS))
NOT_GOOGLE = [row[0] for row in HEADS if not row[1]]  # heads that Google's format has no name for
SAME_NAME = [row[0] for row in HEADS if row[2] == "classifier"]  # heads that Hugging Face's format calls the same
TENSORS = {  # kind -> for each of its tensors the suffixes in the order of the columns; other families have BERT's
    "table": (("", "", ".weight"),),
    "vector": (("", "", ""),),
    "norm": (("/gamma", "/gamma", ".weight"), ("/beta", "/beta", ".bias")),
    "dense": (("/kernel", "/kernel", ".weight"), ("/bias", "/bias", ".bias")),
    "output": (("/kernel", "_weights", ".weight"), ("/bias", "_bias", ".bias")),
}


class Weight(NamedTuple):
    """One variable: its names in the forms, and its shape in ours."""

    ours: str
    google: str
    huggingface: str
    part: str  # our name of what it is a tensor of
    suffix: str  # of its names in Hugging Face's format
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


def _weights(row: tuple[str, str, str, str, str], config: ModelConfig, classes: int = 0) -> Iterator[Weight]:
    *names, kind, axes = row
    sizes = {
        "D": config.hidden_size,
        "E": config.embedding_width,
        "F": config.intermediate_size,
        "V": config.vocab_size,
        "1": 1,
        "2": 2,
        "C": classes,
        "P": config.max_position_embeddings,
        "S": config.type_vocab_size,
    }
    first = tuple(sizes[axis] for axis in axes)
    part = names[0].split("/")[0]
    biased = config.biases or (part in NEW_HEADS and not (part == "pooler" and config.head_transform))
    for suffixes, shape in zip(TENSORS[kind][: 1 + biased], (first, first[-1:]), strict=False):
        ours, google, huggingface = (name + suffix for name, suffix in zip(names, suffixes, strict=True))
        yield Weight(ours, google, huggingface, names[0], suffixes[-1], shape)


def encoder(config: ModelConfig) -> Iterator[Weight]:
    """Yield the encoder's weights. (A generator, since a damaged file may claim any number of layers.)"""
    embeddings, layer = (EMBEDDINGS, LAYER) if config.norm_placement == "post" else (PRE_EMBEDDINGS, PRE_LAYER)
    theirs = "bert.encoder.layer"
    if config.causal:
        embeddings, layer, theirs = CAUSAL_EMBEDDINGS, CAUSAL_LAYER, "transformer.h"
    absent = {"embeddings/projection"} if config.embedding_width == config.hidden_size else set()
    absent |= set() if config.type_vocab_size else {"embeddings/segment"}
    absent |= set() if config.positions == "learned" else {"embeddings/position"}
    absent |= set() if config.gated else {"mlp/gate"}
    if config.norm_placement == "pre":
        absent |= {"layer_0/attention/layer_norm"} if config.embedding_norm else {"embeddings/layer_norm"}
    for row in embeddings:
        if row[0] not in absent:
            yield from _weights(row, config)
    for number in range(config.num_hidden_layers):
        for ours, google, huggingface, kind, axes in layer:
            if {ours, f"layer_{number}/{ours}"} & absent:
                continue
            row = (
                f"layer_{number}/{ours}",
                f"bert/encoder/layer_{number}/{google}",
                f"{theirs}.{number}.{huggingface}",
                kind,
                axes,
            )
            yield from _weights(row, config)


def heads(config: ModelConfig, classes: int) -> dict[str, list[Weight]]:
    """Return the weights of every known head, by its name; a causal model has none.

    classes: of texts or of tokens.
    """
    weights: dict[str, list[Weight]] = {}
    if config.causal:
        return weights
    linear = config.masked_lm_head == "linear"
    absent = {"masked_lm/transform", "masked_lm/layer_norm"} if linear else {"masked_lm/words"}
    absent |= set() if config.head_transform else {"pooler/layer_norm"}
    for row in HEADS:
        if row[0] not in absent:
            weights.setdefault(row[0].split("/")[0], []).extend(_weights(row, config, classes))
    return weights


def class_count(form: Form, shapes: Mapping[str, Shape], absent: Container[str] = ()) -> int:
    """Return the number of classes of texts or tokens in a set of tensors (the size of a bias); 0 if there are none.

    absent: as in `match`.
    """
    place = 2 if isinstance(form, Family) else ("ours", "google").index(form)
    for row in HEADS:
        name = form.name(row[0], row[2]) if isinstance(form, Family) else row[place]
        bias = name + TENSORS[row[3]][-1][place]
        if row[4] == "DC" and row[0] not in absent and bias in shapes:
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

    A head is expected whole if one of its tensors is there. where: for error messages. ignored: patterns of names that
    a model does not need. absent: heads that cannot be there, even if a tensor has the name of one of theirs. remedy:
    for tensors that are unknown. Raises InputError, naming tensors, if some are missing, unknown or of another shape.
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
