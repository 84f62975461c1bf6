"""Losses of two models' layers, and their gradients, are those of PyTorch on transformers' BertModel."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import DistillConfig, ModelConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.pretraining import Pretraining
from bert.runs import Run
from bert.training.objective import weighted_losses
from extensions.distillation.training import Distilled, LayersTeacher
from tests.parity.test_transformers import command, inputs, oracle, vocabulary

pytestmark = pytest.mark.parity

SIZES: dict[str, Any] = {"vocab_size": 97, "hidden_size": 20, "num_attention_heads": 5, "intermediate_size": 28}
SIZES |= {"max_position_embeddings": 23, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SETTINGS = {"mapped": [0, 2], "layer": 1, "heads": 10}
ALL = DistillConfig(
    outputs=0.0,
    cosine=1.0,
    hidden=1.0,
    attention=1.0,
    relations=1.0,
    layers=(0, 2),
    relation_layer=1,
    relation_heads=10,
)


def test_losses_of_layers_and_their_gradients_are_those_of_pytorch(tmp_path: Path) -> None:
    folders = {"student": 2, "teacher": 3}
    for name in folders:
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text(vocabulary(ModelConfig(vocab_size=97)))
    given = inputs(ModelConfig(vocab_size=97, type_vocab_size=2))
    np.savez(tmp_path / "x.npz", allow_pickle=False, **given)
    made = [
        ("make", "BertModel", tmp_path / name, seed, SIZES | {"num_hidden_layers": layers})
        for seed, (name, layers) in enumerate(folders.items())
    ]
    two = tmp_path / "student", tmp_path / "teacher"
    *_, expected = oracle(*made, ("layers", *two, SETTINGS, tmp_path / "x.npz", tmp_path / "y.npz"))
    for folder in two:
        command("import", folder, folder / "run")
    student, taught = (Run.open(folder / "run") for folder in two)
    task, teacher = Pretraining(student.config, seed=0, pairs="none"), LayersTeacher(taught.config)
    student.load(task.module.encoder)
    taught.load(teacher)
    rows = len(given["input_ids"])
    batch = {
        "input_ids": tf.constant(given["input_ids"], tf.int32),
        "input_mask": tf.constant(given["attention_mask"], tf.int32),
        "segment_ids": tf.constant(given["token_type_ids"], tf.int32),
        "masked_lm_positions": tf.zeros([rows, 1], tf.int32),
        "masked_lm_ids": tf.zeros([rows, 1], tf.int32),
        "masked_lm_weights": tf.zeros([rows, 1]),
        "next_sentence_labels": tf.zeros([rows, 1], tf.int32),
    }
    distilled = Distilled(task, teacher, ALL)
    weights = distilled.weights(batch)
    encoder = variables(task.module.encoder)
    with tf.GradientTape() as tape:
        measures = distilled.measure(batch, Mode(tf.float32, DropoutRng(None)))
        means = {name: measure.loss / weights[name] for name, measure in measures.items()}
        total = tf.add_n(weighted_losses(distilled.objectives, means))
    assert {name: float(value) for name, value in means.items()} == pytest.approx(expected, rel=1e-5)
    found = dict(zip(encoder, tape.gradient(total, list(encoder.values())), strict=True))
    with np.load(tmp_path / "y.npz") as theirs:
        for number, (ours, name) in itertools.product(
            range(2), (("query", "query"), ("key", "key"), ("value", "value"))
        ):
            gradient = theirs[f"encoder.layer.{number}.attention.self.{name}.weight"].T
            own = found[f"layer_{number}/attention/{ours}/kernel"]
            np.testing.assert_allclose(own, gradient, rtol=1e-4, atol=1e-6, err_msg=name)
        words = tf.convert_to_tensor(found["embeddings/word"])
        np.testing.assert_allclose(words, theirs["embeddings.word_embeddings.weight"], rtol=1e-4, atol=1e-6)
