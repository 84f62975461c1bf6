"""NeoBERT comes in, computes what its published code does, and goes out as it was; what differs from it is refused.

The oracle is a transcription to NumPy of the code on the Hub (chandar-lab/NeoBERT: model.py, rotary.py), in its own
layout of tensors. tests/parity/test_neobert.py runs that code itself, where it is given.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert import labels
from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.labels import Head
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.model.heads import TaskModel
from bert.pretraining import PretrainingModel
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from extensions.families import neobert
from tests.bert.convert.equations import Shapes, imported, random_tensors
from tests.bert.convert.folders import Values, same_bits, weights

MODE = Mode(tf.float32, DropoutRng(None))
D, N, F, LAYERS, V, T = 20, 5, 24, 3, 31, 13
SCALE = 0.75  # of the weights: products of states then have about the deviation of the states
CONFIG: dict[str, Any] = {  # the keys of the published file
    "architectures": ["NeoBERTLMHead"],
    "auto_map": {
        "AutoConfig": "model.NeoBERTConfig",
        "AutoModel": "model.NeoBERT",
        "AutoModelForMaskedLM": "model.NeoBERTLMHead",
        "AutoModelForSequenceClassification": "model.NeoBERTForSequenceClassification",
    },
    "classifier_init_range": 0.02,
    "decoder_init_range": 0.02,
    "dim_head": D // N,
    "embedding_init_range": 0.02,
    "hidden_size": D,
    "intermediate_size": 36,
    "kwargs": {"trust_remote_code": True},
    "max_length": 64,
    "model_type": "neobert",
    "norm_eps": 1e-5,
    "num_attention_heads": N,
    "num_hidden_layers": LAYERS,
    "pad_token_id": 0,
    "trust_remote_code": True,
    "vocab_size": V,
}
KINDS = ("NeoBERT", "NeoBERTLMHead", "NeoBERTForSequenceClassification")
CLASSES = ("no", "yes", "perhaps")


def shapes(kind: str) -> Shapes:
    """Of the tensors of a class."""
    inside: Shapes = {"encoder": (V, D)}
    for layer in (f"transformer_encoder.{number}" for number in range(LAYERS)):
        inside |= {f"{layer}.qkv": (3 * D, D), f"{layer}.wo": (D, D), f"{layer}.attention_norm": (D,)}
        inside |= {f"{layer}.ffn.w12": (2 * F, D), f"{layer}.ffn.w3": (D, F), f"{layer}.ffn_norm": (D,)}
    inside |= {"layer_norm": (D,)}
    made = {f"{'' if kind == 'NeoBERT' else 'model.'}{name}.weight": shape for name, shape in inside.items()}
    if kind == "NeoBERTLMHead":
        made |= {"decoder.weight": (V, D), "decoder.bias": (V,)}
    elif kind != "NeoBERT":
        made |= {"dense.weight": (D, D), "dense.bias": (D,), "classifier.weight": (3, D), "classifier.bias": (3,)}
    return made


def a_folder(folder: Path, kind: str = "NeoBERTLMHead", rows: int = V, **changes: Any) -> Values:
    """A folder with random weights; changes: of config.json, None removes a key."""
    folder.mkdir(parents=True)
    fields = CONFIG | {"architectures": [kind], "vocab_size": rows} | changes
    fields |= {"id2label": dict(enumerate(CLASSES))} if "Classification" in kind else {}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(V - len(SPECIAL)))]) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    settings |= {"strip_accents": None, "tokenize_chinese_chars": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    axes = {name: (rows, *shape[1:]) if shape[0] == V else shape for name, shape in shapes(kind).items()}
    made = {name: value if "norm" in name else value * SCALE for name, value in random_tensors(axes).items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    return made


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask [B, T] of texts of different lengths."""
    mask = (np.arange(T) < np.array([T, 7, 2])[:, None]).astype(np.int32)
    return np.random.default_rng(4).integers(0, V, mask.shape).astype(np.int32), mask


