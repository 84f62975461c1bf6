"""The model as an ONNX graph: the equations of bert/model/equations.py, built node by node from the weights.

B texts, T tokens, D width, N heads, H head width. Matrix products are computed in the compute type, everything else in
float32. Inputs are `input_ids`, `attention_mask` and, if there are segments, `token_type_ids` [B, T] int64, B and T of
any size; choices are [questions, choices, T], and each is a text. Names and axes of inputs and outputs are those of
optimum's exports, so that its classes load the file. An encoder alone can have the embedding of each text as a second
output, `sentence_embedding` as sentence-transformers names it; or the states of several layers as outputs, or one input
more, `read` [R] int64: the rows of [B*T, D] that the last layer computes. Names of the nodes of layer N begin with
`layer_N/`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bert.core.activations import ACTIVATIONS, ONNX_GELU_SINCE, POOLINGS
from bert.core.config import ModelConfig
from bert.core.errors import InputError
from bert.embedding import SHORTEST, Embedding
from bert.engines.graph_names import IDS, MASK, READ, SEGMENTS, SENTENCE, STATES
from bert.heads import CHOICE, KINDS
from bert.model import equations

IR_VERSION = 10  # of the file format; newer ones are not read by servers of 2024
LARGEST = 2_000_000_000  # bytes of weights in one file: protobuf ends at 2**31, names and nodes included
REDUCED_BY_INPUT = 18  # first operator set in which ReduceMax and ReduceMean take their axes as an input
MASKED = -10_000.0  # added to the scores of padding
NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def inputs(config: ModelConfig) -> tuple[str, ...]:
    """Return the names of a model's inputs. A model with at most one segment has no input for segments."""
    return (IDS, MASK, SEGMENTS) if config.type_vocab_size > 1 else (IDS, MASK)


def axes(head: str) -> list[str | int]:
    """Return the axes of each input of a model with a head."""
    return ["batch", "choices", "tokens"] if head == CHOICE.name else ["batch", "tokens"]


