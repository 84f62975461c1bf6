"""A loss over all samples of an update has the gradient of one big batch, however the update is divided."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.encoder import variables
from bert.text.sampler import Batch
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step
from bert.training.task import Execution
from extensions.embeddings.kind import Embedded
from extensions.embeddings.training import EmbeddingTraining
from tasks.config import TaskData
from tasks.labels import Labels
from tests.bert.training.ranks import Ranks, as_ranks

N, S, VOCAB, STEP, SEED = 12, 9, 41, 3, 4
CONFIG = ModelConfig(
    vocab_size=VOCAB,
    hidden_size=20,
    num_hidden_layers=1,
    num_attention_heads=5,
    intermediate_size=28,
    max_position_embeddings=S,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)
CONTRASTIVE = TaskData(task="embed", text=("a", "b", "c"), length=S, both_directions=True, projection=True, pool="cls")
COSENT = TaskData(task="embed", text=("a", "b"), length=S, loss="cosent", pool="mean", dimensions=(8, 20))


class Gathering(Ranks):
    """Ranks that are threads, each of which holds the whole model, and that gather rows."""

    @property
    def replicas(self) -> Communicator:
        return self

    @property
    def group(self) -> Communicator:
        return Communicator()

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.concat(values, axis=0) for values in zip(*self.meet(list(tensors)), strict=True)]


def task_of(data: TaskData, dropout: float) -> EmbeddingTraining:
    kind = Embedded(data, Labels(regression=True), ("spearman",))
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return EmbeddingTraining(kind, config, seed=5)


def samples(texts: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(texts)
    lengths = random.integers(3, S + 1, (N, texts))
    mask = (np.arange(S) < lengths[..., None]).astype(np.int32)
    ids = random.integers(5, VOCAB, (N, texts, S)).astype(np.int32)
    copied = [((2, 1), (7, 1)), ((4, 0), (5, 0)), ((6, 0), (9, texts - 1)), ((8, 1), (8, texts - 1)), ((3, 0), (3, 1))]
    for one, other in copied:
        ids[other], mask[other] = ids[one], mask[one]
    ids *= mask
    label = random.integers(0, 6, (N, 1)).astype(np.float32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids), "label": label}


def micro_batches(data: TaskData, per_device: int, rank: int = 0, ranks: int = 1) -> list[Batch]:
    """Those of a rank: micro-batch k of rank r is number k * ranks + r."""
    arrays = samples(len(data.text))
    names = [name for name in arrays if name != "label" or data.loss != "contrastive"]
    every = [
        {name: tf.constant(arrays[name][first : first + per_device]) for name in names}
        for first in range(0, N, per_device)
    ]
    return every[rank::ranks]


def gradients(
    data: TaskData, per_device: int, *, ranks: int = 1, dropout: float = 0.0, xla: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The sums over the ranks of the gradients of an update, and its measures."""

    def work(comm: Communicator) -> Any:
        task = task_of(data, dropout)
        optimizer = Optimizer(variables(task.module), OptimizerConfig(learning_rate=1.0))
        step = Step(task, optimizer, comm, PrecisionConfig(xla=xla), RunConfig(seed=SEED))
        measures = step.update(STEP, micro_batches(data, per_device, comm.rank, comm.size), rate=0.0)
        return {
            name: x.numpy() for name, x in zip(optimizer.weights, step.accumulator.gradients, strict=True)
        }, measures

    if ranks == 1:
        return work(Communicator())
    found = as_ranks(ranks, 1, lambda comm: work(Gathering(comm.rank, comm.size, comm.meet)))
    return {name: sum(of[name] for of, _ in found) for name in found[0][0]}, found[0][1]


@functools.cache
def expected(data: TaskData, per_device: int, dropout: float) -> tuple[dict[str, np.ndarray], float]:
    """Loss and gradients of one tape over all micro-batches, each with its dropout masks; the loss by its formula."""
    task, execution = task_of(data, dropout), Execution(tf.float32)
    weights = variables(task.module)
    with tf.GradientTape() as tape:
        rngs = [
            DropoutRng(micro_batch_seed(SEED, tf.constant(STEP, tf.int64), tf.constant(k, tf.int64))) for k in range(N)
        ]
        every = micro_batches(data, per_device)
        x = tf.concat(
            [task.outputs(batch, execution.mode(rng)) for batch, rng in zip(every, rngs, strict=False)], axis=0
        )
        loss = _contrastive(x) if data.loss == "contrastive" else _cosent(x, samples(2)["label"][:, 0])
    found = tape.gradient(loss, list(weights.values()))
    dense = [
        tf.zeros_like(w) if g is None else tf.convert_to_tensor(g) for g, w in zip(found, weights.values(), strict=True)
    ]
    return dict(zip(weights, (g.numpy() for g in dense), strict=True)), float(loss)


