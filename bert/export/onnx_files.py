"""A trained model as files of ONNX, compared with our own logits before they get their names.

model.onnx   the model: token ids in, logits out
model.json   its inputs and outputs, the names of classes, and how far its logits are from ours
config.json  the model for optimum and transformers, if it is of a family of theirs
tokenizer.json, tokenizer_config.json, special_tokens_map.json, and vocab.txt or vocab.json and merges.txt
             the tokenizer, for the client, which makes the token ids
labels.txt   the names of the classes, if there are any, in the order of the logits
modules.json, sentence_bert_config.json, 1_Pooling, 2_Normalize
             of an embedding model: how its embeddings are made, for sentence-transformers
"""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import tensorflow as tf

from bert import embedding, hidden_states
from bert.convert import huggingface, sentence
from bert.convert.run import without_weights
from bert.core import files
from bert.core.config import ModelConfig
from bert.core.errors import InputError, IntegrityError
from bert.embedding import Embedding
from bert.engines import onnx_graph
from bert.heads import CHOICE, EMBEDDING, KINDS, MASKED_LM, HeadSpec
from bert.labels import Head
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.heads import MaskedLM, TaskModel
from bert.runs import Run

Compute = Literal["float32", "float16"]  # onnxruntime has no products in bfloat16 for CPUs, so they cannot be compared
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}  # largest difference of a logit, relative to the largest logit
ROWS, CHOICES, SEED = 3, 2, 1  # of the comparison
Session = Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]]  # inputs by name -> the outputs in their order


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """A model as ONNX, and what its user must know."""

    model: Any
    config: ModelConfig
    head: Head | None
    kind: str
    """first part of the names of the head's variables; "" for an encoder alone"""
    embedding: Embedding | None
    """how the embedding of a text is made of the states of an encoder alone"""
    compute: Compute
    run: Run
    thresholds: tuple[float, ...]
    """probability from which each label is given, if there can be several"""
    module: "Module"
    """the same in TensorFlow"""

    @property
    def scored(self) -> HeadSpec | None:
        """The kind of head whose data the model can be scored on; None: it has no score."""
        if self.embedding:
            return EMBEDDING
        return KINDS[self.head.kind] if self.head else None

    @property
    def transformers(self) -> str:
        """The class of transformers that has its output, for BERT."""
        if self.head:
            return KINDS[self.head.kind].transformers
        return "BertForMaskedLM" if self.kind == MASKED_LM else "BertModel"

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(int(tf.size(weight)) for weight in self.module.trainable_variables)


class Module(tf.Module):
    """An encoder with its head, in TensorFlow."""

    def __init__(self, config: ModelConfig, kind: str, head: Head | None, made: Embedding | None = None) -> None:
        """made: how an encoder without a head makes embeddings from its states."""
        super().__init__()
        self.made = made
        self.of_task = TaskModel(config, 0, head) if head else None
        self.encoder = self.of_task.encoder if self.of_task else Encoder(config, seed=0)
        self.words = MaskedLM(config, seed=0) if kind == MASKED_LM else None

    def logits(self, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> list[np.ndarray]:
        """Return the outputs for the graph's inputs, in the order of the graph's outputs."""
        if ids.ndim == 3:  # questions with choices
            scores = self.logits(*(x.reshape(-1, x.shape[2]) for x in (ids, mask, segments)))
            return [x.reshape(ids.shape[:2]) for x in scores]
        tokens = TokenBatch(*(tf.constant(x, tf.int32) for x in (ids, mask, segments)))
        hidden = self.encoder(tokens, Mode(tf.float32, DropoutRng(None)))
        if self.of_task:
            logits = self.of_task.head(hidden, tokens.mask)
            return [x.numpy() for x in (logits if isinstance(logits, tuple) else (logits,))]
        if self.words:
            flat = tf.reshape(hidden, [-1, hidden.shape[2]])
            scores = self.words(flat, self.encoder.embeddings.word, tf.float32) + self.words.biases()
            vocabulary = self.encoder.config.vocab_size
            return [tf.reshape(scores[:, :vocabulary], [*ids.shape, vocabulary]).numpy()]
        if self.made is None:
            return [hidden.numpy()]
        return [hidden.numpy(), hidden_states.embedded(hidden, tokens.mask, self.made).numpy()]


def load(run: Path, compute: Compute, opset: int) -> Exported:
    """Return the newest checkpoint of a run as ONNX.

    Raise InputError if `run` is no run directory, IntegrityError if it is damaged.
    """
    opened = Run.open(run)
    config, head = opened.config, opened.head
    config.refuse_causal(run, ", which has no export to ONNX")
    _ = opened.tokenizer  # raises an error if its vocabulary, which goes with the model, has another size
    kind = head.kind if head else (MASKED_LM if opened.has(MASKED_LM) else "")
    if head and KINDS[head.kind].has_classes and not (head.labels or head.regression):
        raise InputError(f"{opened.settings_path}: names no classes; give the run directory of a fine-tuned model")
    made = None if kind else embedding.of(opened.settings, opened.settings_path)
    module = Module(config, kind, head, made)
    opened.load(module)
    weights = {name: variable.numpy() for name, variable in variables(module).items()}
    return Exported(
        model=onnx_graph.build(config, weights, kind, compute, opset, made),
        config=config,
        head=head,
        kind=kind,
        embedding=made,
        compute=compute,
        run=opened,
        thresholds=opened.thresholds(),
        module=module,
    )


def write(exported: Exported, folder: Path, int8: bool) -> dict[str, Any]:
    """Write the model's files to a folder, and return what model.json says.

    int8: quantise the weights of dense layers; their inputs are quantised while it runs, and embeddings stay float32.
    Raise IntegrityError if logits are not finite, or differ from our model's by more than `TOLERANCE`. With int8 the
    difference is only measured.
    """
    path = folder / "model.onnx"
    if int8:
        from onnxruntime import quantization

        whole, large = folder / "float32.onnx", onnx_graph.is_large(exported.model)
        onnx_graph.save(exported.model, whole)  # which empties the weights of a large model
        quantization.quantize_dynamic(
            whole,
            path,
            ["MatMul"],
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            reduce_range=True,  # to 7 bits: without VNNI the sum of two products of 8 bits overflows its 16 bits
            use_external_data_format=large,
        )
        for part in folder.glob("float32.onnx*"):
            part.unlink()
    else:
        onnx_graph.save(exported.model, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    tolerance = None if int8 else TOLERANCE[exported.compute]
    difference = compare(exported, "onnxruntime", lambda inputs: session.run(None, inputs), tolerance)
    described = description(exported, "int8" if int8 else exported.compute) | {"largest_difference": difference}
    write_beside(exported, folder, described)
    return described


def write_beside(exported: Exported, folder: Path, described: Mapping[str, Any]) -> None:
    """Write the files beside a model. described: content of model.json."""
    _write_for_others(exported, folder)
    if exported.head and exported.head.labels:
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in exported.head.labels), encoding="utf-8")
    files.write_json(folder / "model.json", described)


