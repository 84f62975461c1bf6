"""What XLA is told of cuDNN's attention, carried out here by the letter; the library itself needs a GPU."""

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig, PrecisionConfig
from bert.core.errors import UsageError
from bert.model import attention, dropout, fused_ops
from bert.model.attention import scale
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.training import preflight
from extensions.kernels import attention as fused_attention
from extensions.kernels import cudnn

B, N, T, H = 2, 3, 10, 8
HALVES = PrecisionConfig(compute="bfloat16", xla=True)


def product(config: dict[str, Any], name: str, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """dot_general of x and y with the numbers that the configuration gives for that product, in float32."""
    numbers = config["cudnn_fmha_backend_config"][f"{name}_dot_dimension_numbers"]
    left, right = list("abcd"), list("efgh")
    batch = [left[int(place)] for place in numbers["lhs_batch_dimensions"]]
    for place, letter in zip(numbers["rhs_batch_dimensions"], batch, strict=True):
        right[int(place)] = letter
    (summed,), (with_it,) = numbers["lhs_contracting_dimensions"], numbers["rhs_contracting_dimensions"]
    right[int(with_it)] = left[int(summed)]
    kept = [letter for letter in batch + left + right if letter != left[int(summed)]]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(dict.fromkeys(kept))}"
    return tf.einsum(equation, tf.cast(x, tf.float32), tf.cast(y, tf.float32))


def carried_out(
    target: str, operands: Sequence[tf.Tensor], config: dict[str, Any], like: Sequence[Any]
) -> list[tf.Tensor]:
    """As cuDNN documents it: the scores are scaled, then the bias is added; statistics are logarithms of sums."""
    q, k, v, *rest = operands
    factor = config["cudnn_fmha_backend_config"]["fmha_scale"]
    if target == cudnn.FORWARD:
        (bias,) = rest
        scores = factor * product(config, "bmm1", q, k) + tf.cast(bias, tf.float32)
        found = [product(config, "bmm2", tf.nn.softmax(scores), v), tf.reduce_logsumexp(scores, axis=-1)]
    else:
        sums, upstream, bias, output = rest
        scores = tf.einsum("bihn,bjhn->bhij", tf.cast(q, tf.float32), tf.cast(k, tf.float32))
        weights = tf.exp(factor * scores + tf.cast(bias, tf.float32) - sums[..., None])
        share = tf.einsum("bthn,bthn->bht", tf.cast(upstream, tf.float32), tf.cast(output, tf.float32))[..., None]
        by_scores = factor * weights * (product(config, "bmm2_grad_gemm2", upstream, v) - share)
        found = [
            product(config, "bmm1_grad_gemm2", by_scores, k),
            product(config, "bmm1_grad_gemm1", by_scores, q),
            product(config, "bmm2_grad_gemm1", weights, upstream),
        ]
    # Products give [B, N, T, H], which lie in memory as [B, T, N, H].
    found = [tf.transpose(x, [0, 2, 1, 3]) if x.shape.rank == 4 else x for x in found]
    for one, asked in zip(found, like, strict=True):
        assert one.shape == asked.shape
    return [tf.cast(one, asked.dtype) for one, asked in zip(found, like, strict=True)]


def given(dtype: tf.DType) -> list[tf.Tensor]:
    """Queries, keys, values and the gradient by the result."""
    numbers = np.random.default_rng(6).normal(0, 1, (4, B, N, T, H))
    return [tf.cast(x, dtype) for x in numbers * [[[[[scale(H)]]]], *[[[[[1.0]]]]] * 3]]


def masks() -> list[tf.Tensor]:
    """Of padding, and of packed rows."""
    free = np.random.default_rng(7).random((B, 1, T, T)) < 0.7
    free[..., 0] = True
    return [tf.constant(np.where(some, 0, -1e4), tf.float32) for some in (free[:, :, :1], free)]


def results(dtype: tf.DType, mask: tf.Tensor, fused: bool) -> list[np.ndarray]:
    q, k, v, upstream = given(dtype)
    with tf.GradientTape() as tape:
        tape.watch([q, k, v])
        output = (fused_attention if fused else attention).attend(q, k, v, mask, rate=0.0)
    return [tf.cast(x, tf.float32).numpy() for x in [output, *tape.gradient(output, [q, k, v], upstream)]]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_what_is_asked_of_it_is_our_attention(dtype: tf.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "_call", carried_out)
    for mask in masks():
        expected = results(tf.float32, mask, fused=False)
        for found, exact in zip(results(dtype, mask, fused=True), expected, strict=True):
            np.testing.assert_allclose(found, exact, atol=2**-6 * np.abs(exact).max())


