"""The loss of each kind of task against its formula in NumPy: what is learnt from, and with which weight."""

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode
from tasks import datasets
from tasks.config import TaskData
from tasks.labels import Labels
from tasks.training import FineTuning

EXAMPLES, TOKENS, CLASSES = 5, 7, 3
TINY = ModelConfig(vocab_size=11, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=6)
RANDOM = np.random.default_rng(3)
NAMES = ("a", "b", "c")
WEIGHTED = (0.5, 2.0, 3.25)


def mean_loss(task: str, labels: Labels, logits: np.ndarray, label: np.ndarray) -> float:
    """Return the mean loss of a batch whose logits the model is made to give."""
    tuning = FineTuning(datasets.kind(TaskData(task=task), labels), TINY, seed=1)
    tuning.module = lambda *_: tf.constant(logits, tf.float32)
    batch = {"label": tf.constant(label), "input_ids": tf.zeros([EXAMPLES, TOKENS], tf.int32)}
    (name,) = tuning.names
    measure = tuning.measure(batch, Mode(tf.float32, DropoutRng(None)))[name]
    return float(measure.loss / tuning.weights(batch)[name])


def surprise(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return -log p of each label [M], from logits [M, C]."""
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]


@pytest.mark.parametrize("weights", [None, WEIGHTED])
def test_classes_are_weighted_and_divided_by_the_sum_of_their_weights(weights: tuple[float, ...] | None) -> None:
    logits, labels = RANDOM.normal(0, 2, (EXAMPLES, CLASSES)), np.array([0, 2, 2, 1, 0])
    of_class = np.array(weights or (1.0, 1.0, 1.0))[labels]
    found = mean_loss("classify", Labels(names=NAMES, weights=weights), logits, labels[:, None].astype(np.int32))
    assert found == pytest.approx((surprise(logits, labels) * of_class).sum() / of_class.sum(), rel=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTED])
def test_labels_are_learnt_each_by_itself_where_they_are_known(weights: tuple[float, ...] | None) -> None:
    """The mean over all known labels, as BCEWithLogitsLoss of PyTorch with its pos_weight."""
    logits, labels = RANDOM.normal(0, 2, (EXAMPLES, CLASSES)), RANDOM.integers(-1, 2, (EXAMPLES, CLASSES))
    logits[0], labels[0] = (1e4, -1e4, -1e4), (1, 0, 1)  # exp() of these is no number
    likely, positive = 1 / (1 + np.exp(-np.clip(logits, -500, 500))), np.array(weights or (1.0, 1.0, 1.0))
    with np.errstate(divide="ignore"):
        each = np.where(labels == 1, -positive * np.log(likely), -np.log(1 - likely))
    each[0] = (0, 0, 1e4 * positive[2])
    found = mean_loss("multilabel", Labels(names=NAMES, weights=weights), logits, labels.astype(np.float32))
    assert found == pytest.approx(each[labels >= 0].mean(), rel=1e-5)


def test_a_number_is_compared_with_its_own_label_alone() -> None:
    logits, labels = RANDOM.normal(0, 2, (EXAMPLES, 1)), RANDOM.normal(0, 2, (EXAMPLES, 1))
    found = mean_loss("regress", Labels(regression=True), logits, labels.astype(np.float32))
    assert found == pytest.approx(np.mean((logits[:, 0] - labels[:, 0]) ** 2), rel=1e-5)


def test_choices_are_compared_with_those_of_their_question() -> None:
    logits, labels = RANDOM.normal(0, 2, (EXAMPLES, CLASSES)), np.array([1, 2, 0, 1, 1])
    found = mean_loss("choose", Labels(names=("0", "1", "2")), logits, labels[:, None].astype(np.int32))
    assert found == pytest.approx(surprise(logits, labels).mean(), rel=1e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTED])
def test_tags_are_learnt_where_they_are_read_and_nowhere_else(weights: tuple[float, ...] | None) -> None:
    logits = RANDOM.normal(0, 2, (EXAMPLES, TOKENS, CLASSES))
    labels = RANDOM.integers(-1, CLASSES, (EXAMPLES, TOKENS))  # -1: no tag is read there
    read = labels >= 0
    of_class = np.array(weights or (1.0, 1.0, 1.0))[labels[read]]
    found = mean_loss("tag", Labels(names=NAMES, weights=weights), logits, labels.astype(np.int32))
    assert found == pytest.approx((surprise(logits[read], labels[read]) * of_class).sum() / of_class.sum(), rel=1e-5)
