"""Rows are added up as NumPy adds them, whatever their numbers, without a scatter."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf

from bert.model import lookup

WIDTH = 5


def expected(rows: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    sums = np.zeros((count, rows.shape[1]))
    np.add.at(sums, numbers, rows)
    return sums


@pytest.mark.slow
@hypothesis.given(
    st.integers(1, 700).flatmap(
        lambda count: st.tuples(st.just(count), st.lists(st.integers(0, count - 1), min_size=1, max_size=600))
    )
)
@hypothesis.example((7, [3] * 400))  # these fill blocks, or go on in the next
@hypothesis.example((7, [0] * 128 + [6] * 128))
@hypothesis.example((7, [6] * 129))
@hypothesis.example((7, [*range(7)] * 100))
@hypothesis.settings(max_examples=60)
def test_rows_of_one_number_are_added(drawn: tuple[int, list[int]]) -> None:
    count, numbers = drawn[0], np.array(drawn[1], np.int32)
    rows = np.random.default_rng(len(numbers)).standard_normal((len(numbers), WIDTH)).astype(np.float32)
    found = lookup.sum_rows(tf.constant(rows), tf.constant(numbers), tf.constant(count))
    np.testing.assert_allclose(found, expected(rows, numbers, count), rtol=1e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_a_gpu_has_the_gradient_of_a_cpu_and_no_scatter(dtype: tf.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    table = tf.Variable(tf.cast(random.standard_normal((37, WIDTH)), dtype))
    numbers = tf.constant(random.integers(0, 30, (3, 101)), tf.int32)
    upstream = tf.cast(random.standard_normal((3, 101, WIDTH)), dtype)

    def values() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            rows = lookup.lookup(table, numbers)
        return rows, tf.convert_to_tensor(tape.gradient(rows, table, upstream))

    plain = values()
    monkeypatch.setattr(lookup, "has_gpu", lambda: True)
    compiled = tf.function(values, jit_compile=True)
    for one, other in zip(compiled(), plain, strict=True):
        assert one.dtype == other.dtype == dtype
        atol = 1e-5 if dtype == tf.float32 else 0.1  # TensorFlow's own adds up in bfloat16
        np.testing.assert_allclose(tf.cast(one, tf.float32), tf.cast(other, tf.float32), atol=atol)
    assert " scatter(" not in compiled.experimental_get_compiler_ir()(stage="optimized_hlo")