@pytest.mark.slow
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_a_model_with_it_learns_what_one_without_does(
    norm_placement: Literal["post", "pre"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In all forms that are for GPUs, and with dropout elsewhere, against float32 on a CPU."""
    monkeypatch.setattr(cudnn, "_call", carried_out)
    config = ModelConfig(
        vocab_size=31,
        hidden_size=N * H,
        num_hidden_layers=2,
        num_attention_heads=N,
        intermediate_size=50,
        max_position_embeddings=T,
        attention_probs_dropout_prob=0.0,
        norm_placement=norm_placement,
        initializer_range=0.2,
    )
    ids = tf.constant(np.random.default_rng(8).integers(0, 31, (B, T)), tf.int32)
    mask, seed = tf.sequence_mask([T, T - 3], T, tf.int32), tf.constant([3, 4], tf.int64)

    def computed(fused: bool, dtype: tf.DType) -> list[np.ndarray]:
        for place in (fused_ops, dropout):
            monkeypatch.setattr(place, "has_gpu", lambda: fused)
        encoder = Encoder(dataclasses.replace(config, fused_attention=fused), seed=5)
        weights = list(variables(encoder).values())
        with tf.GradientTape() as tape:
            states = encoder(TokenBatch(ids, mask, ids % 2), Mode(dtype, DropoutRng(seed)))
            loss = tf.reduce_sum(states * tf.cos(tf.reshape(tf.range(tf.size(states), dtype=tf.float32), states.shape)))
        return [tf.convert_to_tensor(x).numpy() for x in [states, *tape.gradient(loss, weights)]]

    for found, exact in zip(computed(True, tf.bfloat16), computed(False, tf.float32), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, atol=0.05 * np.abs(exact).max() + 0.02)


@pytest.mark.slow
def test_the_compiler_gets_the_calls() -> None:
    q, k, v, upstream = given(tf.bfloat16)

    @tf.function(jit_compile=True)
    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            output = fused_attention.attend(q, k, v, masks()[0], rate=0.0)
        return tape.gradient(output, [q, k, v], upstream)

    program = gradients.experimental_get_compiler_ir()(stage="hlo")
    calls = [line.strip() for line in program.splitlines() if " custom-call(" in line]
    rows, lying = f"bf16[{B},{N},{T},{H}]{{3,1,2,0}}", f"bf16[{B},{T},{N},{H}]{{3,2,1,0}}"
    sums, room, bias = f"f32[{B},{N},{T}]{{2,1,0}}", "u8[0]{0}", f"bf16[{B},1,{T},{T}]{{3,2,1,0}}"
    kinds = [
        (cudnn.FORWARD, [rows, sums, room], [lying, lying, lying, bias]),
        (cudnn.BACKWARD, [rows, rows, rows, room], [lying, lying, lying, sums, lying, bias, lying]),
    ]
    assert len(calls) == 2
    for line, (target, made, taken) in zip(calls, kinds, strict=True):
        assert f'custom_call_target="{target}"' in line
        left, right = line.split(" custom-call(")
        asked = right.split("operand_layout_constraints={")[1].split("}, api_version")[0]
        for text, shapes in ((left, made), (right.split("), custom_call_target")[0], taken), (asked, taken)):
            assert re.findall(r"[a-z]+\d+\[[\d,]+\]\{[\d,]+\}", text) == shapes
        config = json.loads(line.split("backend_config=")[1])["cudnn_fmha_backend_config"]
        assert config["intermediate_tensor_shape"]["dimensions"] == [str(size) for size in (B, N, T, T)]


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        (PrecisionConfig(compute="bfloat16"), "needs --precision.xla true"),
        (PrecisionConfig(xla=True), "--precision.compute bfloat16 or float16"),
        (HALVES, r"cuDNN's attention does not run here \(.*\); leave out --model.fused_attention"),
    ],
)
def test_where_it_cannot_be_had_a_run_says_so(precision: PrecisionConfig, message: str) -> None:
    config = ModelConfig(fused_attention=True, attention_probs_dropout_prob=0.0)
    preflight.kernels(ModelConfig(), precision, 128)
    with pytest.raises(UsageError, match=message):
        preflight.kernels(config, precision, 128)


@pytest.mark.slow
def test_a_library_that_computes_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(fused_attention=True, attention_probs_dropout_prob=0.0, hidden_size=32, num_attention_heads=2)
    monkeypatch.setattr(cudnn, "_call", carried_out)
    preflight.kernels(config, HALVES, 30)

    def without_bias(target: str, operands: Sequence[tf.Tensor], *others: Any) -> list[tf.Tensor]:
        place = 3 if target == cudnn.FORWARD else 5
        changed = [tf.zeros_like(x) if number == place else x for number, x in enumerate(operands)]
        return carried_out(target, changed, *others)

    monkeypatch.setattr(cudnn, "_call", without_bias)
    with pytest.raises(UsageError, match="gives other results than the plain one"):
        preflight.kernels(config, HALVES, 30)
