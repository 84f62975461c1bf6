"""Checkpoints of TensorFlow 2's model garden (tensorflow/models, official/nlp), whose tensors are named by objects.

The encoder is a list of layers: layer_with_weights-0 to 3 are the embeddings and their norm, then come the layers of
attention, then the pooler. Since 2022 its parts have names instead (bert_encoder.py, BertEncoderV2):
_transformer_layers/0 and so on. Kernels of attention are divided into heads: [D, N, H] and, of the output, [N, H, D].
Here the tensors get the names and shapes that google-research/bert gives them. Heads of pretraining are not read.
"""

import re

import numpy as np
import tensorflow as tf

from bert.convert.bundle import Bundle
from bert.convert.names import Shape
from bert.core.config import ModelConfig
from bert.core.errors import InputError

END = "/.ATTRIBUTES/VARIABLE_VALUE"
LAYER = re.compile(r"(?:.*/)?layer_with_weights-(\d+)/(.+)")
EMBEDDINGS = {
    "0/embeddings": "word_embeddings",
    "1/embeddings": "position_embeddings",
    "2/embeddings": "token_type_embeddings",
    "3/gamma": "LayerNorm/gamma",
    "3/beta": "LayerNorm/beta",
}
FIRST = 4  # number of the first layer of attention
NAMED = re.compile(
    r"(?:.*/)?_(embedding|position_embedding|type_embedding|embedding_norm|pooler|transformer)_layers?/(.+)"
)
OF_NAMED = {"embedding": 0, "position_embedding": 1, "type_embedding": 2, "embedding_norm": 3}
PARTS = {  # below "bert/encoder/layer_0/"
    "_attention_layer/_query_dense": "attention/self/query",
    "_attention_layer/_key_dense": "attention/self/key",
    "_attention_layer/_value_dense": "attention/self/value",
    "_attention_layer/_output_dense": "attention/output/dense",
    "_attention_output_dense": "attention/output/dense",  # of 2020
    "_attention_layer_norm": "attention/output/LayerNorm",
    "_intermediate_dense": "intermediate/dense",
    "_output_dense": "output/dense",
    "_output_layer_norm": "output/LayerNorm",
}
POOLER = "next_sentence..pooler_dense/"  # where pretraining keeps it
IGNORED = (
    "masked_lm/*",
    "next_sentence*",
    "optimizer/*",
    "*.OPTIMIZER_SLOT*",
    "save_counter",
    "*CHECKPOINTABLE_OBJECT*",
)


class Objects:
    """The tensors of such a checkpoint by the names of google-research/bert."""

    def __init__(self, stored: Bundle, config: ModelConfig) -> None:
        """Raise InputError if two tensors get one name."""
        self.stored, self.config = stored, config
        self._places: dict[str, str] = {}
        for place in stored.shapes():
            name = name_of(place.removesuffix(END), config)
            if name in self._places:
                raise InputError(f"{place} and {self._places[name]} are both {name}; keep one of them")
            self._places[name] = place

    def shapes(self) -> dict[str, Shape]:
        """Return the shapes of all tensors, those of attention without heads."""
        stored = self.stored.shapes()
        return {name: self._flat(name, stored[place]) for name, place in self._places.items()}

    def dtype(self, name: str) -> tf.DType:
        """Return the type of a tensor."""
        return self.stored.dtype(self._places[name])

    def get(self, name: str) -> np.ndarray:
        """Return a tensor."""
        value = self.stored.get(self._places[name])
        return value.reshape(self._flat(name, value.shape))

    def _flat(self, name: str, shape: Shape) -> Shape:
        """Return the shape of a tensor with heads and their width as one axis."""
        heads = self.config.num_attention_heads
        divided = (heads, self.config.hidden_size // heads)
        if "/attention/" not in name:
            return shape
        if shape[-2:] == divided:  # of query, key and value
            return (*shape[:-2], divided[0] * divided[1])
        return (divided[0] * divided[1], *shape[2:]) if len(shape) == 3 and shape[:2] == divided else shape


def is_garden(stored: Bundle) -> bool:
    """Return whether the tensors of a checkpoint are named by objects."""
    return any(_layer(name.removesuffix(END), 1) and name.endswith(END) for name in stored.shapes())


def _layer(place: str, depth: int) -> tuple[int, str] | None:
    """Return the number of the layer that has a tensor, and its place there; None for a tensor of something else.

    depth: layers of attention.
    """
    if "OPTIMIZER_SLOT" in place:
        return None
    if match := LAYER.fullmatch(place):
        return int(match[1]), match[2]
    if not (match := NAMED.fullmatch(place)):
        return None
    part, rest = match[1], match[2]
    if part != "transformer":
        return OF_NAMED.get(part, FIRST + depth), rest
    number, _, rest = rest.partition("/")
    return (FIRST + int(number), rest) if number.isdecimal() and int(number) < depth else None


def name_of(place: str, config: ModelConfig) -> str:
    """Return Google's name of a tensor; one that is no encoder's or pooler's keeps its own."""
    if place.startswith(POOLER):
        return f"bert/pooler/dense/{place.removeprefix(POOLER)}"
    layer = _layer(place, config.num_hidden_layers)
    if not layer:
        return place
    number, rest = layer
    if number < FIRST:
        return f"bert/embeddings/{EMBEDDINGS.get(f'{number}/{rest}', place)}"
    if number == FIRST + config.num_hidden_layers:
        return f"bert/pooler/dense/{rest}"
    part, _, last = rest.rpartition("/")
    return f"bert/encoder/layer_{number - FIRST}/{PARTS.get(part, part)}/{last}"
