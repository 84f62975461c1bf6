"""Dropout is sound and a function of its place."""

import numpy as np
import pytest
import tensorflow as tf

from bert.model import dropout
from bert.model.dropout import DropoutRng, apply_dropout, micro_batch_seed, philox


def dropped(rng: DropoutRng, x: tf.Tensor, rate: float) -> tf.Tensor:
    return apply_dropout(x, rng.bits(tf.shape(x), rate), rate)


def seed(step: int, micro_batch: int = 0) -> tf.Tensor:
    return micro_batch_seed(7, tf.constant(step, tf.int64), tf.constant(micro_batch, tf.int64))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean_and_drops_at_its_rate(rate: float) -> None:
    x = tf.ones([997, 1013])
    y = dropped(DropoutRng(seed(1)), x, rate).numpy()
    exact = round(rate * 256) / 256
    assert (y == 0).mean() == pytest.approx(exact, abs=4 * np.sqrt(exact / y.size))
    assert abs(exact - rate) <= 1 / 512
    assert y.mean() == pytest.approx(1.0, abs=0.002)
    assert len(np.unique(y)) == 2


def test_masks_repeat_for_the_same_place_and_differ_elsewhere() -> None:
    x = tf.ones([31, 37])
    first = dropped(DropoutRng(seed(1)), x, 0.5).numpy()
    np.testing.assert_array_equal(first, dropped(DropoutRng(seed(1)), x, 0.5))
    one = DropoutRng(seed(1))
    places = [dropped(one, x, 0.5).numpy() for _ in range(3)]
    others = [
        dropped(DropoutRng(seed(2)), x, 0.5).numpy(),
        dropped(DropoutRng(seed(1, 1)), x, 0.5).numpy(),
        *places[1:],
    ]
    for other in others:
        agreement = (first == other).mean()
        assert 0.4 < agreement < 0.6  # independent fair coins


def test_neighbouring_elements_are_independent() -> None:
    kept = dropped(DropoutRng(seed(3)), tf.ones([2**18]), 0.5).numpy() > 0
    for lag in range(1, 9):  # eight bits of one word must not resemble each other
        assert (kept[lag:] == kept[:-lag]).mean() == pytest.approx(0.5, abs=0.006)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0, 0, 0), (0x257A3673, 0xCD26BE2A)),
        ((0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (0xAB302C4D, 0x3DC9D239)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E), (0xBEDBBE6B, 0xE4C770B3)),
    ],
)
def test_the_generator_gives_the_published_answers(given: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert tuple(int(word) for word in philox(*(tf.constant(word, tf.uint32) for word in given))) == expected


def test_unfolded_masks_have_the_same_bytes_and_are_no_constants_of_a_program() -> None:
    def bits(seed: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        return DropoutRng(seed, unfolded=True).branch(3).bits(like.shape, 0.5)[0]

    program, sizes = tf.function(bits, jit_compile=True), []
    for size in (999, 99_991):
        like = tf.zeros([size])
        np.testing.assert_array_equal(program(seed(1), like), DropoutRng(seed(1)).branch(3).bits([size], 0.5)[0])
        sizes.append(len(program.experimental_get_compiler_ir(seed(1), like)(stage="hlo_serialized")))
    assert sizes[1] < 1.02 * sizes[0], sizes


def test_gpus_draw_what_cpus_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = DropoutRng(seed(5)).bits(tf.constant([3, 7, 11]), 0.1)[0]
    monkeypatch.setattr(dropout, "has_gpu", lambda: True)
    np.testing.assert_array_equal(DropoutRng(seed(5)).bits(tf.constant([3, 7, 11]), 0.1)[0], expected)
    drawn = tf.function(lambda: DropoutRng(seed(5)).bits(tf.constant([3, 7, 11]), 0.1)[0], jit_compile=True)
    np.testing.assert_array_equal(drawn(), expected)
