"""A trained model as files of ONNX, compared with our own logits before they get their names.

model.onnx   the model: token ids in, logits out
model.json   its inputs and outputs, the names of classes, and how far its logits are from ours
vocab.txt    the vocabulary, for the client, which makes the token ids; or tokenizer.json, of a byte-level BPE
labels.txt   the names of the classes, if there are any, in the order of the logits
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import tensorflow as tf

from bert import labels
from bert.config import ModelConfig
from bert.errors import InputError, IntegrityError
from bert.export import onnx_graph
from bert.inputs import vocabulary
from bert.inputs.tokenization import tokenizer_for
from bert.labels import Head
from bert.model import heads
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.storage import files
from bert.training import checkpoint

Compute = Literal["float32", "float16"]  # onnxruntime has no products in bfloat16 for CPUs, so they cannot be compared
TOLERANCE = {"float32": 1e-4, "float16": 1e-2}  # largest difference of a logit, relative to the largest logit
ROWS, SEED = 3, 1  # of the comparison
MODULES: dict[str, Any] = {"classifier": heads.Classifier, "tags": heads.Tags}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """A model as ONNX, and what its user must know."""

    model: Any
    config: ModelConfig
    head: Head | None
    kind: str
    """first part of the names of the head's variables; "" for an encoder alone"""
    compute: Compute
    checkpoint: Path
    run: Path
    module: "Module"
    """the same in TensorFlow"""

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(int(tf.size(weight)) for weight in self.module.trainable_variables)


