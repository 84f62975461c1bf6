"""The table of weights: every variable of the encoder and of its heads, once.

A row is a part of the model; a dense layer or a norm has two variables. What depends on a model's variables reads this
table: their first values (initializers.py), how devices divide them (model_shard.py), how many there are (cost.py),
which of them decay, freeze and travel together (bert/training), and their names elsewhere (bert/convert). A new weight
is its equation (encoder.py, heads.py), its row here, and its names in the other formats (bert/convert/names.py).

Axes: D width, E width of the embeddings, F feed-forward, V vocabulary, P positions, S segments, C classes; a digit is a
size. Kernels are [inputs, outputs], as in y = x W.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from bert.core.config import ModelConfig
from bert.heads import EMBEDDING, GENERATOR, KINDS, MASKED_LM, REPLACED_TOKEN

PartType = Literal["table", "vector", "norm", "dense"]
Initial = Literal["normal", "residual", "zeros", "ones", "word", "position", "query", "key"]  # see initializers.py
COLUMNS, ROWS = -1, 0  # axes along which devices divide a part
SIZES = {  # fields of the configuration
    "D": "hidden_size",
    "E": "embedding_width",
    "F": "intermediate_size",
    "V": "vocab_size",
    "P": "max_position_embeddings",
    "S": "type_vocab_size",
}


class Tensor(NamedTuple):
    """A variable of a part."""

    axes: tuple[int, ...]  # which it has of the part's
    initial: Initial
    decays: bool = False  # whether weight decay applies, and the trust ratio of nvlamb


TENSORS: dict[PartType, dict[str, Tensor]] = {  # by the last part of the name, which a table and a vector do not have
    "table": {"": Tensor((0, -1), "normal", decays=True)},
    "vector": {"": Tensor((0,), "zeros")},
    "norm": {"gamma": Tensor((-1,), "ones"), "beta": Tensor((-1,), "zeros")},
    "dense": {"kernel": Tensor((0, -1), "normal", decays=True), "bias": Tensor((-1,), "zeros")},
}
UPDATE = {"lora_a": Tensor((0,), "normal", decays=True), "lora_b": Tensor((-1,), "zeros", decays=True)}
"""The matrices of a dense layer's low-rank update; each has a second axis, its rank."""
NAMED = TENSORS["norm"] | TENSORS["dense"] | UPDATE


class Part(NamedTuple):
    """A row of the table."""

    name: str  # in a layer without the layer's
    kind: PartType
    axes: str
    divided: int | None = None  # the axis along which tensor parallelism divides it; None: it is on every device
    when: Callable[[ModelConfig, int], bool] = lambda config, layer: True  # whether a model, and a layer of it, has it
    biased: Callable[[ModelConfig], bool] = lambda config: config.biases
    initial: Initial | None = None  # of its first variable; None: as its kind says


def _always(config: ModelConfig) -> bool:
    return True


def _is_projected(config: ModelConfig, layer: int) -> bool:
    return config.embedding_width != config.hidden_size


def _has_norm_of_embeddings(config: ModelConfig, layer: int) -> bool:
    return config.norm_placement == "post" or config.embedding_norm


def _is_tied(config: ModelConfig, layer: int) -> bool:
    return config.masked_lm_head == "tied"


WORDS = "embeddings/word"
OUTER = (
    Part(WORDS, "table", "VE", ROWS, initial="word"),
    Part("embeddings/position", "table", "PE", when=lambda c, _: c.positions == "learned", initial="position"),
    Part("embeddings/segment", "table", "SE", when=lambda c, _: c.type_vocab_size > 0),
    Part("embeddings/layer_norm", "norm", "E", when=_has_norm_of_embeddings),
    Part("embeddings/projection", "dense", "ED", when=_is_projected, biased=_always),
    Part("final/layer_norm", "norm", "D", when=lambda c, _: c.norm_placement == "pre"),
)
# Of an encoder with the embeddings of another one:
SHARING = (Part("projection", "dense", "ED", when=_is_projected, biased=_always),)
LAYER = (
    Part("attention/query", "dense", "DD", COLUMNS, initial="query"),  # the columns of a head lie together
    Part("attention/key", "dense", "DD", COLUMNS, initial="key"),
    Part("attention/value", "dense", "DD", COLUMNS),
    Part("attention/output", "dense", "DD", ROWS, initial="residual"),
    Part("attention/layer_norm", "norm", "D", when=lambda c, layer: layer > 0 or not c.embedding_norm),
    Part("mlp/inner", "dense", "DF", COLUMNS),
    Part("mlp/gate", "dense", "DF", COLUMNS, when=lambda c, _: c.gated),
    Part("mlp/outer", "dense", "FD", ROWS, initial="residual"),
    Part("mlp/layer_norm", "norm", "D"),
)
HEADS = (
    Part("pooler", "dense", "DD", biased=lambda c: c.biases or not c.head_transform),
    Part("pooler/layer_norm", "norm", "D", when=lambda c, _: c.head_transform),
    Part("masked_lm/transform", "dense", "DE", when=_is_tied),
    Part("masked_lm/layer_norm", "norm", "E", when=_is_tied),
    Part("masked_lm/bias", "vector", "V", ROWS),
    Part("masked_lm/words", "table", "VD", ROWS, when=lambda c, _: c.masked_lm_head == "linear"),
    Part("next_sentence", "dense", "D2", biased=_always),
    Part(f"{REPLACED_TOKEN}/transform", "dense", "DD", biased=_always),
    Part(f"{REPLACED_TOKEN}/output", "dense", "D1", biased=_always),
    *(Part(kind.name, "dense", f"D{kind.outputs or 'C'}", biased=_always) for kind in KINDS.values()),
    Part(EMBEDDING.name, "dense", "DD", biased=_always),
)
PARTS = {part.name: part for part in (*OUTER, *SHARING, *LAYER, *HEADS)}
NAME = re.compile(rf"({GENERATOR}/)?(?:layer_([0-9]+)/)?(.*)", re.DOTALL)


