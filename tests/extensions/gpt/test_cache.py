"""Places, positions and masks of rows that begin with padding."""

import numpy as np
import tensorflow as tf

from bert.core.config import ModelConfig
from extensions.gpt.cache import Cache

CONFIG = ModelConfig(
    vocab_size=9, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=8
)
PADDING, PLACES = [0, 3, 4], 11


def started() -> Cache:
    cache = Cache.empty(CONFIG, 3, PLACES, tf.float32)
    cache.restart(tf.constant(PADDING))
    return cache


def test_a_token_sees_those_before_it_and_itself_but_no_padding() -> None:
    cache = started()
    cache.advance(5)
    found = cache.mask(2).numpy()
    assert found.shape == (3, 1, 2, PLACES)
    for row, padding in enumerate(PADDING):
        for token in range(2):
            allowed = [padding <= place <= 5 + token for place in range(PLACES)]
            np.testing.assert_array_equal(found[row, 0, token] == 0, allowed)
    assert set(np.unique(found)) == {-1e4, 0}


def test_positions_count_from_the_first_token_and_stay_in_the_model() -> None:
    cache = started()
    np.testing.assert_array_equal(cache.positions(5), [[0, 1, 2, 3, 4], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
    cache.advance(5)
    np.testing.assert_array_equal(cache.positions(4), [[5, 6, 7, 7], [2, 3, 4, 5], [1, 2, 3, 4]])


def test_each_layer_keeps_its_own_keys_and_values_until_the_restart() -> None:
    cache, random = started(), np.random.default_rng(1)
    new = random.normal(size=[2, 2, 3, 5, 7, 4]).astype(np.float32)  # layer, keys or values, B, N, T, H
    for begin, end in ((0, 4), (4, 5), (5, 7)):
        for layer in (0, 1):
            keys, values = cache.branch(layer + 1).extend(*tf.unstack(tf.constant(new[layer, :, :, :, begin:end])))
            np.testing.assert_array_equal(keys[:, :, :end], new[layer, 0, :, :, :end])
            np.testing.assert_array_equal(values[:, :, :end], new[layer, 1, :, :, :end])
            assert keys.shape == (3, 5, PLACES, 4) and not np.any(keys[:, :, end:])
        cache.advance(end - begin)
    cache.restart(tf.constant([1, 0, 0]))
    np.testing.assert_array_equal(cache.positions(3), [[0, 0, 1], [0, 1, 2], [0, 1, 2]])