def _write_for_others(exported: Exported, folder: Path) -> None:
    """Write what transformers, optimum and sentence-transformers read beside a model.

    Print a note if transformers has no family for the model.
    """
    run = exported.run
    model = without_weights(run.path, exported.config, run.settings, exported.head)
    ids = huggingface.write_tokenizer(model, folder)
    try:
        if model.family.remote:
            raise InputError(f"transformers has no {model.family.title}")
    except InputError as error:
        print(f"note: {folder}: no config.json, so that optimum does not load it: {error}", file=sys.stderr)
        return
    huggingface.write_config(model, folder, exported.transformers, ids)
    if exported.embedding:
        sentence.write(exported.embedding, exported.config, folder)


def feed(config: ModelConfig, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of a session by name. ids, mask, segments: int64; a model may have no input for segments."""
    return dict(zip(onnx_graph.inputs(config), (ids, mask, segments), strict=False))


def compare(exported: Exported, name: str, session: Session, tolerance: float | None) -> float:
    """Return the largest difference between the logits of a session and ours on random tokens, relative to ours.

    name: of the program that computes them, for the message. tolerance: the largest difference that is accepted; None:
    any. Raise IntegrityError for a larger one, or for logits that are not finite.
    """
    random = np.random.default_rng(SEED)
    longest = exported.config.max_position_embeddings
    largest = 0.0
    texts = (ROWS, CHOICES) if exported.kind == CHOICE.name else (ROWS,)
    of_tokens = ["tokens" in axes for axes in output_axes(exported).values()]
    for tokens in {min(7, longest), longest}:
        lengths = random.integers(1, tokens + 1, texts)
        lengths[0] = tokens
        mask = (np.arange(tokens) < lengths[..., None]).astype(np.int64)
        ids = mask * random.integers(0, exported.config.vocab_size, mask.shape)
        segments = mask * random.integers(0, max(1, min(2, exported.config.type_vocab_size)), mask.shape)
        outputs = session(feed(exported.config, ids, mask, segments))
        expected = exported.module.logits(ids, mask, segments)
        for theirs, ours, by_token in zip(outputs, expected, of_tokens, strict=True):
            inside = mask > 0 if by_token else slice(None)  # nobody reads the states of padding
            if not (np.isfinite(ours).all() and np.isfinite(theirs[inside]).all()):
                raise IntegrityError(f"{exported.run.path}: its logits are not finite: its training failed")
            scale = max(1.0, float(np.abs(ours[inside]).max()))
            largest = max(largest, float(np.abs(theirs[inside] - ours[inside]).max()) / scale)
    if tolerance is not None and largest > tolerance:
        raise IntegrityError(
            f"{exported.run.path}: the logits of {name} differ from ours by {largest:.1e} of the largest; report this"
        )
    return largest


def output_axes(exported: Exported) -> dict[str, list[str | int]]:
    """Return the axes of each output: their names, or their sizes."""
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in exported.model.graph.output
    }


def description(exported: Exported, compute: str) -> dict[str, Any]:
    """Return what a client must know of the model."""
    head = exported.head
    return {
        "inputs": {name: onnx_graph.axes(exported.kind) for name in onnx_graph.inputs(exported.config)},
        "outputs": output_axes(exported),
        "head": exported.kind,
        "labels": list(head.labels) if head else [],
        "regression": bool(head and head.regression),
        "activation": head.activation if head else "",
        "embedding": dataclasses.asdict(exported.embedding) if exported.embedding else None,
        "thresholds": list(exported.thresholds),
        "longest": exported.config.max_position_embeddings,
        "compute": compute,
        "opset": exported.model.opset_import[0].version,
    }