def published(theirs: Values, ids: np.ndarray, mask: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """The last hidden states [B, T, D] in float64. Positions turn complex numbers, of two neighbouring components."""
    w = {name.removeprefix("model."): value.astype(np.float64) for name, value in theirs.items()}

    def rms(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w[f"{name}.weight"]

    width = D // N
    turns = np.exp(1j * np.arange(ids.shape[1])[:, None] / 10_000 ** (np.arange(0, width, 2) / width))[:, None]
    x = w["encoder.weight"][ids]
    for layer in (f"transformer_encoder.{number}" for number in range(LAYERS)):
        joint = (rms(x, f"{layer}.attention_norm") @ w[f"{layer}.qkv.weight"].T).reshape(*ids.shape, N, 3 * width)
        q, k, v = np.split(joint, 3, axis=-1)  # [B, T, N, H]
        q, k = (np.ascontiguousarray(y).view(np.complex128) * turns for y in (q, k))
        q, k = q.view(np.float64), k.view(np.float64)
        scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(width)
        scores = np.exp(np.where(mask[:, None, None] > 0, scores, -np.inf))
        context = np.einsum("bnts,bsnh->btnh", scores / scores.sum(-1, keepdims=True), v)
        x = x + context.reshape(x.shape) @ w[f"{layer}.wo.weight"].T
        first, second = np.split(rms(x, f"{layer}.ffn_norm") @ w[f"{layer}.ffn.w12.weight"].T, 2, axis=-1)
        x = x + (first / (1 + np.exp(-first)) * second) @ w[f"{layer}.ffn.w3.weight"].T
    return rms(x, "layer_norm")


def test_scores_of_words_are_those_of_the_published_code(tmp_path: Path) -> None:
    theirs = a_folder(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    model = PretrainingModel(ModelConfig.load(run / "bert_config.json"), 0, "none")
    checkpoint.load_weights(run, variables(model))
    ids, mask = inputs()
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": ids * 0}
    batch |= {"masked_lm_positions": np.tile(np.arange(T), (len(ids), 1))}
    words, _ = model({name: tf.constant(value, tf.int32) for name, value in batch.items()}, MODE)
    expected = published(theirs, ids, mask) @ theirs["decoder.weight"].T + theirs["decoder.bias"]
    np.testing.assert_allclose((words + model.masked_lm.bias)[mask > 0], expected[mask > 0], atol=1e-5)
    assert expected.std() > 0.5


def test_scores_of_classes_are_those_of_the_published_code(tmp_path: Path) -> None:
    theirs = a_folder(tmp_path / "theirs", KINDS[2], norm_eps=0.3)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    head = labels.of(labels.settings(run), run)
    assert head is not None and head.labels == CLASSES
    model = TaskModel(ModelConfig.load(run / "bert_config.json"), 0, head)
    checkpoint.load_weights(run, variables(model))
    ids, mask = inputs()
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": ids * 0}
    pooled = np.tanh(published(theirs, ids, mask, 0.3)[:, 0] @ theirs["dense.weight"].T + theirs["dense.bias"])
    expected = pooled @ theirs["classifier.weight"].T + theirs["classifier.bias"]
    found = model({name: tf.constant(value) for name, value in batch.items()}, MODE)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_back_with_its_bits(kind: str, tmp_path: Path) -> None:
    before = a_folder(tmp_path / "theirs", kind)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    same_bits(before, load_file(tmp_path / "back/model.safetensors"))
    config = json.loads((tmp_path / "back/config.json").read_text())
    code = {key: f"chandar-lab/NeoBERT--{name}" for key, name in CONFIG["auto_map"].items()}
    gone = ("dim_head", "kwargs", "trust_remote_code")  # which the published class does not read
    expected = {key: value for key, value in CONFIG.items() if key not in gone}
    expected |= {"architectures": [kind], "auto_map": code}
    assert {key: config[key] for key in expected} == expected
    assert json.loads((tmp_path / "back/tokenizer_config.json").read_text())["tokenizer_class"] == "BertTokenizer"
    same_bits(weights(run), weights(imported(tmp_path / "back", tmp_path / "again")))
    with pytest.raises(InputError, match="NeoBERT has no form in Google's format"):
        convert.main(["export", "google", str(run), str(tmp_path / "google")])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rms_norm": False}, "rms_norm"),
        ({"rope": False}, "rope is False"),
        ({"ngpt": True}, "ngpt"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"swiglu_packed": False}, "swiglu_packed"),
        ({"rope_theta": 500.0}, "rope_theta"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_scaling"),
        ({"num_attention_heads": 4}, "even width of heads, not 5"),
        ({"num_attention_heads": 3}, "not a multiple"),
        ({"norm_eps": "small"}, "norm_eps"),
        ({"max_length": 0}, "max_length"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"intermediate_size": 72}, "ffn"),  # of which the tensors have half
    ],
    ids=str,
)
def test_other_functions_of_the_same_weights_are_refused(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs", **changes)
    with pytest.raises(InputError, match=named):
        imported(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_the_published_code_ignores_or_has_by_default_changes_nothing(tmp_path: Path) -> None:
    kept = a_folder(tmp_path / "theirs")
    other: dict[str, Any] = {
        "flash_attention": False,
        "rms_norm": True,
        "rope": True,
        "hidden_act": "SwiGLU",
        "rope_theta": 10000,
    }
    a_folder(tmp_path / "other", **other, dropout=0.1, tie_word_embeddings=True, norm_eps=None, max_length=None)
    runs = [imported(tmp_path / name, tmp_path / f"run_{name}") for name in ("theirs", "other")]
    same_bits(*(weights(run) for run in runs))
    before, after = (ModelConfig.load(run / "bert_config.json") for run in runs)
    changed = {"layer_norm_epsilon": 1e-6, "max_position_embeddings": 1024, "hidden_dropout_prob": 0.1}
    assert after == dataclasses.replace(before, **changed)  # type: ignore[arg-type]
    assert weights(runs[0])["masked_lm/words"].shape == kept["decoder.weight"].shape


def test_scores_are_never_those_of_the_word_embeddings(tmp_path: Path) -> None:
    """The published class has a table of its own, whatever `tie_word_embeddings` says."""
    theirs = a_folder(tmp_path / "theirs", tie_word_embeddings=True)
    del theirs["decoder.weight"]
    save_file(theirs, tmp_path / "theirs/model.safetensors")
    with pytest.raises(InputError, match=r"missing tensor decoder\.weight"):
        imported(tmp_path / "theirs", tmp_path / "run")


def test_rows_without_an_entry_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = a_folder(tmp_path / "theirs", rows=40)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    assert "31 entries for 40 rows" in capsys.readouterr().err
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    same_bits(before, load_file(tmp_path / "back/model.safetensors"))


def test_heads_that_its_classes_do_not_have_are_left_aside_or_refused(tmp_path: Path) -> None:
    a_folder(tmp_path / "theirs", KINDS[2], architectures=["NeoBERTForTokenClassification"])
    run = imported(tmp_path / "theirs", tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    assert "head" not in settings and "classifier.weight" in settings["imported"]["ignored"]
    config = ModelConfig.load(run / "bert_config.json")
    model = TaskModel(config, 0, Head(kind="tags", labels=CLASSES))
    checkpoint.save(run, 1, {name: variable.numpy() for name, variable in variables(model).items()}, keep=1)
    with pytest.raises(InputError, match=r"NeoBERT has no head tags on the Hub; use bert\.export onnx"):
        convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(("theirs", "ours"), [(3072, 2048), (4032, 2688), (100, 72), (36, 24), (13, 8)])
def test_two_thirds_of_the_width_are_rounded_up_to_eights(theirs: int, ours: int) -> None:
    fields = CONFIG | {"intermediate_size": theirs}
    config = neobert.read_config(fields, Path("config.json"))
    assert config.intermediate_size == ours
    again = neobert.config_fields(config)
    assert neobert.read_config(again, Path("config.json")).intermediate_size == ours
    with pytest.raises(InputError, match="multiple of 8"):
        neobert.config_fields(dataclasses.replace(config, intermediate_size=ours + 4))


def test_rms_norm_needs_norms_before_and_no_biases() -> None:
    with pytest.raises(UsageError, match=r"model\.norm rms needs model\.norm_placement pre and model\.biases false"):
        ModelConfig(norm="rms", norm_placement="pre")
    with pytest.raises(UsageError, match="norm rms needs"):
        ModelConfig(norm="rms", biases=False)
    with pytest.raises(UsageError, match="causal model has no head for masked words"):
        ModelConfig(causal=True, norm_placement="pre", masked_lm_head="linear")
