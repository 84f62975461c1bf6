"""DistilBERT and ELECTRA come in, compute what their equations say, are used by commands, and go out as they were.

The equations are in equations.py.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert import encode, fill_mask, labels
from bert.convert import __main__ as convert
from bert.convert import huggingface
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.labels import Head
from bert.masked_words import MaskedWords
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.model.heads import TaskModel
from bert.runs import Run
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from tests.bert.convert.equations import (
    CLASSES,
    LAYERS,
    D,
    Equations,
    F,
    N,
    Shapes,
    a_dense,
    a_norm,
    encoder,
    imported,
    random_tensors,
)
from tests.bert.convert.folders import Values, same_bits, weights

WORDS = ["river", "##s", "the", "a", "flow", "##ing"]
VOCABULARY = [*SPECIAL, *WORDS, *(f"w{number}" for number in range(20))]
V, P, E = len(VOCABULARY), 19, 12
SIZES: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": D, "n_layers": LAYERS, "n_heads": N, "hidden_dim": F, "activation": "gelu"},
    "electra": {
        "hidden_size": D,
        "embedding_size": E,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": N,
        "intermediate_size": F,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-5,
    },
}
TITLES = {"distilbert": "DistilBert", "electra": "Electra"}
DISTILBERT: dict[str, Shapes] = {  # class -> tensors beside the encoder, as transformers 5.23 writes them
    "Model": {},
    "ForMaskedLM": a_dense("vocab_transform", D) | a_norm("vocab_layer_norm") | {"vocab_projector.bias": (V,)},
    "ForSequenceClassification": a_dense("pre_classifier", D) | a_dense("classifier", 3),
    "ForMultipleChoice": a_dense("pre_classifier", D) | a_dense("classifier", 1),
    "ForTokenClassification": a_dense("classifier", 3),
    "ForQuestionAnswering": a_dense("qa_outputs", 2),
}
ELECTRA: dict[str, Shapes] = {
    "Model": {},
    "ForMaskedLM": a_dense("generator_predictions.dense", E)
    | a_norm("generator_predictions.LayerNorm", E)
    | {"generator_lm_head.bias": (V,)},
    "ForSequenceClassification": a_dense("classifier.dense", D) | a_dense("classifier.out_proj", 3),
    "ForMultipleChoice": a_dense("sequence_summary.summary", D) | a_dense("classifier", 1),
    "ForTokenClassification": a_dense("classifier", 3),
    "ForQuestionAnswering": a_dense("qa_outputs", 2),
}
HEADS = {"distilbert": DISTILBERT, "electra": ELECTRA}
CASES = [(family, kind) for family, kinds in HEADS.items() for kind in kinds]


def a_folder(folder: Path, family: str, kind: str = "ForMaskedLM", **changes: Any) -> Values:
    """A folder as transformers writes it, with random weights; changes: of config.json, None removes a key."""
    folder.mkdir(parents=True)
    fields = SIZES[family] | {"model_type": family, "vocab_size": V, "max_position_embeddings": P}
    fields |= {"architectures": [TITLES[family] + kind], "id2label": {str(n): name for n, name in enumerate(CLASSES)}}
    kept = {key: value for key, value in (fields | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    rows = {"word": V, "position": P} | ({"token_type": 2} if family == "electra" else {})
    made = random_tensors(encoder(family, rows, E if family == "electra" else D) | HEADS[family][kind])
    if kind == "Model":
        made = {name.removeprefix(f"{family}."): value for name, value in made.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    return made


TASKS = {
    "ForSequenceClassification": Head(kind="classifier", labels=CLASSES),
    "ForMultipleChoice": Head(kind="choice"),
    "ForTokenClassification": Head(kind="tags", labels=CLASSES),
    "ForQuestionAnswering": Head(kind="answer_span"),
}


def rows() -> dict[str, np.ndarray]:
    random, lengths = np.random.default_rng(6), np.array([17, 7, 13])[:, None]
    mask = (np.arange(17) < lengths).astype(np.int32)
    ids, segments = (random.integers(0, high, mask.shape).astype(np.int32) for high in (V, 2))
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family, kind in CASES if kind in TASKS])
def test_the_logits_are_those_of_its_equations(family: str, kind: str, tmp_path: Path) -> None:
    equations = Equations(family, a_folder(tmp_path / "theirs", family, kind))
    run = imported(tmp_path / "theirs", tmp_path / "run")
    head = labels.read(run)
    assert head == TASKS[kind]
    model = TaskModel(ModelConfig.load(run / "bert_config.json"), 0, head)
    checkpoint.load_weights(run, variables(model))
    given = rows()
    found = model({name: tf.constant(x) for name, x in given.items()}, Mode(tf.float32, DropoutRng(None)))
    expected = equations.logits(equations.states(*given.values()), kind)
    inside = given["input_mask"] > 0 if expected.ndim == 3 else slice(None)
    if kind == "ForQuestionAnswering":
        found = np.stack(found, axis=-1)
    np.testing.assert_allclose(np.asarray(found)[inside], expected[inside], atol=3e-5)
    assert expected.std() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("family", HEADS)
def test_features_and_masked_words_are_those_of_its_equations(family: str, tmp_path: Path) -> None:
    equations = Equations(family, a_folder(tmp_path / "theirs", family))
    run = imported(tmp_path / "theirs", tmp_path / "run")
    ids = np.array([[VOCABULARY.index(token) for token in ("[CLS]", "the", "[MASK]", "##s", "[SEP]")]])
    ids[0, 3] = VOCABULARY.index("flow")
    states = equations.states(ids, np.ones_like(ids), np.zeros_like(ids))[0]
    logits = equations.logits(states, "ForMaskedLM")[2]
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    (found,) = fill_mask.fill(MaskedWords(Run.open(run)), ["the [MASK] flow"], V, ["a text"])
    for choice in found["masks"][0]:
        expected = probabilities[VOCABULARY.index(choice["word"])]
        np.testing.assert_allclose(choice["probability"], expected, rtol=1e-3, atol=1e-7)
    (tmp_path / "texts").write_text("The rivers flow\n")
    options = ["--input", str(tmp_path / "texts"), "--output", str(tmp_path / "out.jsonl"), "--pool", "none"]
    encode.main(["--model", str(run), *options])
    line = json.loads((tmp_path / "out.jsonl").read_text())
    ids = np.array([[VOCABULARY.index(token) for token in line["tokens"]]])
    expected = equations.states(ids, np.ones_like(ids), np.zeros_like(ids))[0]
    np.testing.assert_allclose(np.array(line["features"])[:, 0], expected, atol=3e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_every_class_comes_back_with_its_bits(family: str, kind: str, tmp_path: Path) -> None:
    before = a_folder(tmp_path / "theirs", family, kind)
    run = imported(tmp_path / "theirs", tmp_path / "run")
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    same_bits(before, load_file(tmp_path / "back/model.safetensors"))
    config, theirs = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("back", "theirs"))
    shared = {key: value for key, value in theirs.items() if key != "id2label"}
    assert {key: config[key] for key in shared} == shared
    assert "type_vocab_size" in config or family == "distilbert"
    same_bits(weights(run), weights(imported(tmp_path / "back", tmp_path / "again")))
    with pytest.raises(InputError, match=r"(DistilBERT|ELECTRA) has no form in Google's format"):
        convert.main(["export", "google", str(run), str(tmp_path / "google")])


def test_electras_discriminator_comes_in_with_its_head_and_goes_out(tmp_path: Path) -> None:
    given = a_folder(tmp_path / "theirs", "electra", "Model", embedding_size=D)
    wide = {
        name: np.zeros((*value.shape[:-1], D), np.float32) for name, value in given.items() if "embeddings." in name
    }
    tensors = {f"electra.{name}": value for name, value in (given | wide).items() if "project" not in name}
    names = a_dense("discriminator_predictions.dense", D) | a_dense("discriminator_predictions.dense_prediction", 1)
    head = random_tensors(names)
    save_file(tensors | head, tmp_path / "theirs/model.safetensors")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    assert json.loads((run / "config.json").read_text())["imported"]["ignored"] == []
    config = ModelConfig.load(run / "bert_config.json")
    assert (config.embedding_size, config.pooler_act, "embeddings/projection/kernel" in weights(run)) == (
        0,
        "gelu",
        False,
    )
    convert.main(["export", "huggingface", str(run), str(tmp_path / "back")])
    fields = json.loads((tmp_path / "back/config.json").read_text())
    assert (fields["embedding_size"], fields["architectures"]) == (D, ["ElectraForPreTraining"])
    back = load_file(tmp_path / "back/model.safetensors")
    assert back.keys() == tensors.keys() | head.keys()
    same_bits(back, tensors | head)
    assert "pipeline_tag: feature-extraction" in (tmp_path / "back/README.md").read_text()


@pytest.mark.parametrize(
    ("family", "kind", "head"),
    [
        ("electra", "ForSequenceClassification", "classifier"),
        ("electra", "ForTokenClassification", "tags"),
        ("distilbert", "ForTokenClassification", "tags"),
        ("distilbert", "ForSequenceClassification", None),
        ("distilbert", "ForMultipleChoice", None),
    ],
)
def test_a_head_that_nothing_declares_is_taken_if_it_can_be_one_only(
    family: str, kind: str, head: str | None, tmp_path: Path
) -> None:
    a_folder(tmp_path / "theirs", family, kind, architectures=None)
    if head is None:
        with pytest.raises(InputError, match=r"has no architectures, so that .* give --head classifier, multilabel, "):
            imported(tmp_path / "theirs", tmp_path / "run")
        head = TASKS[kind].kind
        imported(tmp_path / "theirs", tmp_path / "run", "--head", head)
    else:
        imported(tmp_path / "theirs", tmp_path / "run")
    assert labels.read(tmp_path / "run").kind == head
    imported(tmp_path / "theirs", tmp_path / "alone", "--head", huggingface.NONE)
    alone = json.loads((tmp_path / "alone/config.json").read_text())
    assert "head" not in alone and not {"classifier", "tags", "choice"} - {*alone["imported"]["missing_heads"]}


def test_a_layer_beside_the_encoder_is_left_aside_on_request_only(tmp_path: Path) -> None:
    given = a_folder(tmp_path / "theirs", "distilbert", architectures=["HF_ColBERT"])
    save_file(given | {"linear.weight": np.ones((7, D), np.float32)}, tmp_path / "theirs/model.safetensors")
    with pytest.raises(InputError, match=r"unknown tensors: linear\.weight; .*--head none to import the encoder alone"):
        imported(tmp_path / "theirs", tmp_path / "run")
    run = imported(tmp_path / "theirs", tmp_path / "run", "--head", "none")
    assert json.loads((run / "config.json").read_text())["imported"]["ignored"] == ["linear.weight"]
    more = {"distilbert.transformer.layer.3.ffn.lin1.bias": np.ones(F, np.float32)}
    save_file(given | more, tmp_path / "theirs/model.safetensors")
    with pytest.raises(InputError, match=r"unknown tensors: distilbert\.transformer\.layer\.3"):
        imported(tmp_path / "theirs", tmp_path / "other", "--head", "none")


def test_a_head_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    a_folder(tmp_path / "words", "distilbert")
    with pytest.raises(UsageError, match=r"has no tensors classifier"):
        imported(tmp_path / "words", tmp_path / "run", "--head", "tags")
    a_folder(tmp_path / "texts", "distilbert", "ForSequenceClassification")
    with pytest.raises(UsageError, match=r"--head tags contradicts .* DistilBertForSequenceClassification"):
        imported(tmp_path / "texts", tmp_path / "run", "--head", "tags")
    with pytest.raises(UsageError, match="--head is for an import from huggingface"):
        convert.main(["import", "google", str(tmp_path), str(tmp_path / "run"), "--head", "tags"])
