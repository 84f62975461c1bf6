"""ModernBERT computes the same in transformers and here, for models that come in and that go out again.

As test_transformers.py, which has the oracle.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert import labels
from bert.core.config import ModelConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.model.heads import TaskModel
from bert.training import checkpoint
from data import tfrecords
from extensions.tokenizers.json_tokenizers import BracketedTokenizer
from tests.extensions.tokenizers import bracketed as tokenizer
from tests.parity.test_transformers import CLASSES, Arrays, assert_equal, command, oracle, ours, theirs, to_run

pytestmark = pytest.mark.parity

TASKS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
KINDS = ("ModernBertModel", "ModernBertForMaskedLM", *(f"ModernBertFor{task}" for task in TASKS))
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "hidden_size": 20,
        "num_hidden_layers": 4,
        "num_attention_heads": 5,
        "intermediate_size": 28,
        "max_position_embeddings": 64,
        "local_attention": 6,  # three tokens on each side
    },
    "deep": {
        "hidden_size": 36,
        "num_hidden_layers": 9,
        "num_attention_heads": 3,
        "intermediate_size": 54,
        "max_position_embeddings": 50,
        "local_attention": 16,
        "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2 + ["full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 77.0},
        },
        "norm_eps": 1e-3,
        "hidden_activation": "silu",
        "classifier_activation": "silu",
        "classifier_pooling": "mean",
    },
}
PLACES = [Path(kind) / size for kind in KINDS for size in SIZES]
TEXTS = [
    "the cat",
    "The cat's  12 th\u00e9s \U0001f469\u200d\U0001f680 \u4e2d\u6587\n the    cat  the",
    "the\u0301 e\u0301 at |||IP_ADDRESS|||   cat",
    "",
]


def job(folder: Path) -> tuple[str, Path, Path, Path]:
    """As `to_run`; the rows are the choices of one question."""
    choices = "MultipleChoice" in folder.parent.name
    return to_run(folder, {name: value[None] if choices else value for name, value in inputs().items()})


def of_task(run: Path, config: ModelConfig) -> Arrays:
    """What our model of a task makes of the inputs, under the names of transformers."""
    head = labels.of(labels.settings(run), run / "config.json")
    assert head is not None
    model = TaskModel(config, 0, head)
    checkpoint.load_weights(run, variables(model))
    ids, mask = (tf.constant(inputs()[name].astype(np.int32)) for name in ("input_ids", "attention_mask"))
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)}
    batch = {name: x[None] if head.kind == "choice" else x for name, x in batch.items()}
    found = model(batch, Mode(tf.float32, DropoutRng(None)))
    parts = found if isinstance(found, tuple) else (found,)
    names = ("start_logits", "end_logits") if len(parts) == 2 else ("logits",)
    return {name: x.numpy() for name, x in zip(names, parts, strict=True)}


def inputs() -> Arrays:
    """Random ids, and padding; longer than the windows of local attention."""
    random, lengths = np.random.default_rng(4), np.array([37, 33, 20, 3])[:, None]
    mask = np.arange(37)[None] < lengths
    ids = random.integers(0, tokenizer.SIZE, mask.shape)
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Theirs in theirs/KIND/SIZE, as they came in in run/KIND/SIZE, as these went out in back/KIND/SIZE."""
    root = tmp_path_factory.mktemp("modernbert")
    made = []
    for number, place in enumerate(PLACES):
        (root / "theirs" / place).mkdir(parents=True)
        tokenizer.write(root / "theirs" / place / "tokenizer.json")
        ids = {"pad_token_id": 1, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
        sizes = SIZES[place.name] | {"vocab_size": tokenizer.SIZE} | ids
        names = {"id2label": dict(enumerate(CLASSES))} if "Classification" in place.parent.name else {}
        made.append(("make", str(place.parent), root / "theirs" / place, number, sizes | names))
    oracle(*made)
    for place in PLACES:
        command("import", root / "theirs" / place, root / "run" / place)
        command("export", root / "run" / place, root / "back" / place)
    oracle(*(job(root / folder / place) for place in PLACES for folder in ("theirs", "back")))
    return root


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_comes_in_computes_the_same_here(place: Path, converted: Path) -> None:
    run, inside = converted / "run" / place, inputs()["attention_mask"]
    config = ModelConfig.load(run / "bert_config.json")
    assert config.of_layers(lambda local, base: local)[:2] == [False, True]
    expected = theirs(converted / "theirs" / place)
    given = inputs() | {"token_type_ids": np.zeros_like(inputs()["input_ids"])}
    found = ours(run, "BertForMaskedLM" if place.parent.name == KINDS[1] else "encoder", config, given)
    if place.parent.name in KINDS[2:]:
        del found["last_hidden_state"]
        found |= of_task(run, config)
        assert config.pooling == ("mean" if place.name == "deep" else "cls")
    for name, value in expected.items():  # of padding they compute something else
        if name == "hidden_states":
            expected[name], found[name] = value[:, inside], found[name][:, inside]
        elif value.shape[:2] == inside.shape:
            expected[name], found[name] = value[inside], np.asarray(found[name])[inside]
    assert_equal(expected, found)
    for name, value in expected.items():
        np.testing.assert_allclose(value, found[name], rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_goes_out_computes_the_same_there(place: Path, converted: Path) -> None:
    before, after = (theirs(converted / form / place) for form in ("theirs", "back"))
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)
    config = json.loads((converted / "back" / place / "config.json").read_text())
    assert config["architectures"] == [place.parent.name]
    assert config.get("classifier_pooling") == SIZES[place.name].get("classifier_pooling", "cls")
    if "Classification" in place.parent.name:
        assert oracle(("classes", converted / "back" / place))[0] == list(CLASSES)


def test_tokens_are_those_of_transformers(converted: Path) -> None:
    folders = [converted / form / PLACES[0] for form in ("theirs", "back")]
    rows = oracle(*(("tokens", folder, text) for folder in folders for text in TEXTS))
    pairs = oracle(*(("pair", folder, TEXTS[1], TEXTS[0]) for folder in folders))
    here = BracketedTokenizer(converted / "run" / PLACES[0] / "tokenizer.json")
    for text, before, after in zip(TEXTS, rows[: len(TEXTS)], rows[len(TEXTS) :], strict=True):
        assert before == after == here.row(here.encode([text])[0]).ids.tolist(), text
    first, second = (here.encode([text])[0] for text in (TEXTS[1], TEXTS[0]))
    assert all(ids == here.row(first, second).ids.tolist() for ids, _ in pairs)


def test_a_document_of_records_has_the_tokens_of_its_sentences_together(converted: Path) -> None:
    sentences = [*TEXTS[:3], "\u00e9t\u00e9 the"]
    (expected,) = oracle(("tokens", converted / "theirs" / PLACES[0], " ".join(sentences)))
    here = BracketedTokenizer(converted / "run" / PLACES[0] / "tokenizer.json")
    documents, _ = tfrecords.tokenize([sentences], here)
    assert here.row(documents.ids).ids.tolist() == expected
