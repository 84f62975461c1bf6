"""Encoders of transformers in NumPy, and the shapes of their tensors, which transformers 5.23 writes.

The equations are those of modeling_distilbert.py, modeling_electra.py and modeling_roberta.py.
"""

import math
from pathlib import Path

import numpy as np

from bert.convert import __main__ as convert
from tests.bert.convert.folders import Values

D, N, F, LAYERS = 20, 5, 28, 3
CLASSES = ("no", "yes", "perhaps")
Shapes = dict[str, tuple[int, ...]]
# the parts of a layer: query, key, value, output, norm, inner, outer, norm; and what precedes its number
SELF = tuple(f"attention.self.{name}" for name in ("query", "key", "value"))
AS_BERT = (
    (*SELF, "attention.output.dense", "attention.output.LayerNorm"),
    ("intermediate.dense", "output.dense", "output.LayerNorm"),
)
LAYER = {
    "distilbert": (
        "distilbert.transformer.layer",
        ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm"),
        ("ffn.lin1", "ffn.lin2", "output_layer_norm"),
    ),
    "electra": ("electra.encoder.layer", *AS_BERT),
    "roberta": ("roberta.encoder.layer", *AS_BERT),
}
WORDS = {  # the head for masked words: its dense layer, norm and bias
    "distilbert": ("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
    "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
}


def a_dense(place: str, outputs: int, inputs: int = D) -> Shapes:
    return {f"{place}.weight": (outputs, inputs), f"{place}.bias": (outputs,)}


def a_norm(place: str, width: int = D) -> Shapes:
    return {f"{place}.weight": (width,), f"{place}.bias": (width,)}


def encoder(family: str, tables: dict[str, int], width: int = D) -> Shapes:
    """The shapes of an encoder; tables: the rows of each table of embeddings, which are `width` wide."""
    shapes: Shapes = {f"{family}.embeddings.{name}_embeddings.weight": (rows, width) for name, rows in tables.items()}
    shapes |= a_norm(f"{family}.embeddings.LayerNorm", width)
    shapes |= a_dense(f"{family}.embeddings_project", D, width) if width != D else {}
    prefix, (*square, first), (inner, outer, second) = LAYER[family]
    for layer in (f"{prefix}.{number}" for number in range(LAYERS)):
        for name in square:
            shapes |= a_dense(f"{layer}.{name}", D)
        shapes |= a_dense(f"{layer}.{inner}", F) | a_dense(f"{layer}.{outer}", D, F)
        shapes |= a_norm(f"{layer}.{first}") | a_norm(f"{layer}.{second}")
    return shapes


def random_tensors(shapes: Shapes) -> Values:
    random, made = np.random.default_rng(5), {}
    for name, shape in shapes.items():
        mean = 1 if name.lower().endswith("norm.weight") else 0
        made[name] = random.normal(mean, 0.3, shape).astype(np.float32)
    return made


def imported(folder: Path, run: Path, *more: str) -> Path:
    convert.main(["import", "huggingface", str(folder), str(run), *more])
    return run


def gelu(x: np.ndarray) -> np.ndarray:
    return x * np.vectorize(lambda value: 0.5 * (1 + math.erf(value / math.sqrt(2))))(x)


class Equations:
    """A model in float64."""

    def __init__(self, family: str, given: Values) -> None:
        self.family, self.epsilon = family, 1e-12 if family == "distilbert" else 1e-5
        self.w = {name: value.astype(np.float64) for name, value in given.items()}

    def dense(self, x: np.ndarray, place: str) -> np.ndarray:
        return np.asarray(x @ self.w[f"{place}.weight"].T + self.w[f"{place}.bias"])

    def norm(self, x: np.ndarray, place: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        return np.asarray(scaled * self.w[f"{place}.weight"] + self.w[f"{place}.bias"])

    def states(self, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """The last hidden states [B, T, D]."""
        embeddings, (prefix, first, last) = f"{self.family}.embeddings", LAYER[self.family]
        positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        if self.family == "roberta":
            positions = np.cumsum(ids != 1, axis=1) * (ids != 1) + 1  # create_position_ids_from_input_ids
        x = self.w[f"{embeddings}.word_embeddings.weight"][ids]
        x = x + self.w[f"{embeddings}.position_embeddings.weight"][positions]
        if self.family != "distilbert":
            x = x + self.w[f"{embeddings}.token_type_embeddings.weight"][segments]
        x = self.norm(x, f"{embeddings}.LayerNorm")
        x = self.dense(x, "electra.embeddings_project") if self.family == "electra" else x
        for number in range(LAYERS):
            layer, split = f"{prefix}.{number}", (*ids.shape, N, D // N)
            q, k, v = (self.dense(x, f"{layer}.{name}").reshape(split) for name in first[:3])
            scores = np.einsum("bqnh,bknh->bnqk", q, k) / math.sqrt(D // N) - 1e9 * (1 - mask[:, None, None])
            weight = np.exp(scores - scores.max(-1, keepdims=True))
            context = np.einsum("bnqk,bknh->bqnh", weight / weight.sum(-1, keepdims=True), v).reshape(x.shape)
            x = self.norm(x + self.dense(context, f"{layer}.{first[3]}"), f"{layer}.{first[4]}")
            inner = gelu(self.dense(x, f"{layer}.{last[0]}"))
            x = self.norm(x + self.dense(inner, f"{layer}.{last[1]}"), f"{layer}.{last[2]}")
        return np.asarray(x)

    def logits(self, x: np.ndarray, kind: str) -> np.ndarray:
        """Those of a head, of the last hidden states."""
        if kind == "ForMaskedLM":
            transform, norm, bias = WORDS[self.family]
            table = self.w[f"{self.family}.embeddings.word_embeddings.weight"]
            return np.asarray(self.norm(gelu(self.dense(x, transform)), norm) @ table.T + self.w[bias])
        if kind in ("ForTokenClassification", "ForQuestionAnswering"):
            return self.dense(x, "qa_outputs" if "Question" in kind else "classifier")
        if self.family == "distilbert":
            return self.dense(np.maximum(self.dense(x[:, 0], "pre_classifier"), 0), "classifier")
        summary = ("sequence_summary.summary", "classifier")
        first, last = ("classifier.dense", "classifier.out_proj") if "Sequence" in kind else summary
        return self.dense(gelu(self.dense(x[:, 0], first)), last)
