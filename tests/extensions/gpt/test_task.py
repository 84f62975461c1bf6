"""The causal model against GPT-2's equations in NumPy, and its properties."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model.dropout import DropoutRng
from bert.model.encoder import Mode, TokenBatch, variables
from extensions.gpt.task import CausalLM
from tests.extensions.gpt.runs import SIZES

CONFIG = ModelConfig(**SIZES | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
BATCH, TOKENS = 3, 13
QUIET = Mode(tf.float32, DropoutRng(None))
Arrays = dict[str, np.ndarray]


def ids_of(config: ModelConfig = CONFIG) -> np.ndarray:
    return np.random.default_rng(1).integers(0, config.vocab_size, (BATCH, TOKENS + 1)).astype(np.int32)


def task_of(**changed: Any) -> CausalLM:
    """Return a task whose weights are off their initial values, so that no bias is zero and no gamma one."""
    task = CausalLM(dataclasses.replace(CONFIG, **changed), seed=3)
    random = np.random.default_rng(2)
    for variable in variables(task.module).values():
        variable.assign_add(random.normal(0, 0.2, variable.shape).astype(np.float32))
    return task


def gpt2(w: Arrays, ids: np.ndarray) -> np.ndarray:
    """Return the scores [T, V] of one sequence [T] in float64 NumPy, one token at a time: no token can see a later one.

    As in Radford et al. 2019 and the code that OpenAI published with it.
    """

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def gelu(x: np.ndarray) -> np.ndarray:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    heads, scores = CONFIG.num_attention_heads, []
    keys: list[list[np.ndarray]] = [[] for _ in range(CONFIG.num_hidden_layers)]
    values: list[list[np.ndarray]] = [[] for _ in range(CONFIG.num_hidden_layers)]
    for place, token in enumerate(ids):
        x = w["embeddings/word"][token] + w["embeddings/position"][place]
        for layer in range(CONFIG.num_hidden_layers):
            name = f"layer_{layer}/attention"
            normed = norm(x, f"{name}/layer_norm")
            query = dense(normed, f"{name}/query").reshape(heads, -1)
            keys[layer].append(dense(normed, f"{name}/key").reshape(heads, -1))
            values[layer].append(dense(normed, f"{name}/value").reshape(heads, -1))
            products = np.einsum("nh,tnh->nt", query, np.stack(keys[layer])) / np.sqrt(query.shape[1])
            powers = np.exp(products - products.max(1, keepdims=True))
            context = np.einsum("nt,tnh->nh", powers / powers.sum(1, keepdims=True), np.stack(values[layer]))
            x = x + dense(context.reshape(-1), f"{name}/output")
            name = f"layer_{layer}/mlp"
            x = x + dense(gelu(dense(norm(x, f"{name}/layer_norm"), f"{name}/inner")), f"{name}/outer")
        scores.append(norm(x, "final/layer_norm") @ w["embeddings/word"].T)
    return np.stack(scores)


def loss_of(w: Arrays, ids: np.ndarray) -> float:
    """Return the sum of -log p of each token after those before it, over all sequences [B, T + 1]."""
    total = 0.0
    for sequence in ids:
        scores = gpt2(w, sequence[:-1])
        highest = scores.max(1)
        sums = np.log(np.exp(scores - highest[:, None]).sum(1)) + highest
        total += float((sums - scores[np.arange(TOKENS), sequence[1:]]).sum())
    return total


def exact_weights(task: CausalLM) -> Arrays:
    return {name: variable.numpy().astype(np.float64) for name, variable in variables(task.module).items()}


@pytest.mark.slow
def test_the_scores_and_the_loss_equal_the_equations_in_numpy() -> None:
    task, ids = task_of(), ids_of()
    exact = exact_weights(task)
    hidden = task.module(tf.constant(ids[:, :-1]), QUIET).numpy()
    scores = hidden @ task.module.encoder.embeddings.word.numpy().T
    np.testing.assert_allclose(scores, np.stack([gpt2(exact, sequence[:-1]) for sequence in ids]), atol=5e-5)
    batch = {"input_ids": tf.constant(ids)}
    measure = task.measure(batch, QUIET)["lm"]
    assert float(measure.loss) == pytest.approx(loss_of(exact, ids), rel=1e-6)
    assert float(measure.correct) == (scores.argmax(-1) == ids[:, 1:]).sum()
    assert float(task.weights(batch)["lm"]) == BATCH * TOKENS


@pytest.mark.slow
def test_gradients_are_finite_differences_of_the_equations() -> None:
    task, ids, step = task_of(), ids_of(), 1e-6
    gradients, exact, random = gradients_of(task, ids), exact_weights(task), np.random.default_rng(5)
    for part in ("embeddings", "layer_0/attention", "layer_1/mlp", "final"):
        names = [name for name in exact if name.startswith(part) and not name.endswith("key/bias")]  # whose is zero
        # Along its own random direction, every variable contributes about as much as the others.
        along = {name: random.normal(size=exact[name].shape) / np.linalg.norm(gradients[name]) for name in names}
        ends = [loss_of(exact | {n: exact[n] + sign * step * along[n] for n in names}, ids) for sign in (1, -1)]
        slope = sum(float((gradients[name] * along[name]).sum()) for name in names)
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-3), part


def gradients_of(task: CausalLM, ids: np.ndarray) -> Arrays:
    weights = variables(task.module)

    @tf.function
    def compute() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            mode = Mode(tf.float32, DropoutRng(tf.constant([1, 2], tf.int64)))
            loss = task.measure({"input_ids": tf.constant(ids)}, mode)["lm"].loss
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, list(weights.values()))]

    return {name: gradient.numpy() for name, gradient in zip(weights, compute(), strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize(("norm_placement", "dtype"), [("pre", tf.float32), ("post", tf.bfloat16), ("pre", tf.float16)])
def test_a_changed_token_changes_no_output_before_it(norm_placement: str, dtype: tf.DType) -> None:
    task, ids = task_of(norm_placement=norm_placement), ids_of()[:, :-1]
    compute = tf.function(lambda ids: task.module(ids, Mode(dtype, DropoutRng(None))))
    before = compute(tf.constant(ids)).numpy()
    for place in (0, 5, TOKENS - 1):
        changed = ids.copy()
        changed[:, place] = (ids[:, place] + 1) % CONFIG.vocab_size
        after = compute(tf.constant(changed)).numpy()
        np.testing.assert_array_equal(after[:, :place], before[:, :place])
        assert (after[:, place:] != before[:, place:]).any(axis=-1).all()


def test_padding_behind_a_sequence_changes_nothing_and_padding_before_it_is_not_read() -> None:
    task, ids = task_of(), tf.constant(ids_of()[:, :-1])
    mask = tf.constant(np.arange(TOKENS)[None] < [[TOKENS], [9], [6]], tf.int32)
    whole = task.module(ids, QUIET).numpy()
    masked = task.module.encoder(TokenBatch(ids, mask), QUIET).numpy()
    for sequence, length in enumerate((TOKENS, 9, 6)):
        np.testing.assert_allclose(masked[sequence, :length], whole[sequence, :length], atol=1e-6)
    hidden = 1 - mask  # now the padding comes first
    one = task.module.encoder(TokenBatch(ids, hidden), QUIET).numpy()
    other = task.module.encoder(TokenBatch(ids + mask, hidden), QUIET).numpy()
    np.testing.assert_array_equal(one[1:, 9:], other[1:, 9:])