class Weight(NamedTuple):
    """A variable of a model."""

    name: str
    shape: tuple[int, ...]
    initial: Initial
    axis: int | None = None  # as `axis_of`


def of_part(part: Part, config: ModelConfig, prefix: str = "", layer: int = 0, outputs: int = 0) -> Iterator[Weight]:
    """Yield the variables of a part of the model, the first one first. outputs: C."""
    if not part.when(config, layer):
        return
    of_axes = {"C": outputs, "1": 1, "2": 2}
    sizes = [of_axes[axis] if axis in of_axes else getattr(config, SIZES[axis]) for axis in part.axes]
    for place, (last, tensor) in enumerate(TENSORS[part.kind].items()):
        if last in ("bias", "beta") and not part.biased(config):
            continue
        initial = part.initial if part.initial and place == 0 else tensor.initial
        axis = part.divided if part.divided in tensor.axes else None
        name = f"{prefix}{part.name}/{last}" if last else f"{prefix}{part.name}"
        yield Weight(name, tuple(sizes[axis] for axis in tensor.axes), initial, axis)


def encoder(config: ModelConfig, prefix: str = "") -> Iterator[Weight]:
    """Yield the encoder's weights. prefix: of their names; an encoder with a prefix uses another one's embeddings."""
    for part in SHARING if prefix else OUTER:
        yield from of_part(part, config, prefix)
    for layer in range(config.num_hidden_layers):
        for part in LAYER:
            yield from of_part(part, config, f"{prefix}layer_{layer}/", layer)


def of_model(config: ModelConfig, prefix: str = "") -> Iterator[Weight]:
    """Yield the encoder's weights and the weights of the heads whose size the configuration determines."""
    yield from encoder(config, prefix)
    for part in HEADS:
        if "C" not in part.axes:
            yield from of_part(part, config, prefix)


def head(name: str, config: ModelConfig, prefix: str = "", outputs: int = 0) -> Iterator[Weight]:
    """Yield the weights of the head of this name. outputs: C."""
    for part in HEADS:
        if part.name.split("/")[0] == name:
            yield from of_part(part, config, prefix, outputs=outputs)


def pretrained(config: ModelConfig, further: ModelConfig | None = None) -> Iterator[Weight]:
    """Yield all weights of a model in pretraining. further: an encoder that the objective trains beside it."""
    yield from encoder(config)
    if further:
        yield from encoder(further, f"{GENERATOR}/")
        yield from head(MASKED_LM, further, f"{GENERATOR}/")
    heads = (REPLACED_TOKEN,) if further else () if config.causal else (MASKED_LM, "pooler", "next_sentence")
    for name in heads:
        yield from head(name, config)


def count(weights: Iterable[Weight]) -> int:
    """Return the number of parameters."""
    return sum(math.prod(weight.shape) for weight in weights)


def axis_of(name: str) -> int | None:
    """Return the axis along which the variable of this name is divided, or None if it is not divided."""
    part, tensor = _find(name)
    return part.divided if part and tensor and part.divided in tensor.axes else None


def decays(name: str) -> bool:
    """Return whether weight decay applies to a variable of this name: norms and biases are exempt."""
    _, tensor = _find(name)
    if tensor is None:
        raise ValueError(f"variable {name}: no row of bert.model.weights is for it; add one")
    return tensor.decays


def depth(name: str) -> float:
    """Return a variable's depth in the model: 0 for the embeddings, 1 for layer 0, ..., infinity for the heads."""
    generator, layer, rest = NAME.match(name).groups()  # type: ignore[union-attr]
    if generator or not (layer or rest.startswith("embeddings/")):
        return float("inf")
    return int(layer) + 1 if layer else 0


def in_encoder(name: str) -> bool:
    """Return whether a variable belongs to the encoder, not to a head or to the state of training."""
    return depth(name) < float("inf") or name.startswith("final/")


def num_layers(names: Iterable[str]) -> int:
    """Return the number of layers of an encoder with these variables."""
    return max((int(place) for place in map(depth, names) if place < float("inf")), default=0)


def _find(name: str) -> tuple[Part | None, Tensor | None]:
    """Return the part that a variable belongs to, and the kind of variable it is in that part; None if there is none.

    A dense layer or norm that only training has, such as a projection to a teacher's states, is no part of the table.
    """
    rest = NAME.match(name)[3]  # type: ignore[index]
    if part := PARTS.get(rest):
        return part, TENSORS[part.kind].get("")
    of, _, last = rest.rpartition("/")
    return PARTS.get(of), NAMED.get(last)
