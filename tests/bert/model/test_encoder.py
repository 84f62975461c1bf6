"""The encoder and its heads against the published equations in NumPy."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import ModelConfig
from bert.model import dropout, fused_ops, lookup
from bert.model.dropout import DropoutRng
from bert.model.encoder import Encoder, Mode, TokenBatch, variables
from bert.model.rotary import rotation
from bert.pretraining import Pretraining, PretrainingModel

QUIET = DropoutRng(None)


def batch_of(
    config: ModelConfig, *, sequences: int = 3, tokens: int = 13, predictions: int = 5
) -> dict[str, tf.Tensor]:
    random = np.random.default_rng(1)
    lengths = np.array([tokens, tokens - 4, tokens - 6])[:sequences, None]
    return {
        "input_ids": tf.constant(random.integers(0, config.vocab_size, (sequences, tokens)), tf.int32),
        "input_mask": tf.constant(np.arange(tokens)[None] < lengths, tf.int32),
        "segment_ids": tf.constant(random.integers(0, 2, (sequences, tokens)), tf.int32),
        "masked_lm_positions": tf.constant(random.integers(0, tokens - 6, (sequences, predictions)), tf.int32),
        "masked_lm_ids": tf.constant(random.integers(0, config.vocab_size, (sequences, predictions)), tf.int32),
        "masked_lm_weights": tf.constant(random.integers(0, 2, (sequences, predictions)), tf.float32),
        "next_sentence_labels": tf.constant(random.integers(0, 2, (sequences, 1)), tf.int32),
    }


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def embedded(w: dict[str, np.ndarray], segments: np.ndarray) -> np.ndarray:
    """The embeddings of positions and segments, if the model has them."""
    x = w["embeddings/position"][: len(segments)] if "embeddings/position" in w else np.zeros(())
    return x + w["embeddings/segment"][segments] if "embeddings/segment" in w else x


def rotated(x: np.ndarray, base: float, heads: int) -> np.ndarray:
    """Each pair of components is a complex number, which is multiplied by one of absolute value 1."""
    width = x.shape[1] // heads
    y = x.reshape(len(x), heads, 2, width // 2)
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(0, width, 2) / width)
    z = (y[:, :, 0] + 1j * y[:, :, 1]) * np.exp(1j * angles)[:, None]
    return np.stack([z.real, z.imag], 2).reshape(x.shape)


def normalised(x: np.ndarray, name: str, w: dict[str, np.ndarray], config: ModelConfig) -> np.ndarray:
    if config.norm == "rms":
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config.layer_norm_epsilon) * w[f"{name}/gamma"]
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-12) * w[f"{name}/gamma"] + w.get(f"{name}/beta", 0)


def activated(x: np.ndarray, config: ModelConfig) -> np.ndarray:
    if config.hidden_act == "silu":
        return x / (1 + np.exp(-x))
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def scored(x: np.ndarray, w: dict[str, np.ndarray], config: ModelConfig) -> np.ndarray:
    """The scores of the vocabulary, of states."""
    if config.masked_lm_head == "linear":
        return x @ w["masked_lm/words"].T + w["masked_lm/bias"]
    y = activated(x @ w["masked_lm/transform/kernel"] + w.get("masked_lm/transform/bias", 0), config)
    return normalised(y, "masked_lm/layer_norm", w, config) @ w["embeddings/word"].T + w["masked_lm/bias"]


def reference(
    w: dict[str, np.ndarray], config: ModelConfig, batch: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """BERT in float64 NumPy, one sequence, one head, one token at a time where that is clearer."""
    norm = partial(normalised, w=w, config=config)

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}/kernel"] + w.get(f"{name}/bias", 0)

    def sub_layer(x: np.ndarray, f: Callable[[np.ndarray], np.ndarray], name: str) -> np.ndarray:
        if config.norm_placement == "post":
            return norm(x + f(x), name)
        return x + f(norm(x, name) if f"{name}/gamma" in w else x)

    def attention(x: np.ndarray, present: np.ndarray, name: str, layer: int) -> np.ndarray:
        local = config.local_window > 0 and layer % config.global_every > 0
        q, k, v = (dense(x, f"{name}/{part}") for part in ("query", "key", "value"))
        if config.positions == "rotary":
            base = config.local_rotary_base if local else config.rotary_base
            q, k = (rotated(y, base, config.num_attention_heads) for y in (q, k))
        heads = []
        for head in range(config.num_attention_heads):
            of = slice(head * width, (head + 1) * width)
            scores = q[:, of] @ k[:, of].T / math.sqrt(width)
            scores[:, ~present] = -1e4
            far = [places for places in np.ndindex(scores.shape) if abs(np.subtract(*places)) > config.local_window]
            scores[tuple(np.array(far if local else [], int).reshape(-1, 2).T)] = -1e4
            heads.append(softmax(scores) @ v[:, of])
        return dense(np.concatenate(heads, -1), f"{name}/output")

    def mlp(x: np.ndarray, name: str) -> np.ndarray:
        inner = activated(dense(x, f"{name}/inner"), config)
        return dense(inner * dense(x, f"{name}/gate") if config.gated else inner, f"{name}/outer")

    width = config.hidden_size // config.num_attention_heads
    words, following = [], []
    for i, ids in enumerate(batch["input_ids"]):
        x = w["embeddings/word"][ids] + embedded(w, batch["segment_ids"][i])
        x = norm(x, "embeddings/layer_norm") if "embeddings/layer_norm/gamma" in w else x
        for layer in range(config.num_hidden_layers):
            name, present = f"layer_{layer}/attention", batch["input_mask"][i] == 1
            x = sub_layer(x, partial(attention, present=present, name=name, layer=layer), f"{name}/layer_norm")
            name = f"layer_{layer}/mlp"
            x = sub_layer(x, partial(mlp, name=name), f"{name}/layer_norm")
        x = norm(x, "final/layer_norm") if config.norm_placement == "pre" else x
        words.append(scored(x[batch["masked_lm_positions"][i]], w, config))
        following.append(dense(np.tanh(dense(x[0], "pooler")), "next_sentence"))
    return np.stack(words), np.stack(following)


def scatter(model: PretrainingModel) -> None:
    """Moves every weight off its initial value, so that no bias is zero and no gamma one."""
    random = np.random.default_rng(2)
    for variable in variables(model).values():
        variable.assign_add(random.normal(0, 0.2, variable.shape).astype(np.float32))


MODERN: dict[str, Any] = {  # every choice of ModernBERT's, with windows and bases of our own
    "norm_placement": "pre",
    "embedding_norm": True,
    "biases": False,
    "gated": True,
    "positions": "rotary",
    "rotary_base": 1000.0,
    "local_window": 3,
    "global_every": 2,
    "local_rotary_base": 50.0,
    "type_vocab_size": 0,
}
NEO: dict[str, Any] = {  # every choice of NeoBERT's, with an epsilon of our own
    "norm_placement": "pre",
    "norm": "rms",
    "layer_norm_epsilon": 0.1,
    "masked_lm_head": "linear",
    "biases": False,
    "gated": True,
    "hidden_act": "silu",
    "positions": "rotary",
    "type_vocab_size": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_placement": "pre"},
        MODERN,
        NEO,
        {"gated": True, "positions": "rotary"},
        {"biases": False, "local_window": 2, "global_every": 1000},
        {"norm_placement": "pre", "embedding_norm": True},
        {"norm_placement": "pre", "embedding_norm": True, "norm": "rms", "biases": False},
    ],
    ids=str,
)
def test_logits_equal_the_equations_in_numpy(model_config: ModelConfig, changes: dict[str, Any]) -> None:
    model_config = dataclasses.replace(model_config, **changes)
    model = PretrainingModel(model_config, seed=3)
    scatter(model)
    batch = batch_of(model_config)
    inputs = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")  # no labels: whoever predicts has none
    words, following = model({name: batch[name] for name in inputs}, Mode(tf.float32, QUIET))
    words += model.masked_lm.bias
    assert following is not None
    weights = {name: variable.numpy().astype(np.float64) for name, variable in variables(model).items()}
    expected = reference(weights, model_config, {name: value.numpy() for name, value in batch.items()})
    np.testing.assert_allclose(words, expected[0], atol=2e-5)
    np.testing.assert_allclose(following, expected[1], atol=2e-5)


def test_a_single_row_of_segments_is_for_all_texts(model_config: ModelConfig) -> None:
    """transformers, without token_type_ids, adds it to every token; so does the exported ONNX."""
    model = PretrainingModel(dataclasses.replace(model_config, type_vocab_size=1), seed=3)
    scatter(model)
    batch = batch_of(model_config)
    zeros = batch | {"segment_ids": tf.zeros_like(batch["segment_ids"])}
    (words, _), (expected, _) = (model(one, Mode(tf.float32, QUIET)) for one in (batch, zeros))
    np.testing.assert_array_equal(words, expected)
    assert not np.array_equal(words, PretrainingModel(model_config, seed=3)(batch, Mode(tf.float32, QUIET))[0])


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, NEO], ids=["published", "NeoBERT"])
def test_gradients_of_the_loss_are_finite_differences_of_the_equations(
    model_config: ModelConfig, changes: dict[str, Any]
) -> None:
    model_config = dataclasses.replace(model_config, **changes)
    task, batch, step = Pretraining(model_config, seed=3), batch_of(model_config), 1e-6
    scatter(task.module)
    trained = variables(task.module)
    with tf.GradientTape() as tape:
        loss = tf.add_n([measure.loss for measure in task.measure(batch, Mode(tf.float32, QUIET)).values()])
    found = {k: tf.convert_to_tensor(g).numpy() for k, g in tape.gradient(loss, trained).items()}
    exact = {name: weight.numpy().astype(np.float64) for name, weight in trained.items()}
    given = {name: value.numpy() for name, value in batch.items()}

    def loss_of(w: dict[str, np.ndarray]) -> float:
        words, following = reference(w, model_config, given)
        surprise = -np.log(softmax(words)[(*np.indices(given["masked_lm_ids"].shape), given["masked_lm_ids"])])
        pairs = -np.log(softmax(following)[np.arange(3), given["next_sentence_labels"][:, 0]])
        return float((surprise * given["masked_lm_weights"]).sum() + pairs.sum())

    assert float(loss) == pytest.approx(loss_of(exact), rel=1e-5)
    random = np.random.default_rng(5)
    for part in ("embeddings/word", "embeddings", "layer_0", "layer_1", "masked_lm", "pooler", "next_sentence"):
        names = [name for name in exact if name.startswith(part) and not name.endswith("key/bias")]  # whose is zero
        # Along its own random direction, every variable contributes about as much as the others.
        along = {name: random.normal(size=exact[name].shape) / np.linalg.norm(found[name]) for name in names}
        ends = [loss_of(exact | {n: exact[n] + sign * step * along[n] for n in names}) for sign in (1, -1)]
        slope = sum(float((found[name] * along[name]).sum()) for name in names)
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-3), part


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{}, {"norm_placement": "pre"}, {"recompute_activations": True}], ids=str)
def test_states_that_are_read_and_their_gradients_are_those_of_the_whole_last_layer(
    model_config: ModelConfig, changed: dict[str, Any]
) -> None:
    config = dataclasses.replace(model_config, **changed)
    model, batch = PretrainingModel(config, seed=3), batch_of(config)
    scatter(model)
    ids, mask, segments = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
    read = tf.constant([5, 27, 0, 5, 13, 30, 1])  # one twice, none of the padding
    upstream = tf.constant(np.random.default_rng(4).normal(size=[7, config.hidden_size]), tf.float32)
    trained = variables(model.encoder)
    found = []
    for ask in (True, False):
        with tf.GradientTape() as tape:
            states = model.encoder(TokenBatch(ids, mask, segments), Mode(tf.float32, QUIET), read if ask else None)
            states = states if ask else tf.gather(tf.reshape(states, [-1, config.hidden_size]), read)
            loss = tf.reduce_sum(states * upstream)
        gradients = tape.gradient(loss, trained)
        found.append([states, *(tf.convert_to_tensor(gradient) for gradient in gradients.values())])
    largest = max(float(tf.reduce_max(tf.abs(gradient))) for gradient in found[1][1:])
    for some, all_of_them in zip(*found, strict=True):
        np.testing.assert_allclose(some, all_of_them, rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.slow
def test_the_last_layer_is_computed_for_what_is_read_alone(model_config: ModelConfig) -> None:
    task, batch = Pretraining(model_config, seed=3), batch_of(model_config)  # 3 x 13 tokens, 3 x (5 + 1) are read
    graph = tf.function(lambda: task.measure(batch, Mode(tf.float32, QUIET))).get_concrete_function().graph
    inner = [
        op.outputs[0].shape[0]
        for op in graph.get_operations()
        if op.type == "MatMul" and op.outputs[0].shape[1:] == [model_config.intermediate_size]
    ]
    assert inner == [39] * (model_config.num_hidden_layers - 1) + [18]


def test_padding_does_not_reach_the_tokens(model_config: ModelConfig) -> None:
    model = PretrainingModel(model_config, seed=3)
    scatter(model)
    batch = batch_of(model_config)
    other = dict(batch, input_ids=tf.where(batch["input_mask"] > 0, batch["input_ids"], 7))
    for before, after in zip(model(batch, Mode(tf.float32, QUIET)), model(other, Mode(tf.float32, QUIET)), strict=True):
        np.testing.assert_array_equal(before, after)


def test_loss_of_a_fresh_model_is_that_of_guessing(model_config: ModelConfig) -> None:
    task, batch = Pretraining(model_config, seed=3), batch_of(model_config)
    measures, weights = task.measure(batch, Mode(tf.float32, QUIET)), task.weights(batch)
    assert float(measures["mlm"].loss / weights["mlm"]) == pytest.approx(math.log(model_config.vocab_size), abs=0.05)
    assert float(measures["nsp"].loss / weights["nsp"]) == pytest.approx(math.log(2), abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, MODERN, NEO], ids=["published", "modern", "NeoBERT"])
def test_instances_that_share_a_row_are_computed_as_if_each_had_its_own(
    model_config: ModelConfig, changes: dict[str, Any]
) -> None:
    model_config = dataclasses.replace(model_config, **changes)
    model, lengths = PretrainingModel(model_config, seed=3), (6, 4)
    scatter(model)
    alone = [tf.random.stateless_uniform([1, n], [n, 1], 0, model_config.vocab_size, tf.int32) for n in lengths]
    ids, zeros = tf.concat([*alone, [[0]]], axis=1), tf.zeros([1, 11], tf.int32)
    numbers, positions = [[1] * 6 + [2] * 4 + [0]], [[*range(6), *range(4), 0]]
    mode = Mode(tf.float32, QUIET)
    row = model.encoder(TokenBatch(ids, tf.constant(numbers), zeros, tf.constant(positions)), mode)
    expected = [model.encoder(TokenBatch(one, None, tf.zeros_like(one)), mode) for one in alone]
    np.testing.assert_allclose(row[0, :6], expected[0][0], atol=2e-5)
    np.testing.assert_allclose(row[0, 6:10], expected[1][0], atol=2e-5)


def test_the_gradient_of_a_rotation_is_that_of_its_formula() -> None:
    x, weights = (tf.random.stateless_normal([2, 3, 5, 8], [1, number]) for number in (1, 2))
    places = [0, 1, 2, 7, 900]
    angles = tf.constant(places, tf.float32)[:, None] / 100.0 ** (tf.range(4.0) / 4)
    cos, sin, rotate = tf.cos(angles), tf.sin(angles), rotation(tf.constant([places]), 100.0, 8)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        first, second = tf.split(x, 2, axis=-1)
        plain = tf.concat([first * cos - second * sin, second * cos + first * sin], axis=-1)
        found = rotate(x)
        losses = [tf.reduce_sum(y * weights) for y in (plain, found)]
    np.testing.assert_allclose(found, plain, atol=1e-6)
    by_formula, by_rotation = (tape.gradient(loss, x) for loss in losses)
    np.testing.assert_allclose(by_rotation, by_formula, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "gpu"),
    [({}, True), ({"norm_placement": "pre", "norm": "rms", "biases": False}, False)],
    ids=["post", "pre"],
)
def test_a_stream_in_bfloat16_is_close_to_one_in_float32(
    form: dict[str, Any], gpu: bool, model_config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden states and gradients of four layers; between two operations the stream has 16 bits."""
    stored: list[tf.DType] = []
    name = "add_dropout" if form else "add_dropout_norm"
    original = getattr(fused_ops, name)

    def recorded(x: tf.Tensor, *others: tf.Tensor, **constants: Any) -> tf.Tensor:
        y = original(x, *others, **constants)
        stored.extend([x.dtype, y.dtype])
        return y

    monkeypatch.setattr(fused_ops, name, recorded)
    for place in (dropout, fused_ops, lookup):
        monkeypatch.setattr(place, "has_gpu", lambda: gpu)
    config = dataclasses.replace(model_config, num_hidden_layers=4, **form)
    encoder, batch = Encoder(config, seed=3), batch_of(config)
    scatter(encoder)

    def computed(compute: tf.DType, residual: tf.DType) -> list[np.ndarray]:
        stored.clear()
        with tf.GradientTape() as tape:
            tokens = TokenBatch(*(batch[name] for name in ("input_ids", "input_mask", "segment_ids")))
            states = encoder(tokens, Mode(compute, DropoutRng(tf.constant([5, 6], tf.int64)), residual=residual))
            loss = tf.reduce_sum(states * tf.cos(tf.reshape(tf.range(tf.size(states), dtype=tf.float32), states.shape)))
        assert stored == [residual] * 4 * config.num_hidden_layers and states.dtype == tf.float32
        slopes = tape.gradient(loss, list(variables(encoder).values()))
        return [tf.convert_to_tensor(x).numpy() for x in [states, *slopes]]

    exact = computed(tf.float32, tf.float32)
    wide, narrow = (computed(tf.bfloat16, residual) for residual in (tf.float32, tf.bfloat16))
    of_float32, of_bfloat16 = (
        np.median([np.linalg.norm(x - y) / np.linalg.norm(y) for x, y in zip(found, exact, strict=True)])
        for found in (wide, narrow)
    )
    # Which is closer depends on the products of the CPU: where they are not made of float32, they round more.
    assert 0 < of_float32 < 10 * 2**-8 and 0 < of_bfloat16 < 10 * 2**-8 and of_float32 != of_bfloat16
