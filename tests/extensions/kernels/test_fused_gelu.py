"""A feed-forward layer with GELU within its products: its kernels' text, executed with NumPy (triton_programs.py).

The same text is compiled for GPUs by XLA in tests/benchmarks/test_gpu_check.py.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from bert.recipes import RECIPES
from bert.training import preflight
from bert.training.communicator import Communicator
from extensions.kernels import fused_gelu, triton_ir
from extensions.kernels.triton_ir import Kernel
from tests.extensions.kernels.test_flash import HALVES
from tests.extensions.kernels.triton_programs import executed


def plain_feed_forward(*arrays: np.ndarray) -> list[np.ndarray]:
    """Return GELU(x W1 + b1) W2 and its gradients in float64, by the formulas."""
    x, first, bias, second, rise = arrays
    z = x @ first + bias
    below = 0.5 + 0.5 * np.vectorize(math.erf)(z / 2**0.5)
    slope = below + z * np.exp(-z * z / 2) / (2 * np.pi) ** 0.5
    by_z = rise @ second.T * slope
    return [z * below @ second, by_z @ first.T, x.T @ by_z, by_z.sum(0), (z * below).T @ rise]


@pytest.mark.parametrize(
    ("rows", "width", "inner", "stream", "dtype", "unit"),
    [
        (96, 48, 80, tf.bfloat16, tf.bfloat16, 2**-8),  # three tiles by five, three passes
        (32, 64, 64, tf.float32, tf.float16, 2**-11),
    ],
)
def test_the_kernels_compute_gelu_and_its_gradients(
    rows: int, width: int, inner: int, stream: tf.DType, dtype: tf.DType, unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_ir, "call", executed)
    for name in ("ROWS", "COLUMNS", "TERMS"):
        monkeypatch.setattr(fused_gelu, name, 32)
    numbers = np.random.default_rng(6)
    sizes = [(rows, width), (width, inner), (inner,), (inner, width), (rows, width)]
    scales = (1, width**-0.5, 1, inner**-0.5, 1)
    given = [tf.constant(numbers.normal(0, s, size), tf.float32) for s, size in zip(scales, sizes, strict=True)]
    exactly = (0, 1, 3, 4)  # which are rounded to the compute type, where they are not yet
    given = [tf.cast(tf.cast(one, dtype), tf.float32) if n in exactly else one for n, one in enumerate(given)]
    x, first, bias, second, rise = given
    x, sources = tf.cast(x, stream), [first, bias, second]
    with tf.GradientTape() as tape:
        tape.watch([x, *sources])
        output = fused_gelu.feed_forward(x, first, bias, second, dtype)
    found = [output, *tape.gradient(output, [x, *sources], tf.cast(rise, dtype))]
    assert [one.dtype for one in found] == [dtype, stream, *[tf.float32] * 3]
    for one, other in zip(found, plain_feed_forward(*(one.numpy().astype(float) for one in given)), strict=True):
        np.testing.assert_allclose(one.numpy().astype(float), other, atol=2 * unit * np.abs(other).max(), rtol=0)


def test_rows_without_a_kernel_are_named() -> None:
    assert fused_gelu.supports(24_576, 1024, 4096)
    for rows in (None, 24_570, 1 << 19):  # the last one has 2^31 elements
        assert not fused_gelu.supports(rows, 1024, 4096)


def test_where_it_cannot_be_had_a_run_says_so() -> None:
    config = ModelConfig(fused_gelu=True, hidden_size=32, num_attention_heads=2, intermediate_size=48)
    with pytest.raises(UsageError, match=r"fused GELU does not run here \(.*\); leave out --model.fused_gelu"):
        preflight.kernels(config, HALVES, 128)
    with pytest.raises(UsageError, match="no kernel for widths of 32 and 50"):
        preflight.kernels(dataclasses.replace(config, intermediate_size=50), HALVES, 128)
    for change in ({"hidden_act": "gelu_tanh"}, {"gated": True}):
        with pytest.raises(UsageError, match=r"fused_gelu needs model\.hidden_act gelu and model\.gated false"):
            dataclasses.replace(config, **change)


@pytest.mark.parametrize(("name", "kind"), [("fused_norm", "fused layer norm"), ("fused_gelu", "fused GELU")])
def test_a_run_checks_the_kernels_before_its_first_update(name: str, kind: str, tmp_path: Path) -> None:
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    model = dataclasses.replace(config.model, fused_norm=name == "fused_norm", fused_gelu=name == "fused_gelu")
    run = dataclasses.replace(config.run, directory=tmp_path / "run")
    config = dataclasses.replace(config, model=model, run=run, precision=HALVES)
    with pytest.raises(UsageError, match=f"{kind} does not run here"):
        preflight.before_updates(config, Communicator(), tmp_path / "data", 512)


def test_a_device_that_computes_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(fused_gelu=True, hidden_size=32, num_attention_heads=2, intermediate_size=48)
    monkeypatch.setattr(fused_gelu, "graphs", SimpleNamespace(function=lambda **_: lambda function: function))
    monkeypatch.setattr(fused_gelu, "CHECKED_ROWS", 32)
    monkeypatch.setattr(triton_ir, "call", executed)
    preflight.kernels(config, HALVES, 128)

    def without_slope(
        kernel: Kernel, grid: Sequence[int], operands: Sequence[tf.Tensor], like: Sequence[Any], *_: int
    ) -> list[tf.Tensor]:
        steep = kernel.name == "gelu_backward"  # where the slope is nearly 1
        return executed(kernel, grid, [*operands[:2], operands[2] + 9] if steep else operands, like)

    monkeypatch.setattr(triton_ir, "call", without_slope)
    with pytest.raises(UsageError, match="gives other results than the plain one"):
        preflight.kernels(config, HALVES, 128)