class Graph:
    """A graph in the making; a tensor is known by its name."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, np.ndarray], head: str, compute: str, opset: int
    ) -> None:
        """weights: by our names, float32. compute: type of the matrix products."""
        self.config, self.weights, self.head, self.opset = config, weights, head, opset
        self.type = NARROW.get(compute)  # None: float32
        self.nodes: list[Any] = []
        self.stored: dict[str, Any] = {}
        self.part = ""  # what the names of nodes begin with
        self.texts = {name: self.flat(name) for name in inputs(config)}  # the inputs [B, T]

    def node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; return the output's name."""
        (name,) = self.nodes_of(operation, 1, *inputs, **attributes)
        return name

    def nodes_of(self, operation: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node; return the names of its outputs."""
        name = f"{self.part}{operation.lower()}_{len(self.nodes)}"
        names = [name + (f"_{n}" if n else "") for n in range(outputs)]
        self.nodes.append(helper.make_node(operation, inputs, names, **attributes))
        return names

    def named(self, x: str, name: str) -> str:
        """Give a tensor the name by which a reader of the file finds it; return the name."""
        self.nodes.append(helper.make_node("Identity", [x], [name]))
        return name

    def constant(self, name: str, value: Any, narrow: bool = False) -> str:
        """Store an array under a name, once. narrow: in the compute type."""
        if name not in self.stored:
            array = np.asarray(value)
            if narrow and self.type is not None:
                array = array.astype(helper.tensor_dtype_to_np_dtype(self.type))
            self.stored[name] = numpy_helper.from_array(np.array(array, order="C"), name)
        return name

    def flat(self, name: str) -> str:
        """Return an input [B, T], in which each choice of a question is a text."""
        return self.node("Flatten", name, axis=2) if self.head == CHOICE.name else name

    def weight(self, name: str) -> str:
        """Store a weight as float32."""
        return self.constant(name, self.weights[name])

    def number(self, value: float) -> str:
        """Store a number as float32."""
        return self.constant(f"number_{value}", np.float32(value))

    def integers(self, *values: int) -> str:
        """Store a list of integers, such as a shape or axes."""
        return self.constant("integers_" + "_".join(map(str, values)), np.array(values, np.int64))

    def narrowed(self, x: str) -> str:
        """Return x in the compute type."""
        return x if self.type is None else self.node("Cast", x, to=self.type)

    def widened(self, x: str) -> str:
        """Return x in float32."""
        return x if self.type is None else self.node("Cast", x, to=TensorProto.FLOAT)

    def product(self, x: str, name: str, kernel: np.ndarray) -> str:
        """Return x [..., D] times a stored kernel, float32."""
        return self.widened(self.node("MatMul", self.narrowed(x), self.constant(name, kernel, narrow=True)))

    def split(self, x: str, count: int, axis: int) -> list[str]:
        """Return x divided along an axis of size `count`, which the parts keep with size 1."""
        return self.nodes_of("Split", count, x, self.integers(*[1] * count), axis=axis)

    def dense(self, x: str, name: str) -> str:
        """Return x W + b, or x W if there is no bias."""
        y = self.product(x, f"{name}/kernel", self.weights[f"{name}/kernel"])
        return self.node("Add", y, self.weight(f"{name}/bias")) if f"{name}/bias" in self.weights else y

    def enter(self, layer: str) -> None:
        """Begin the nodes of a layer; "": of no layer."""
        self.part = f"{layer}/" if layer else ""

    def norm(self, x: str, name: str) -> str:
        """Return the layer norm of x over its last axis, or its RMSNorm; x itself if the model has none there."""
        if f"{name}/layer_norm/gamma" not in self.weights:
            return x
        if self.config.norm == "rms":  # ONNX has it since operator set 23 only
            square, epsilon = self.node("Mul", x, x), self.number(self.config.layer_norm_epsilon)
            root = self.node("Sqrt", self.node("Add", self.reduced("ReduceMean", square, -1, keep=1), epsilon))
            return self.node("Mul", self.node("Div", x, root), self.weight(f"{name}/layer_norm/gamma"))
        stored = [f"{name}/layer_norm/{part}" for part in ("gamma", "beta")]
        given = [self.weight(weight) for weight in stored if weight in self.weights]
        return self.node("LayerNormalization", x, *given, axis=-1, epsilon=self.config.layer_norm_epsilon)

    def reduced(self, operation: str, x: str, axis: int, keep: int) -> str:
        """Return x reduced over an axis by an operation. keep: 1 if the axis remains with size 1, else 0."""
        if self.opset < REDUCED_BY_INPUT:
            return self.node(operation, x, axes=[axis], keepdims=keep)
        return self.node(operation, x, self.integers(axis), keepdims=keep)

    def activated(self, x: str, dense: str) -> str:
        """Return the activation of a dense layer of x. Raise InputError if it has no form in ONNX."""
        name = self.config.hidden_act
        onnx = ACTIVATIONS[name].onnx
        if onnx is None:
            raise InputError(
                f"the model's hidden_act {name} has no form in ONNX; give it one in bert/core/activations.py"
            )
        return onnx(self, self.dense(x, dense))

    def tokens(self) -> str:
        """Return T, as a list of one number."""
        return self.node("Slice", self.node("Shape", self.texts[IDS]), *(self.integers(n) for n in (1, 2)))

    def places(self) -> str:
        """Return the positions of tokens [T], float32."""
        count = self.node("Squeeze", self.tokens(), self.integers(0))
        first, step = (self.constant(f"place_{n}", np.int64(n)) for n in (0, 1))
        return self.node("Cast", self.node("Range", first, count, step), to=TensorProto.FLOAT)

    def local_mask(self) -> str:
        """Return what is added to scores [T, T]: no token attends to one beyond the window around it."""
        places = self.places()
        distance = self.node("Abs", self.node("Sub", places, self.node("Unsqueeze", places, self.integers(1))))
        beyond = self.node("Greater", distance, self.number(float(self.config.local_window)))
        return self.node("Mul", self.node("Cast", beyond, to=TensorProto.FLOAT), self.number(MASKED))

    def rotation(self, base: float) -> Callable[[str], str]:
        """Return a function that rotates queries or keys; add the angles' cosines and sines [T, H / 2] to the graph."""
        width = self.config.hidden_size // self.config.num_attention_heads
        exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
        slowness = self.constant(f"slowness_{base}", np.float32(base) ** exponents)  # tokens per radian
        angles = self.node("Div", self.node("Unsqueeze", self.places(), self.integers(1)), slowness)
        return functools.partial(self.rotated, rotation=(self.node("Cos", angles), self.node("Sin", angles)))

    def rotated(self, x: str, rotation: tuple[str, str]) -> str:
        """Return queries or keys x [B, N, T, H] rotated, as bert/model/rotary.py does, in the compute type."""
        width = self.config.hidden_size // self.config.num_attention_heads
        half = self.integers(width // 2, width // 2)
        first, second = self.nodes_of("Split", 2, self.widened(x), half, axis=-1)
        (a, b), (c, d) = ([self.node("Mul", y, z) for z in rotation] for y in (first, second))
        return self.narrowed(self.node("Concat", self.node("Sub", a, d), self.node("Add", c, b), axis=-1))

    def embeddings(self) -> str:
        """Return the sum of word, position and segment embeddings [B, T, D]."""
        x = self.node("Gather", self.weight("embeddings/word"), self.texts[IDS])
        if self.config.positions == "learned":
            table = self.weight("embeddings/position")
            x = self.node("Add", x, self.node("Slice", table, self.integers(0), self.tokens(), self.integers(0)))
        if self.config.type_vocab_size:
            table = self.weight("embeddings/segment")  # with one row: the sum with it
            segments = self.texts.get(SEGMENTS)
            x = self.node("Add", x, self.node("Gather", table, segments) if segments else table)
        x = self.norm(x, "embeddings")
        projected = self.config.embedding_width != self.config.hidden_size
        return self.dense(x, "embeddings/projection") if projected else x

    def heads(self, x: str, name: str, mask: str) -> list[str]:
        """Return queries, keys and values of x [B, N, T, H], in the compute type."""
        heads, width = self.config.num_attention_heads, self.config.hidden_size
        parts = [f"{name.removesuffix('joint')}{part}" for part in ("query", "key", "value")]
        kernel = np.concatenate([self.weights[f"{part}/kernel"] for part in parts], axis=1)
        joint = self.product(x, f"{name}/kernel", kernel)
        if self.config.biases:
            bias = np.concatenate([self.weights[f"{part}/bias"] for part in parts])
            joint = self.node("Add", joint, self.constant(f"{name}/bias", bias))
        divided = self.node("Reshape", self.narrowed(joint), self.integers(0, 0, 3, heads, width // heads))
        divided = self.node("Transpose", divided, perm=[2, 0, 3, 1, 4])  # [3, B, N, T, H]
        return [self.node("Squeeze", x, self.integers(0)) for x in self.split(divided, 3, axis=0)]

    def attended(self, q: str, k: str, v: str, mask: str) -> str:
        """Return the context of multi-head attention, before its last product [B, T, D]."""
        factor = self.number((self.config.hidden_size // self.config.num_attention_heads) ** -0.5)
        scores = self.widened(self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2])))
        scores = self.node("Add", self.node("Mul", scores, factor), mask)
        weights = self.narrowed(self.node("Softmax", scores, axis=-1))
        context = self.node("Transpose", self.widened(self.node("MatMul", weights, v)), perm=[0, 2, 1, 3])
        return self.node("Reshape", context, self.integers(0, 0, self.config.hidden_size))

    def times(self, x: str, y: str) -> str:
        """Return x * y."""
        return self.node("Mul", x, y)

    def add(self, x: str, y: str, norm: str | None) -> str:
        """Return x + y, or its norm of that name."""
        y = self.node("Add", x, y)
        return y if norm is None else self.norm(y, norm)

    def rows(self, x: str, read: str) -> str:
        """Return rows [R, D] of x [B, T, D]. read: [R] their indices in [B*T, D]."""
        return self.node("Gather", self.node("Reshape", x, self.integers(-1, self.config.hidden_size)), read)

    def states(self, read: str | None = None) -> list[str]:
        """Return the outputs of the embeddings and of each layer [B, T, D].

        read: name of the indices of rows; the last layer then returns only these rows [R, D].
        """
        inverse = self.node("Sub", self.number(1.0), self.node("Cast", self.texts[MASK], to=TensorProto.FLOAT))
        mask = self.node("Unsqueeze", self.node("Mul", inverse, self.number(MASKED)), self.integers(1, 2))
        embedded = self.embeddings()

        def scope(local: bool, base: float | None) -> equations.Scope[str]:
            where = self.node("Min", mask, self.local_mask()) if local else mask
            return where, None if base is None else self.rotation(base)

        return equations.states(self, embedded, self.config.of_layers(scope), read)

    def read(self, hidden: str, pooled: bool) -> str:
        """Return what the head of a task reads of the states [B, T, D]: one row [B, D] for a pooled head, or all."""
        if not pooled and not self.config.head_transform:
            return hidden
        x = self.over_tokens(hidden, self.config.pooling) if pooled else hidden
        if self.config.head_transform:
            return self.norm(self.activated(x, "pooler"), "pooler")
        onnx = POOLINGS[self.config.pooler_act].onnx
        assert onnx is not None, "each has a form in ONNX"
        return onnx(self, self.dense(x, "pooler"))

    def over_tokens(self, hidden: str, pool: str) -> str:
        """Return the states [B, T, D] pooled over the tokens of each text [B, D], as `bert.model.heads.pooled`."""
        if pool == "cls":
            return self.node("Gather", hidden, self.constant("first", np.int64(0)), axis=1)
        mask = self.node("Unsqueeze", self.texts[MASK], self.integers(2))
        if pool == "max":
            least = self.number(float(np.finfo(np.float32).min))
            inside = self.node("Where", self.node("Cast", mask, to=TensorProto.BOOL), hidden, least)
            return self.reduced("ReduceMax", inside, 1, keep=0)
        weights = self.node("Cast", mask, to=TensorProto.FLOAT)
        weights = self.node("Div", weights, self.node("ReduceSum", weights, self.integers(1)))
        return self.node("ReduceSum", self.node("Mul", hidden, weights), self.integers(1), keepdims=0)

    def embedding(self, hidden: str, made: Embedding) -> str:
        """Return the embedding of each text [B, D], as `bert.hidden_states` computes it."""
        x = self.over_tokens(hidden, made.pool)
        if made.normalize:
            length = self.node("Sqrt", self.node("ReduceSum", self.node("Mul", x, x), self.integers(1)))
            x = self.node("Div", x, self.node("Max", length, self.number(SHORTEST)))
        if (width := made.width(self.config.hidden_size)) < self.config.hidden_size:
            x = self.node("Slice", x, *(self.integers(number) for number in (0, width, 1)))
        return x

    def outputs(self, made: Embedding | None = None) -> dict[str, str]:
        """Return the tensors of the outputs, by the outputs' names.

        made: how an encoder without a head makes embeddings from its states.
        """
        head, hidden = self.head, self.states()[-1]
        if head:
            hidden = self.named(hidden, STATES)
        if head in KINDS:
            kind = KINDS[head]
            logits = self.dense(self.read(hidden, kind.pooled), head)
            if head == CHOICE.name:
                logits = self.node("Reshape", logits, self.node("Shape", IDS, start=0, end=2))
            if len(kind.logits) == 1:
                return {kind.logits[0]: logits}
            parts = self.split(logits, len(kind.logits), axis=-1)
            return {
                name: self.node("Squeeze", x, self.integers(-1)) for name, x in zip(kind.logits, parts, strict=True)
            }
        if head == "masked_lm":
            x, words = hidden, "masked_lm/words"
            if self.config.masked_lm_head == "tied":
                x, words = self.norm(self.activated(x, "masked_lm/transform"), "masked_lm"), "embeddings/word"
            scores = self.product(x, "masked_lm/kernel", self.weights[words].T)
            return {"logits": self.node("Add", scores, self.weight("masked_lm/bias"))}
        return {STATES: hidden} | ({SENTENCE: self.embedding(hidden, made)} if made else {})


def build(
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    head: str,
    compute: str,
    opset: int,
    made: Embedding | None = None,
) -> Any:
    """Return the ONNX model. head: first part of the names of the head's variables, or "" for the encoder alone.

    made: how an encoder alone makes embeddings from its states, as a second output; None: no embeddings.
    """
    graph = Graph(config, weights, head, compute, opset)
    width = len(weights[f"{head}/bias"]) if head else config.hidden_size
    names = graph.outputs(made)
    widths = {SENTENCE: made.width(width)} if made else {}
    return _model(graph, names, {name: shape_of(name, head, widths.get(name, width)) for name in names})


def build_states(config: ModelConfig, weights: Mapping[str, np.ndarray], layers: Sequence[int], read: bool) -> Any:
    """Return the encoder alone as an ONNX model, float32, whose outputs are the states of layers.

    layers: each once; 0 is the embeddings, -1 the last layer. read: whether `read` says which rows the last layer, the
    only one of `layers`, computes.
    """
    graph = Graph(config, weights, "", "float32", ONNX_GELU_SINCE)
    states = graph.states(READ if read else None)
    names = {f"state_{place}": states[layer] for place, layer in enumerate(layers)}
    axes: Sequence[str | int] = ["rows", config.hidden_size] if read else shape_of("", "", config.hidden_size)
    more = [helper.make_tensor_value_info(READ, TensorProto.INT64, ["rows"])] if read else []
    return _model(graph, names, dict.fromkeys(names, axes), more)


def _model(
    graph: Graph, names: Mapping[str, str], shapes: Mapping[str, Sequence[str | int]], more: Sequence[Any] = ()
) -> Any:
    """Return the model of a graph. names: of its tensors, by the names of the outputs. more: inputs besides texts."""
    for name, inner in names.items():
        graph.named(inner, name)
    texts = inputs(graph.config)
    of_texts = [helper.make_tensor_value_info(name, TensorProto.INT64, axes(graph.head)) for name in texts]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    made = helper.make_graph(graph.nodes, "bert", [*of_texts, *more], outputs, list(graph.stored.values()))
    opset = helper.make_opsetid("", graph.opset)
    model = helper.make_model(made, opset_imports=[opset], producer_name="bert.export")
    model.ir_version = IR_VERSION
    return model


def shape_of(output: str, head: str, width: int) -> Sequence[str | int]:
    """Return the axes of an output. width: size of the last axis; optimum needs it for its buffers on a GPU."""
    if output.endswith("_logits"):
        return ["batch", "tokens"]
    if head == CHOICE.name:
        return ["batch", "choices"]
    if output == SENTENCE:
        return ["batch", width]
    return ["batch", width] if head in KINDS and KINDS[head].pooled else ["batch", "tokens", width]


def save(model: Any, path: Path) -> None:
    """Write a model. If it is larger than 2 GB, its weights go to a second file, whose name ends with `.data`."""
    external = is_large(model)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data" if external else None)


def is_large(model: Any) -> bool:
    """Return whether a model needs a second file for its weights."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST
