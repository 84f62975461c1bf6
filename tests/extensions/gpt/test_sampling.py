"""Tokens are drawn with the probabilities that temperature, top-k and top-p define."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.gpt import sampling
from extensions.gpt.sampling import Choice

VOCAB = 23


def highest_chi_square(freedom: int) -> float:
    """What chance exceeds once in 10,000 times (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 3.719 * spread**0.5) ** 3)


def expected(logits: np.ndarray, choice: Choice) -> np.ndarray:
    """The probabilities of one row of scores [V], token by token."""
    if choice.temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    weights = np.exp(logits.astype(np.float64) / choice.temperature)
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    kept = order[: choice.top_k or len(order)]
    total, nucleus = sum(weights[token] for token in kept), []
    for token in kept:
        nucleus.append(token)
        if sum(weights[other] for other in nucleus) >= choice.top_p * total:
            break
    result = np.zeros(len(logits))
    result[nucleus] = weights[nucleus] / weights[nucleus].sum()
    return result


def found(logits: np.ndarray, choice: Choice) -> np.ndarray:
    """The same by `candidates`, for rows [B, V]."""
    probabilities, ids = sampling.candidates(tf.constant(logits, tf.float32), choice)
    result = np.zeros(logits.shape)
    np.put_along_axis(result, ids.numpy(), probabilities.numpy(), axis=1)
    return result


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.sampled_from([0, 1, 5, 22, 23, 99]),
    st.sampled_from([0.01, 0.37, 0.9, 1.0]),
)
def test_probabilities_are_those_of_numpy(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    logits = np.random.default_rng(seed).normal(0, 3, [3, VOCAB]).astype(np.float32)
    choice = Choice(temperature, top_k, top_p)
    np.testing.assert_allclose(found(logits, choice), [expected(row, choice) for row in logits], atol=1e-12)


def test_of_equal_scores_the_lower_id_comes_first() -> None:
    logits = np.array([[1, 2, 0, 2, 1, 2]])
    np.testing.assert_allclose(found(logits, Choice(top_k=2)), [[0, 0.5, 0, 0.5, 0, 0]])
    np.testing.assert_allclose(found(logits, Choice(temperature=0)), [[0, 1, 0, 0, 0, 0]])
    np.testing.assert_allclose(found(logits, Choice(top_p=0.1)), [[0, 1, 0, 0, 0, 0]])


@pytest.mark.parametrize("choice", [Choice(), Choice(top_k=5), Choice(temperature=0.7, top_p=0.8)])
def test_drawn_tokens_have_these_probabilities(choice: Choice) -> None:
    samples, logits = 20_011, np.random.default_rng(3).normal(0, 0.7, VOCAB)
    probabilities = expected(logits.astype(np.float32), choice)
    numbers = sampling.uniforms(11, tf.range(samples), tf.fill([samples], 5))
    drawn = sampling.pick(tf.constant(np.tile(logits, [samples, 1]), tf.float32), choice, numbers)
    counts = np.bincount(drawn, minlength=VOCAB)
    possible = probabilities > 0
    assert not counts[~possible].any()
    wanted = probabilities[possible] * samples
    assert len(wanted) > 3
    assert ((counts[possible] - wanted) ** 2 / wanted).sum() < highest_chi_square(len(wanted) - 1)


def test_the_ends_of_the_range_choose_possible_tokens() -> None:
    logits = tf.constant(np.random.default_rng(4).normal(0, 2, [2, VOCAB]), tf.float32)
    order = np.argsort(-logits.numpy(), axis=1)
    ends = tf.constant([0.0, 1 - 2.0**-53], tf.float64)
    np.testing.assert_array_equal(sampling.pick(logits, Choice(top_k=7), ends), [order[0, 0], order[1, 6]])
    scores = tf.constant([[-1e4, 0, -1e4, 1, -1e4], [-1e4, 0, -1e4, 1, -1e4]])  # their exponential is 0
    np.testing.assert_array_equal(sampling.pick(scores, Choice(), ends), [1, 3])


def test_random_numbers_are_uniform_and_belong_to_their_place() -> None:
    samples, places = np.meshgrid(np.arange(101), np.arange(97))
    numbers = sampling.uniforms(7, tf.constant(samples.ravel()), tf.constant(places.ravel())).numpy()
    assert numbers.min() >= 0 and numbers.max() < 1
    assert len(set(numbers)) == len(numbers) == 9797
    counts, _ = np.histogram(numbers, bins=23, range=(0, 1))
    assert ((counts - 9797 / 23) ** 2 / (9797 / 23)).sum() < highest_chi_square(22)
    np.testing.assert_array_equal(sampling.uniforms(7, tf.constant([3]), tf.constant([2])), numbers[[2 * 101 + 3]])
    assert sampling.uniforms(8, tf.constant([3]), tf.constant([2])).numpy() != numbers[2 * 101 + 3]
