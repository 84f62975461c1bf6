"""Losses of embeddings equal their published formulas, written out with loops in float64."""

import math

import numpy as np
import pytest
import tensorflow as tf

from extensions.embeddings import losses

N, K, D, T = 5, 3, 7, 0.1


def embeddings(texts: int) -> np.ndarray:
    return np.random.default_rng(texts).normal(size=(N, texts, D)).astype(np.float32)


def all_different(texts: int) -> tf.Tensor:
    return tf.reshape(tf.range(N * texts, dtype=tf.float32), [N, texts, 1])


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / math.sqrt(float(x @ x) * float(y @ y)))


def contrastive(x: np.ndarray, i: int, both: bool) -> float:
    """The loss of sample i."""
    candidates = [x[j, k] for k in range(1, x.shape[1]) for j in range(N)]
    found = math.exp(cosine(x[i, 0], x[i, 1]) / T)
    loss = -math.log(found / sum(math.exp(cosine(x[i, 0], y) / T) for y in candidates))
    if not both:
        return loss
    back = -math.log(found / sum(math.exp(cosine(x[i, 1], x[j, 0]) / T) for j in range(N)))
    return (loss + back) / 2


@pytest.mark.parametrize("texts", [2, K])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("dimensions", [(), (3, D), (D, 2)])
def test_the_contrastive_loss_is_the_published_one(texts: int, both: bool, dimensions: tuple[int, ...]) -> None:
    x = embeddings(texts)
    loss, right = losses.contrastive(tf.constant(x), all_different(texts), T, dimensions, both)
    wide = x.astype(np.float64)
    expected = [sum(contrastive(wide[..., :d], i, both) for d in dimensions or (D,)) for i in range(N)]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    others = [[cosine(wide[i, 0], wide[j, k]) for k in range(1, texts) for j in range(N)] for i in range(N)]
    np.testing.assert_array_equal(
        right, [float(max(range(len(row)), key=row.__getitem__) == i) for i, row in enumerate(others)]
    )


@pytest.mark.parametrize("both", [False, True])
def test_a_copy_of_a_text_is_no_negative(both: bool) -> None:
    """As in NoDuplicatesBatchSampler of sentence-transformers, whose batches have each text once."""
    x = embeddings(2)
    texts = all_different(2).numpy()
    texts[3, 1] = texts[1, 1]  # the same second text
    texts[4, 0] = texts[2, 0]  # the same first text
    texts[0, 1] = texts[3, 0]  # a second text that is another's first
    alike = {(1, 3), (3, 1), (2, 4), (4, 2), (3, 0)}  # the second text of j is no negative of i
    loss, right = losses.contrastive(tf.constant(x), tf.constant(texts), T, (), both)
    scores = np.array(
        [[math.exp(cosine(x[i, 0], x[j, 1]) / T) * ((i, j) not in alike) for j in range(N)] for i in range(N)]
    )
    there, back = (-np.log(np.diag(scores) / scores.sum(axis=axis)) for axis in (1, 0))
    np.testing.assert_allclose(loss, (there + back) / 2 if both else there, rtol=1e-5)
    np.testing.assert_array_equal(right, scores.argmax(axis=1) == range(N))


def test_a_score_is_what_the_cosine_should_be() -> None:
    x, scores = embeddings(2), np.linspace(-0.4, 1, N, dtype=np.float32)
    loss, _ = losses.cosine(tf.constant(x), tf.constant(scores), (4, D))
    expected = [sum((cosine(x[i, 0, :d], x[i, 1, :d]) - scores[i]) ** 2 for d in (4, D)) for i in range(N)]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_cosent_counts_each_pair_in_the_wrong_order() -> None:
    x, scores = embeddings(2), np.array([1, 3, 2, 3, 0], np.float32)
    loss, _ = losses.cosent(tf.constant(x), tf.constant(scores), T, ())
    cosines = [cosine(a.astype(np.float64), b.astype(np.float64)) for a, b in x]
    terms = [math.exp((cosines[i] - cosines[j]) / T) for i in range(N) for j in range(N) if scores[i] < scores[j]]
    np.testing.assert_allclose(loss, [math.log(1 + sum(terms))] * N, rtol=1e-5)


def test_an_embedding_of_length_zero_has_a_finite_gradient() -> None:
    x = tf.zeros([N, 2, D])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss, _ = losses.contrastive(x, all_different(2), T, (), True)
    assert np.isfinite(loss).all() and np.isfinite(tape.gradient(loss, x)).all()
