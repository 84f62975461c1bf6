"""Layer norm with its residual sum and dropout as kernels: their text, executed with NumPy (triton_programs.py).

The same text is compiled for GPUs by XLA in tests/benchmarks/test_gpu_check.py.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from bert.model import cost
from bert.model.dropout import DropoutRng
from bert.plan import demand
from bert.recipes import RECIPES
from bert.training import preflight
from extensions.kernels import fused_norm, triton_ir
from extensions.kernels.bits import packed
from tests.extensions.kernels.test_flash import HALVES, SEED
from tests.extensions.kernels.triton_programs import executed, executed_with_other_bits

EPSILON = 0.01
UNIT = {tf.float32: 1e-6, tf.bfloat16: 2**-8, tf.float16: 2**-11}


def plain_norm(c: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
    """Return the norm and its gradients in float64, by the formulas; c: what elements of y + bias are multiplied by."""
    x, y, bias, gamma, beta, rise = arrays
    total = x + c * (y + bias)
    centred = total - total.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    normal, slope = centred / deviation, rise * gamma
    by_centred = slope / deviation - centred * (slope * centred).mean(-1, keepdims=True) / deviation**3
    by_x = by_centred - by_centred.mean(-1, keepdims=True)
    sums = [(c * by_x).sum(0), (rise * normal).sum(0), rise.sum(0)]
    return [normal * gamma + beta, by_x, c * by_x, *sums]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "width", "stream", "narrow", "rate", "programs"),
    [
        (24, 64, tf.bfloat16, tf.bfloat16, 0.1, 2),  # a program passes over two tiles
        (12, 96, tf.float32, tf.bfloat16, 0.3, 1),  # three tiles in a row
        (8, 2048, tf.float32, tf.float16, 0.0, 4),
    ],
)
def test_the_kernels_compute_the_norm_with_the_masks_of_the_plain_path(
    rows: int,
    width: int,
    stream: tf.DType,
    narrow: tf.DType,
    rate: float,
    programs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_ir, "call", executed)
    monkeypatch.setattr(fused_norm, "PROGRAMS", programs)
    assert fused_norm.supports(rows, width)
    numbers = np.random.default_rng(6)
    x, rise = (tf.cast(numbers.normal(mean, 2, (rows, width)), stream) for mean in (5, 0.5))
    y = tf.cast(numbers.normal(0, 3, (rows, width)), narrow)
    vectors = [tf.constant(numbers.normal(mean, 1, width), tf.float32) for mean in (0, 1, 0)]
    shape = tf.constant([rows, width])
    (each,) = DropoutRng(SEED).bits(shape, 0.5)
    kept = each.numpy() >= round(rate * 256)
    given = [x, y, *vectors]
    with tf.GradientTape() as tape:
        tape.watch(given)
        bits = packed(DropoutRng(SEED), shape, rate)
        output = fused_norm.add_dropout_norm(*given, *bits, rate=rate, epsilon=EPSILON)
    found = [output, *tape.gradient(output, given, rise)]
    wide = [one.numpy().astype(np.float64) for one in (*given, rise)]
    exact = plain_norm(kept / (1 - round(rate * 256) / 256), *wide)
    # The gradient reads the normalised sum in y's type: one number of it is off by half a unit.
    units = [UNIT[stream], *[max(UNIT[stream], UNIT[narrow])] * 2, *[UNIT[narrow]] * 3]
    assert [one.dtype for one in found] == [stream, stream, narrow, *[tf.float32] * 3]
    for one, other, unit in zip(found, exact, units, strict=True):
        np.testing.assert_allclose(one.numpy().astype(np.float64), other, atol=2 * unit * np.abs(other).max(), rtol=0)


@pytest.mark.slow
def test_the_compiler_gets_the_kernels() -> None:
    x, vector, kept = tf.zeros([24, 64], tf.bfloat16), tf.zeros([64]), tf.zeros([24, 8], tf.uint8)

    @tf.function(jit_compile=True)
    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, vector])
            output = fused_norm.add_dropout_norm(x, x, *[vector] * 3, kept, rate=0.1, epsilon=EPSILON)
        return tape.gradient(output, [x, vector], x)

    program = gradients.experimental_get_compiler_ir()(stage="hlo")
    forward, backward = (line for line in program.splitlines() if f'"{triton_ir.TARGET}"' in line)
    rows, bits = "bf16[24,64]{1,0}", "u8[24,8]{1,0}"
    for line, name, last in (
        (forward, "norm_forward", "f32[24]{0}"),
        (backward, "norm_backward", "f32[12,3,64]{2,1,0}"),
    ):
        assert f'name = "{name}"' in line and f"({rows}, {rows}, {last}) custom-call(" in line
        assert bits in line and "grid_x = 12 : i32, grid_y = 1 : i32, grid_z = 1 : i32" in line


def test_where_it_cannot_be_had_a_run_says_so() -> None:
    config = ModelConfig(fused_norm=True)
    with pytest.raises(UsageError, match=r"fused layer norm does not run here \(.*\); leave out --model.fused_norm"):
        preflight.kernels(config, HALVES, 128)
    refused = [(25, 64), (None, 64), (24, 780), (24, 9 * 1024)]
    assert not any(fused_norm.supports(*shape) for shape in refused)
    with pytest.raises(UsageError, match="no kernel for a width of 780"):
        preflight.kernels(dataclasses.replace(config, hidden_size=780), HALVES, 128)
    with pytest.raises(UsageError, match=r"fused_norm needs --precision\.xla true"):
        preflight.kernels(config, dataclasses.replace(HALVES, xla=False), 128)
    with pytest.raises(UsageError, match=r"fused_norm needs model\.norm_placement post"):
        dataclasses.replace(config, norm_placement="pre")


@pytest.mark.slow
def test_a_device_that_drops_other_elements_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(fused_norm=True, hidden_size=64, num_attention_heads=2)
    monkeypatch.setattr(fused_norm.graphs, "function", lambda **_: lambda function: function)
    monkeypatch.setattr(fused_norm, "CHECKED_ROWS", 16)
    monkeypatch.setattr(triton_ir, "call", executed)
    preflight.kernels(config, HALVES, 128)

    monkeypatch.setattr(triton_ir, "call", executed_with_other_bits)
    with pytest.raises(UsageError, match="gives other results than the plain one"):
        preflight.kernels(config, HALVES, 128)


def test_the_plan_counts_a_bit_for_each_element() -> None:
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    model = dataclasses.replace(config.model, fused_norm=True)
    kept, less = (demand.activations(one, 512, 80) for one in (config, dataclasses.replace(config, model=model)))
    outputs = 2 * (23 * 512 + cost.states_read(80)) * config.batch.per_device * 1024
    assert kept["dropout bits"] - less["dropout bits"] == outputs - outputs // 8