class Module(tf.Module):
    """An encoder with its head, in TensorFlow."""

    def __init__(self, config: ModelConfig, kind: str, head: Head | None) -> None:
        super().__init__()
        self.kind, self.encoder = kind, Encoder(config, seed=0)
        self.pooler = heads.Pooler(config, seed=0) if kind in heads.POOLED else None
        self.output: Any = None
        if kind == "answer_span":
            self.output = heads.AnswerSpan(config, seed=0)
        elif kind == "masked_lm":
            self.output = heads.MaskedLM(config, seed=0)
        elif kind == "choice":
            self.output = heads.Choice(config, seed=0)
        elif head is not None:
            self.output = MODULES[kind](config, 0, 1 if head.regression else len(head.labels))

    def logits(self, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> list[np.ndarray]:
        """Return the outputs, in the order of the graph's."""
        tokens = TokenBatch(*(tf.constant(x, tf.int32) for x in (ids, mask, segments)))
        hidden = self.encoder(tokens, Mode(tf.float32, DropoutRng(None)))
        if self.output is None:
            return [hidden.numpy()]
        if self.kind == "answer_span":
            return [x.numpy() for x in self.output(hidden)]
        if self.kind == "masked_lm":
            flat = tf.reshape(hidden, [-1, hidden.shape[2]])
            scores = self.output(flat, self.encoder.embeddings.word, tf.float32) + self.output.biases()
            vocabulary = self.encoder.config.vocab_size
            return [tf.reshape(scores[:, :vocabulary], [*ids.shape, vocabulary]).numpy()]
        return [self.output(self.pooler(hidden) if self.pooler else hidden).numpy()]


def load(run: Path, compute: Compute, opset: int) -> Exported:
    """Return the newest checkpoint of a run as ONNX.

    Raise InputError if `run` is no run directory, IntegrityError if it is damaged.
    """
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of a trained model")
    checkpoint.check_description(run)
    config = ModelConfig.load(run / "bert_config.json")
    if config.causal:
        raise InputError(f"{run}: a causal model, which has no export to ONNX")
    config = dataclasses.replace(config, fused_attention=False, recompute_activations=False)
    tokenizer_for(vocabulary.path_in(run), config)
    head = labels.of(labels.settings(run), run / "config.json")
    kind = head.kind if head else ("masked_lm" if _has(run, "masked_lm") else "")
    if head and kind in MODULES and not (head.labels or head.regression):
        raise InputError(f"{run / 'config.json'}: names no classes; give the run directory of a fine-tuned model")
    module = Module(config, kind, head)
    taken = checkpoint.load_weights(run, variables(module))
    weights = {name: variable.numpy() for name, variable in variables(module).items()}
    model = onnx_graph.build(config, weights, kind, compute, opset)
    return Exported(
        model=model, config=config, head=head, kind=kind, compute=compute, checkpoint=taken, run=run, module=module
    )


def _has(run: Path, head: str) -> bool:
    reader = tf.train.load_checkpoint(str(checkpoint.to_use(run) / checkpoint.BUNDLE))
    return any(name.startswith(f"{head}/") for name in reader.get_variable_to_shape_map())


def write(exported: Exported, folder: Path, int8: bool) -> dict[str, Any]:
    """Write the model's files to a folder, and return what model.json says.

    int8: quantise the weights of dense layers; their inputs are quantised while it runs, and embeddings stay float32.
    Raise IntegrityError if the logits are not those of our model; those of int8 are only measured.
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
            use_external_data_format=large,
        )
        for part in folder.glob("float32.onnx*"):
            part.unlink()
    else:
        onnx_graph.save(exported.model, path)
    difference = compare(exported, path, None if int8 else TOLERANCE[exported.compute])
    vocab = vocabulary.path_in(exported.run)
    (folder / vocab.name).write_bytes(vocab.read_bytes())
    described = description(exported, "int8" if int8 else exported.compute) | {"largest_difference": difference}
    if exported.head and exported.head.labels:
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in exported.head.labels), encoding="utf-8")
    files.write_json(folder / "model.json", described)
    return described


def compare(exported: Exported, path: Path, tolerance: float | None) -> float:
    """Return the largest difference between the logits of onnxruntime and ours on random tokens, relative to ours.

    tolerance: beyond it IntegrityError is raised; None: any difference is taken.
    """
    random = np.random.default_rng(SEED)
    longest = exported.config.max_position_embeddings
    largest = 0.0
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for tokens in {min(7, longest), longest}:
        lengths = random.integers(1, tokens + 1, ROWS)
        lengths[0] = tokens
        mask = (np.arange(tokens) < lengths[:, None]).astype(np.int64)
        ids = mask * random.integers(0, exported.config.vocab_size, mask.shape)
        segments = mask * random.integers(0, max(1, min(2, exported.config.type_vocab_size)), mask.shape)
        found = session.run(None, dict(zip(onnx_graph.INPUTS, (ids, mask, segments), strict=True)))
        for theirs, ours in zip(found, exported.module.logits(ids, mask, segments), strict=True):
            inside = slice(None) if exported.kind in heads.POOLED else mask > 0  # states of padding are nobody's
            if not (np.isfinite(ours).all() and np.isfinite(theirs[inside]).all()):
                raise IntegrityError(f"{exported.run}: its logits are not finite: its training failed")
            scale = max(1.0, float(np.abs(ours[inside]).max()))
            largest = max(largest, float(np.abs(theirs[inside] - ours[inside]).max()) / scale)
    if tolerance is not None and largest > tolerance:
        raise IntegrityError(
            f"{exported.run}: the logits of onnxruntime differ from ours by {largest:.1e} of the largest; report this"
        )
    return largest


def description(exported: Exported, compute: str) -> dict[str, Any]:
    """Return what a client must know of the model."""
    outputs = {
        value.name: [axis.dim_param or axis.dim_value or None for axis in value.type.tensor_type.shape.dim]
        for value in exported.model.graph.output
    }
    head = exported.head
    return {
        "inputs": {name: ["batch", "tokens"] for name in onnx_graph.INPUTS},
        "outputs": outputs,
        "head": exported.kind,
        "labels": list(head.labels) if head else [],
        "regression": bool(head and head.regression),
        "longest": exported.config.max_position_embeddings,
        "compute": compute,
        "opset": exported.model.opset_import[0].version,
    }
