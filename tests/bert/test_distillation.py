"""Soft labels are Hinton's formula; the teacher is in no checkpoint and in no evaluation; students take layers."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert import pretrain
from bert.core.config import BatchConfig, DistillConfig, ModelConfig, PrecisionConfig
from bert.core.errors import UserError
from bert.distillation import Distilled
from bert.model import losses
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, variables
from bert.pretraining import Pretraining, WordTeacher
from bert.text.records import Dataset
from bert.text.sampler import Batch, BatchSampler
from squad.config import Windowing
from squad.model import AnswerSpans
from tests.bert.training.test_step import step_of
from tests.training import TINY, checkpoints, same_bits, weights

T, SHARE = 2.5, 0.3


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return p * np.log(p / q)


def gradient_of(function: Callable[[tf.Tensor], tf.Tensor], x: np.ndarray) -> tuple[float, np.ndarray]:
    variable = tf.Variable(x, dtype=tf.float32)
    with tf.GradientTape() as tape:
        value = function(variable)
    return float(value), tape.gradient(value, variable).numpy()


def test_soft_labels_and_their_gradient_are_the_published_formula() -> None:
    random = np.random.default_rng(2)
    z, taught, weights = random.normal(size=(3, 5, 7)) * 3, random.normal(size=(3, 5, 7)) * 3, random.random((3, 5))
    teacher, of_rows = (tf.constant(x, tf.float32) for x in (taught, weights))
    value, gradient = gradient_of(lambda x: losses.soft_labels(x, teacher, of_rows, T), z)
    p, q = softmax(taught / T), softmax(z / T)
    assert value == pytest.approx(T**2 * (divergence(p, q).sum(axis=-1) * weights).sum(), rel=1e-5)
    np.testing.assert_allclose(gradient, T * (q - p) * weights[..., None], atol=1e-5)

    of_each = random.random((3, 5, 7))
    of_logits = tf.constant(of_each, tf.float32)
    value, gradient = gradient_of(lambda x: losses.soft_binary(x, teacher, of_logits, T), z)
    p, q = sigmoid(taught / T), sigmoid(z / T)
    expected = T**2 * ((divergence(p, q) + divergence(1 - p, 1 - q)) * of_each).sum()
    assert value == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(gradient, T * (q - p) * of_each, atol=1e-5)

    batch = {"start_positions": tf.zeros([5, 1], tf.int32)}
    own, of_teacher = ((tf.constant(x[0], tf.float32), tf.constant(x[1], tf.float32)) for x in (z, taught))
    found = AnswerSpans(Windowing(), False).soft(own, of_teacher, batch, T)
    parts = [divergence(softmax(taught[n] / T), softmax(z[n] / T)).sum() for n in (0, 1)]
    assert float(found) == pytest.approx(T**2 * sum(parts) / 2, rel=1e-5)


def batches_of(dataset: Path) -> list[Batch]:
    return BatchSampler(Dataset(dataset, "train"), BatchConfig(total=6, per_device=3), seed=1).read(0)


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_step_learns_both_losses_of_masked_words_and_keeps_the_teacher(
    xla: bool, model_config: ModelConfig, dataset: Path
) -> None:
    config = dataclasses.replace(
        model_config, vocab_multiple=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    teacher = WordTeacher(dataclasses.replace(model_config, hidden_size=30, num_hidden_layers=1))
    plain, batches = Pretraining(config, seed=3), batches_of(dataset)
    for name, variable in variables(teacher).items():
        variable.assign(tf.random.stateless_normal(variable.shape, (1, len(name)), stddev=0.5))
    before = {name: variable.numpy() for name, variable in variables(teacher).items()}
    step = step_of(
        Distilled(plain, teacher, DistillConfig(temperature=T, weight=SHARE)), precision=PrecisionConfig(xla=xla)
    )
    assert {"adam_m/embeddings/word", "embeddings/word"} <= step.state.keys()
    assert sum("embeddings/word" in name for name in step.state) == 3
    mode, hard, soft, count = Mode(tf.float32, DropoutRng(None)), 0.0, 0.0, 0.0
    for batch in batches:
        scores, _ = plain.module(batch, mode)
        scores = scores.numpy()[..., :99] + plain.module.masked_lm.bias.numpy()
        p, q = softmax(teacher(batch, mode).numpy() / T), softmax(scores / T)
        weights_of = batch["masked_lm_weights"].numpy()
        soft += T**2 * (divergence(p, q).sum(axis=-1) * weights_of).sum()
        chosen = np.take_along_axis(softmax(scores), batch["masked_lm_ids"].numpy()[..., None], axis=-1)[..., 0]
        hard -= (np.log(chosen) * weights_of).sum()
        count += weights_of.sum()
    evaluated = step.evaluate({"": batches})
    assert evaluated["mlm_loss"] == pytest.approx(hard / count, rel=1e-4)  # without the teacher
    found = step.update(1, batches, rate=1e-2)
    assert found["mlm_loss"] == pytest.approx(((1 - SHARE) * hard + SHARE * soft) / count, rel=1e-4)
    assert found["nsp_loss"] == pytest.approx(evaluated["nsp_loss"], rel=1e-4)
    assert all(variable.numpy().tobytes() == before[name].tobytes() for name, variable in variables(teacher).items())


@pytest.mark.slow
def test_a_student_takes_layers_learns_from_a_teacher_and_resumes_to_the_same_bits(
    dataset: Path, tmp_path: Path
) -> None:
    base = ["demo_phase1", "--data.train", str(dataset), *TINY, "--batch.per_device", "6", "--run.save_every", "1"]
    base += ["--run.keep", "9"]
    pretrain.main([*base, "--model.num_hidden_layers", "3", "--run.steps", "1", "--run.directory", f"{tmp_path}/t"])
    student = [*base, "--run.steps", "2", "--init.checkpoint", f"{tmp_path}/t", "--init.layers", "2", "0"]
    student += ["--distill.teacher", f"{tmp_path}/t", "--distill.temperature", "3"]
    pretrain.main([*student, "--run.directory", f"{tmp_path}/whole"])
    pretrain.main([*student, "--run.directory", f"{tmp_path}/parts"])
    started = [*student, "--optimizer.learning_rate", "0", "--run.directory", f"{tmp_path}/start"]
    pretrain.main(started)
    teacher, start = weights(tmp_path / "t", 1), weights(tmp_path / "start", 2)
    for here, there in (("layer_0/", "layer_2/"), ("layer_1/", "layer_0/"), ("embeddings/", "embeddings/")):
        names = [name for name in start if name.startswith(here)]
        assert names
        for name in names:
            np.testing.assert_array_equal(start[name], teacher[there + name.removeprefix(here)], err_msg=name)
    assert not any("layer_2/" in name for name in start)
    for step in checkpoints(tmp_path / "parts")[1:]:
        (tmp_path / "parts" / "checkpoints" / step).rename(tmp_path / step)
    pretrain.main([*student, "--run.directory", f"{tmp_path}/parts"])
    same_bits(weights(tmp_path / "whole", 2), weights(tmp_path / "parts", 2))
    for flags, reason in (
        (["--init.layers", "3"], r"--init\.layers 3: .* has the layers 0 to 2"),
        (["--model.num_hidden_layers", "3"], "contradicts the weights"),
        (["--distill.teacher", str(tmp_path / "none")], "none: no such folder; give the run directory of a trained"),
    ):
        with pytest.raises(UserError, match=reason):
            pretrain.main([*student, *flags, "--run.directory", f"{tmp_path}/bad"])
