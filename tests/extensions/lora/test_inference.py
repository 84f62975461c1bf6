"""Updates beside kernels that several models share give what updates in these kernels give."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import LoraConfig
from bert.model.encoder import Mode, TokenBatch, variables
from bert.model.inference import InferenceEncoder
from extensions.lora.inference import AdaptedEncoder
from extensions.lora.model import adapt
from tests.bert.model.test_inference import QUIET, batch, encoder


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("gated", [True, False])
def test_updates_beside_shared_kernels_are_updates_in_them(gated: bool, dtype: tf.DType) -> None:
    """The oracle has W + alpha / r A B in its kernels, added up in float64."""
    made, random, given = encoder("pre" if gated else "post", gated), np.random.default_rng(5), batch()
    base = InferenceEncoder(made, dtype, shared=True)
    targets: tuple[Any, ...] = ("query", "value", "output", "inner", "gate", "outer") if gated else ("key", "inner")
    lora = LoraConfig(rank=3, alpha=7, targets=targets)
    plain = np.stack(made.states(TokenBatch(*given), Mode(dtype, QUIET)))
    adapt(made, lora, seed=1, first_layer=1)
    named = variables(made)
    updates = {name: variable.numpy() for name, variable in named.items() if "/lora_" in name}
    updates |= {name: random.normal(0, 0.4, value.shape) for name, value in updates.items() if name.endswith("lora_b")}
    exact, there = encoder("pre" if gated else "post", gated), given[1].numpy() > 0
    for name, kernel in variables(exact).items():
        if (part := name.removesuffix("kernel")) + "lora_a" in updates:
            kernel.assign(kernel.numpy() + 7 / 3 * updates[f"{part}lora_a"].astype(float) @ updates[f"{part}lora_b"])
    assert len(updates) == 3 * len(targets) * 2  # of two layers
    adapted = AdaptedEncoder(base, updates)
    found, expected = (
        np.stack(adapted.states(*given)),
        np.stack(exact.states(TokenBatch(*given), Mode(tf.float32, QUIET))),
    )
    assert np.abs(expected - plain)[:, there].max() > 0.5
    if dtype == tf.bfloat16:
        merged = np.stack(InferenceEncoder(exact, dtype).states(*given))
        error, usual = (np.abs(states - expected)[:, there] for states in (found, merged))
        assert 0 < error.max() < 3 * usual.max() and error.mean() < 2 * usual.mean()
        return
    np.testing.assert_allclose(found[:, there], expected[:, there], atol=3e-5)
    np.testing.assert_allclose(np.stack(base.states(*given))[:, there], plain[:, there], atol=2e-5)  # as it was
    rows = adapted.function(lambda x, mask: x, at_places=True, compiled=False)
    places = [[2, 3], [0, 10], [1, 0]]
    np.testing.assert_allclose(
        rows(*given, tf.constant(places)), found[-1][tuple(zip(*places, strict=True))], atol=2e-5
    )
