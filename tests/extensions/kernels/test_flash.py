"""Attention with dropout that never writes its weights: its kernels' text, executed with NumPy (triton_programs.py).

The same text is compiled for GPUs by XLA in tests/benchmarks/test_gpu_check.py.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig, PrecisionConfig
from bert.core.errors import UsageError
from bert.model import dropout, fused_ops
from bert.model.attention import scale
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.plan import demand
from bert.recipes import RECIPES
from bert.training import preflight
from extensions.kernels import attention, flash, triton_ir
from extensions.kernels.bits import packed
from extensions.kernels.triton_ir import Kernel
from tests.extensions.kernels.triton_programs import executed, executed_with_other_bits

B, N, T, H = 2, 3, 48, 16
HALVES = PrecisionConfig(compute="bfloat16", xla=True)
SEED = tf.constant([3, 4], tf.int64)


def plain_dropout_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, upstream: np.ndarray, kept: np.ndarray, rate: float
) -> list[np.ndarray]:
    """Return attention and its gradients in float64, by the formulas; kept [B, N, T, T] says what is not dropped."""
    scores = 0.5 * q @ k.transpose(0, 1, 3, 2) + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    factors = kept / (1 - round(rate * 256) / 256)
    by_weights = factors * (upstream @ v.transpose(0, 1, 3, 2))
    by_scores = 0.5 * weights * (by_weights - (weights * by_weights).sum(-1, keepdims=True))
    transposed = by_scores.transpose(0, 1, 3, 2)
    return [weights * factors @ v, by_scores @ k, transposed @ q, (weights * factors).transpose(0, 1, 3, 2) @ upstream]


def masks(tokens: int) -> list[np.ndarray]:
    """Of padding, of packed rows, and none."""
    free = np.random.default_rng(7).random((B, 1, tokens, tokens)) < 0.7
    free[..., 0] = True
    return [np.where(some, 0, -1e4) for some in (free[:, :, :1], free, np.ones([1, 1, 1, tokens], bool))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "which", "dtype", "precision", "rate"),
    [(48, 0, tf.bfloat16, 2**-7, 0.1), (96, 1, tf.float16, 2**-9, 0.1), (48, 2, tf.float16, 2**-9, 0.0)],
)
def test_the_kernels_compute_attention_with_the_masks_of_the_plain_path(
    tokens: int, which: int, dtype: tf.DType, precision: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tiles of equal and of different sizes, several of each."""
    monkeypatch.setattr(triton_ir, "call", executed)
    for name, sizes in (("FORWARD", (32, 16)), ("BY_QUERIES", (16, 32)), ("BY_KEYS", (32, 16))):
        monkeypatch.setattr(flash, name, (*sizes, 4, 3))
    mask = masks(tokens)[which]
    numbers = np.random.default_rng(6).normal(0, 1, (4, B, N, tokens, H))
    q, k, v, upstream = (tf.cast(x, dtype) for x in numbers * [[[[[scale(H)]]]], *[[[[[1.0]]]]] * 3])
    shape = tf.constant([B, N, tokens, tokens])
    (each,) = DropoutRng(SEED).bits(shape, 0.1)
    kept = each.numpy() >= 26 if rate else np.ones(shape, bool)
    with tf.GradientTape() as tape:
        tape.watch([q, k, v])
        swapped = [tf.transpose(x, [0, 2, 1, 3]) for x in (q, k, v)]
        bits = packed(DropoutRng(SEED), shape, rate)
        output = flash.attend(*swapped, tf.constant(mask, tf.float32), *bits, rate=rate, factor=0.5)
        output = tf.transpose(output, [0, 2, 1, 3])
    found = [output, *tape.gradient(output, [q, k, v], upstream)]
    wide_q, wide_k, wide_v, rise = (x.numpy().astype(float) for x in (q, k, v, upstream))
    exact = plain_dropout_attention(wide_q, wide_k, wide_v, mask, rise, kept, rate)
    for x, y in zip(found, exact, strict=True):
        np.testing.assert_allclose(x.numpy().astype(float), y, atol=precision * np.abs(y).max())