def _cosine(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x * y) / tf.sqrt(tf.reduce_sum(x * x) * tf.reduce_sum(y * y))


def _contrastive(x: tf.Tensor) -> tf.Tensor:
    text = [[tuple(row) for row in sample] for sample in samples(3)["input_ids"].tolist()]

    def is_counted(i: int, j: int, k: int) -> bool:
        """A copy of one of the texts of sample i, or what belongs to a copy of its first, is no negative of it."""
        return (i, 1) == (j, k) or not (text[j][k] in text[i][:2] or (k == 1 and text[i][0] == text[j][0]))

    scores = [
        [tf.exp(_cosine(x[i, 0], x[j, k]) / 0.05) * is_counted(i, j, k) for k in (1, 2) for j in range(N)]
        for i in range(N)
    ]
    there = [-tf.math.log(scores[i][i] / tf.add_n(scores[i])) for i in range(N)]
    back = [-tf.math.log(scores[i][i] / tf.add_n([scores[j][i] for j in range(N)])) for i in range(N)]
    return (tf.add_n(there) + tf.add_n(back)) / (2 * N)


def _cosent(x: tf.Tensor, scores: np.ndarray) -> tf.Tensor:
    total = tf.zeros([])
    for d in (8, 20):
        cosines = [_cosine(x[i, 0, :d], x[i, 1, :d]) / 0.05 for i in range(N)]
        pairs = [(i, j) for i in range(N) for j in range(N) if scores[i] < scores[j]]
        total += tf.math.log(1.0 + tf.add_n([tf.exp(cosines[i] - cosines[j]) for i, j in pairs]))
    return total


def close(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert one.keys() == two.keys()
    largest = max(np.abs(value).max() for value in two.values())
    assert largest > 0.01
    for name, value in one.items():
        np.testing.assert_allclose(value, two[name], rtol=2e-4, atol=2e-6 * largest, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "ranks", "per_device"),
    [
        *(pytest.param(CONTRASTIVE, *sizes, marks=pytest.mark.thorough) for sizes in ((1, 12), (1, 3), (2, 2))),
        (COSENT, 2, 3),  # the test below has CONTRASTIVE, with dropout
    ],
)
def test_ranks_and_micro_batches_have_the_gradient_of_one_big_batch(
    data: TaskData, ranks: int, per_device: int
) -> None:
    found, measures = gradients(data, per_device, ranks=ranks)
    wanted, loss = expected(data, N, 0.0)
    close(found, wanted)
    assert measures["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "xla"), [(2, False), (1, True)])
def test_both_passes_have_the_same_dropout_masks(ranks: int, xla: bool) -> None:
    found, measures = gradients(CONTRASTIVE, 3, ranks=ranks, dropout=0.1, xla=xla)
    wanted, loss = expected(CONTRASTIVE, 3, 0.1)
    close(found, wanted)
    assert measures["loss"] == pytest.approx(loss, rel=1e-5)
    assert 0 <= measures["embedding_accuracy"] <= 100


@pytest.mark.slow
def test_a_batch_that_is_divided_without_the_others_has_another_gradient() -> None:
    """The negatives of a micro-batch alone are fewer: the test above could not pass without the cache."""
    wanted, _ = expected(CONTRASTIVE, N, 0.0)
    task = task_of(CONTRASTIVE, 0.0)
    weights = variables(task.module)
    with tf.GradientTape() as tape:
        mode = Execution(tf.float32).mode(DropoutRng(None))
        parts = [task.measure(batch, mode)["embedding"].loss for batch in micro_batches(CONTRASTIVE, 3)]
        loss = tf.add_n(parts) / N
    gradient = tape.gradient(loss, weights["layer_0/attention/output/kernel"])
    assert np.abs(gradient.numpy() - wanted["layer_0/attention/output/kernel"]).max() > 1e-3
