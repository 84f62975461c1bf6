"""Attention and its gradient against the plain formula."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert.model import attention
from bert.model.attention import attend, scale
from bert.model.dropout import apply_dropout
from tests.bert.model.random_tensors import bits, gradients, normal

RATE = 0.3


SHUT = np.where(np.arange(11) < np.array([[11], [5]]), 0.0, -1e4)  # [2, 11]
MASKS = {
    "padding": SHUT[:, None, None],
    "instances": np.where((SHUT < 0)[:, :, None] == (SHUT < 0)[:, None, :], 0.0, -1e4)[:, None],
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rate"), [("padding", 0.0), ("instances", RATE)])
@pytest.mark.parametrize("way", ["eager", "graph", "fused", "bfloat16", "float16"])
def test_attention_and_its_gradients_are_those_of_the_plain_formula(
    way: str, kind: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a graph too, where TensorFlow puts other kernels in the place of what is written."""
    if way == "fused":  # as on GPUs
        monkeypatch.setattr(attention, "exact_softmax", lambda dtype: False)
    mask = tf.constant(MASKS[kind], tf.float32)
    given = [normal(2, 3, 11, 5), normal(2, 3, 11, 5, scale=2), normal(2, 3, 11, 5, scale=3)]
    random = (bits(2, 3, 11, 11),) if rate else ()
    dtype = tf.as_dtype(way) if "float" in way else tf.float32

    def plain(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        weights = tf.nn.softmax(tf.einsum("bnih,bnjh->bnij", q, k) * 5**-0.5 / scale(5) + mask)
        return tf.einsum("bnij,bnjh->bnih", apply_dropout(weights, random, rate), v)

    def ours(*tensors: tf.Tensor) -> tf.Tensor:
        return attend(*(tf.cast(x, dtype) for x in tensors), mask, *random, rate=rate)

    found = gradients(ours if way == "eager" else tf.function(ours), *given)
    for mine, theirs in zip(found, gradients(plain, *given), strict=True):
        for one, other in zip(mine, theirs, strict=True):
            close = 1e-4 if dtype == tf.float32 else 6 * np.abs(other).max() / (256 if way == "bfloat16" else 2048)
            np.testing.assert_allclose(one.astype(np.float32), other, rtol=1e-4, atol=close)


@pytest.mark.slow
def test_a_softmax_that_is_not_computed_in_float32_is_found_out() -> None:
    find = "import tensorflow as tf; from bert.model import attention; print(attention.exact_softmax(tf.bfloat16))"
    without = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
    said = subprocess.run([sys.executable, "-c", find], env=without, capture_output=True, text=True, check=True).stdout
    assert said == "False\n"  # TensorFlow's own is off by a hundredth and more
    assert attention.exact_softmax(tf.float32)


def test_attention_holds_scores_beyond_the_range_of_exp() -> None:
    q, k = 40.0 * tf.ones([1, 1, 3, 4]), tf.constant([1.0, 1.0, -1.0])[None, None, :, None] * tf.ones([1, 1, 3, 4])
    found, slopes = gradients(lambda *a: attend(*a, tf.zeros([1, 1, 1, 3]), rate=0.0), q, k, normal(1, 1, 3, 4))
    np.testing.assert_allclose(found[0][0, 0], np.tile(normal(1, 1, 3, 4)[0, 0, :2].numpy().mean(0), [3, 1]), rtol=1e-5)
    assert all(np.isfinite(slope).all() for slope in slopes)