def test_packed_bits_are_what_the_bytes_keep() -> None:
    shape, rate = tf.constant([B, N, T, T]), 0.3
    one, other = DropoutRng(SEED), DropoutRng(SEED)
    for _ in range(2):  # both count the same places
        (each,), (together,) = one.bits(shape, rate), packed(other, shape, rate)
        unpacked = np.unpackbits(together.numpy(), axis=-1, bitorder="little")
        np.testing.assert_array_equal(unpacked, each.numpy() >= round(rate * 256))
    (part,) = packed(DropoutRng(SEED), tf.constant([B, 2, T, T]), rate, (1, N))
    np.testing.assert_array_equal(part, packed(DropoutRng(SEED), shape, rate)[0][:, 1:])
    assert packed(DropoutRng(None), shape, rate) == packed(DropoutRng(SEED), shape, 0.0) == ()


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "recompute", "times"), [(32, True, 2), (25, False, 0)])
def test_a_model_with_all_kernels_learns_what_one_without_does(
    tokens: int, recompute: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout everywhere, recomputed activations, and a length without kernels, against float32 on a CPU.

    Its layer norms, at any length, and GELU have kernels too (test_fused_norm.py, test_fused_gelu.py).
    """
    started: Counter[str] = Counter()

    def counted(kernel: Kernel, grid: Sequence[int], *others: Any) -> list[tf.Tensor]:
        started[kernel.name] += 1
        return executed(kernel, grid, *others)

    monkeypatch.setattr(triton_ir, "call", counted)
    config = ModelConfig(
        vocab_size=31,
        hidden_size=2 * H,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=T,
        attention_probs_dropout_prob=0.3,
        initializer_range=0.2,
        recompute_activations=recompute,
    )
    ids = tf.constant(np.random.default_rng(8).integers(0, 31, (B, tokens)), tf.int32)
    batch = TokenBatch(ids, tf.sequence_mask([tokens, tokens - 3], tokens, tf.int32), ids % 2)

    def computed(fused: bool, dtype: tf.DType) -> list[np.ndarray]:
        for place in (fused_ops, dropout):
            monkeypatch.setattr(place, "has_gpu", lambda: fused)
        model = dataclasses.replace(config, fused_attention=fused, fused_norm=fused, fused_gelu=fused)
        encoder = Encoder(model, seed=5)
        with tf.GradientTape() as tape:
            states = encoder(batch, Mode(dtype, DropoutRng(SEED), residual=dtype))
            loss = tf.reduce_sum(states * tf.cos(tf.reshape(tf.range(tf.size(states), dtype=tf.float32), states.shape)))
        gradients = tape.gradient(loss, list(variables(encoder).values()))
        return [tf.convert_to_tensor(x).numpy() for x in [states, *gradients]]

    for found, exact in zip(computed(True, tf.bfloat16), computed(False, tf.float32), strict=True):
        np.testing.assert_allclose(found, exact, atol=0.05 * np.abs(exact).max() + 0.04)
    backwards = ("attention_by_queries", "attention_by_keys", "gelu_backward")
    expected = {"attention_forward": 2 * times, "gelu_forward": 2 * times, "norm_forward": 4 * max(times, 1)}
    expected |= {name: 2 * (times > 0) for name in backwards} | {"norm_backward": 4}
    assert started == Counter(expected)


@pytest.mark.slow
def test_the_compiler_gets_the_kernels() -> None:
    q = tf.zeros([B, T, N, H], tf.bfloat16)

    @tf.function(jit_compile=True)
    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(q)
            bits = packed(DropoutRng(SEED), tf.constant([B, N, T, T]), 0.1)
            output = flash.attend(q, q, q, tf.zeros([B, 1, 1, T]), *bits, rate=0.1, factor=0.5)
        return tape.gradient(output, [q], q)

    program = gradients.experimental_get_compiler_ir()(stage="hlo")
    calls = [line for line in program.splitlines() if f'custom_call_target="{triton_ir.TARGET}"' in line]
    names = ["attention_forward", "attention_by_queries", "attention_by_keys"]
    assert len(calls) == len(names)
    rows, statistics = f"bf16[{B},{T},{N},{H}]{{3,2,1,0}}", f"f32[{B},{N},{T}]{{2,1,0}}"
    made = [(rows, statistics), (rows, statistics), (rows, rows)]
    for line, name, results in zip(calls, names, made, strict=True):
        assert f'name = "{name}"' in line and f"({', '.join(results)}) custom-call(" in line
        assert f"u8[{B},{N},{T},{T // 8}]{{3,2,1,0}}" in line
        assert f"grid_x = {T // 16} : i32, grid_y = {N} : i32, grid_z = {B} : i32" in line


def test_where_it_cannot_be_had_a_run_says_so() -> None:
    config = ModelConfig(fused_attention=True)
    with pytest.raises(UsageError, match=r"fused attention with dropout does not run here \(.*\); leave out"):
        preflight.kernels(config, HALVES, 128)
    with pytest.raises(UsageError, match="no kernel for 120 tokens and heads of 64"):
        preflight.kernels(config, HALVES, 120)


def test_a_device_that_drops_other_weights_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(fused_attention=True, hidden_size=32, num_attention_heads=2)
    monkeypatch.setattr(attention.graphs, "function", lambda **_: lambda function: function)
    monkeypatch.setattr(triton_ir, "call", executed)
    preflight.kernels(config, HALVES, 32)

    monkeypatch.setattr(triton_ir, "call", executed_with_other_bits)
    with pytest.raises(UsageError, match="gives other results than the plain one"):
        preflight.kernels(config, HALVES, 32)


def test_the_plan_counts_a_bit_for_each_weight() -> None:
    config = RECIPES["bert_large_dgxh100_phase2"].phases[0].config
    model = dataclasses.replace(config.model, fused_attention=True)
    kept, less = (demand.activations(one, 512, 80) for one in (config, dataclasses.replace(config, model=model)))
    pairs = 24 * config.batch.per_device * 16 * 512**2
    assert kept["dropout bits"] - less["dropout bits"] == pairs - pairs // 8
    assert less["attention weights"] == 24 * config.batch.per_device * 16 * 512 * 4  # logarithms of sums
