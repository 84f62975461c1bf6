"""A model in parts computes what the whole one does; the parts are threads that add up their tensors."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert.core.config import LoraConfig, ModelConfig, ObjectiveConfig
from bert.model.added import has_terms, is_learnt
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.encoder import Mode, variables
from bert.model.losses import divided_classification
from bert.model.model_shard import UNSHARDED, Parts, share
from bert.model.weights import axis_of
from bert.pretraining import Pretraining
from bert.text.sampler import Batch
from bert.training.task import Task
from extensions.gpt import chunked_loss
from extensions.gpt.task import CausalLM
from extensions.lora.model import adapt
from extensions.replaced_tokens.model import BLOCK, divided_draw, draw
from extensions.replaced_tokens.task import ReplacedTokens
from tests.bert.model.test_encoder import MODERN, NEO
from tests.bert.training.ranks import Ranks, as_ranks
from tests.training import VOCAB, instance

T = TypeVar("T")
BATCH, SEED = 3, 5
MASKED = ObjectiveConfig()
REPLACED: dict[str, Any] = {"objective": {"generator_width": 0.5, "generator_layers": 0.5}}
CAUSAL = {"causal": True, "norm_placement": "pre", "hidden_act": "gelu_tanh", "type_vocab_size": 0, "vocab_multiple": 8}


@pytest.fixture
def divisible() -> ModelConfig:
    """D=24, N=4, H=6, F=28, V=99: four parts divide the heads and the feed-forward width, not the vocabulary."""
    return ModelConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=28,
        max_position_embeddings=17,
    )


def joined(values: Sequence[tf.Tensor], name: str) -> tf.Tensor:
    """Return the whole of a divided variable from the values of all parts, in their order."""
    axis = axis_of(name)
    assert axis is not None, f"{name} is not divided"
    return tf.concat(values, axis % values[0].shape.rank)


def batch() -> Batch:
    random = np.random.default_rng(2)
    samples = [instance(random) for _ in range(BATCH)]
    return {
        name: tf.constant(np.stack([sample[name] for sample in samples]), tf.float32 if "weights" in name else tf.int32)
        for name in samples[0]
    }


def learn(
    config: ModelConfig, parts: Parts, mode: Mode, objective: ObjectiveConfig = MASKED
) -> tuple[list[float], dict[str, tf.Tensor]]:
    """Return the measures, and the gradients by name."""
    task: Task = CausalLM(config, SEED, parts) if config.causal else Pretraining(config, SEED, parts=parts)
    if generator := objective.further(config):
        task = ReplacedTokens(config, generator, SEED, dataclasses.replace(objective, detection_weight=1.0), parts)
    weights = variables(task.module)
    with tf.GradientTape() as tape:
        measures = task.measure(batch(), mode._replace(dropout=rng()))
        loss = tf.add_n([measure.loss for measure in measures.values()])
    gradients = tape.gradient(loss, list(weights.values()))
    values = [float(value) for measure in measures.values() for value in measure]
    return values, dict(zip(weights, map(tf.convert_to_tensor, gradients), strict=True))


def rng() -> DropoutRng:
    return DropoutRng(micro_batch_seed(4, tf.constant(1, tf.int64), tf.constant(2, tf.int64)))


def learn_in_parts(
    config: ModelConfig, count: int, mode: Mode, objective: ObjectiveConfig = MASKED
) -> tuple[list[tuple[list[float], dict[str, tf.Tensor]]], list[str]]:
    """Return the measures and gradients of each part, and the names of the sums."""
    return in_parts(count, lambda part: learn(config, part, mode, objective))


def in_parts(count: int, work: Callable[[Parts], T]) -> tuple[list[T], list[str]]:
    """Return what `work` returns for each part, each in a thread of its own, and the names of the sums."""
    names: list[str] = []

    def run(rank: Ranks) -> T:
        def all_reduce(x: tf.Tensor, name: str) -> tf.Tensor:
            assert x.dtype == tf.float32
            given = rank.meet((name, x))
            assert {other for other, _ in given} == {name}, "the parts add up tensors of different places"
            names.extend([name] * (rank.rank == 0))
            return tf.add_n([value for _, value in given])

        return work(Parts(rank.rank, count, all_reduce))

    return as_ranks(count, 1, run), names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "changes"),
    [
        (2, {}),
        pytest.param(
            4,
            {"norm_placement": "pre", "position_initializer": "sinusoidal", "vocab_multiple": 8},
            marks=pytest.mark.slow,
        ),
        pytest.param(2, {"recompute_activations": True}, marks=pytest.mark.slow),
        pytest.param(2, CAUSAL, marks=pytest.mark.slow),
        pytest.param(2, MODERN, marks=pytest.mark.slow),
        pytest.param(2, NEO, marks=pytest.mark.slow),
        pytest.param(2, {"embedding_size": 10, **REPLACED}, marks=pytest.mark.slow),
        pytest.param(
            4,
            {"vocab_multiple": 8, "objective": {"generator_width": 1.0}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=[
        "2 parts",
        "4 parts, pre-norm",
        "2 parts, recomputed",
        "2 parts, causal",
        "2 parts, modern",
        "2 parts, neo",
        "2 parts, replaced tokens",
        "4 parts, replaced tokens",
    ],
)
def test_losses_and_gradients_are_those_of_the_whole_model(
    count: int, changes: dict[str, Any], divisible: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of_loss = 7  # so that the causal loss has chunks, the last of which is not full
    defaults = chunked_loss.tied.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "chunk_bytes", rows_of_loss * 4 * -(-VOCAB // count))
    objective = MASKED
    if "objective" in changes:
        objective = ObjectiveConfig(name="replaced_tokens", **changes["objective"])
    config = dataclasses.replace(divisible, **{name: value for name, value in changes.items() if name != "objective"})
    mode = Mode(tf.float32, DropoutRng(None))
    measures, whole = learn(config, UNSHARDED, mode, objective)
    parts, names = learn_in_parts(config, count, mode, objective)
    for found, _ in parts:
        np.testing.assert_allclose(found, measures, rtol=1e-6)
    for name, gradient in whole.items():
        pieces = [gradients[name] for _, gradients in parts]
        largest = max(float(tf.reduce_max(tf.abs(gradient))), 5e-3)  # a key's bias has none but for rounding
        if axis_of(name) is None:
            assert all(np.array_equal(pieces[0], piece) for piece in pieces), name
        total = pieces[0] if axis_of(name) is None else joined(pieces, name)
        np.testing.assert_allclose(total, gradient, atol=5e-6 * largest, err_msg=name)
    repeated = {name for name in names if names.count(name) > 1}
    if generator := objective.further(config):
        assert len(names) == 4 * (config.num_hidden_layers + generator.num_hidden_layers) + 1 + 3 + 2
    assert repeated <= {"vocabulary/statistics"} or config.recompute_activations  # chunks follow each other


@pytest.mark.parametrize("count", [2, 3])
def test_the_first_of_equal_scores_is_the_prediction_also_between_parts(count: int) -> None:
    random, rows, classes = np.random.default_rng(6), 401, 11  # parts of 6 and 5, or of 4, 4 and 3 classes
    scores, labels = random.integers(-2, 2, (rows, classes)), random.integers(0, classes, rows)

    def correct(part: Parts) -> float:
        first, last = part.share(classes)
        padding = -(last - first) % 8
        products = np.pad(scores[:, first:last], [(0, 0), (0, padding)])
        bias = np.pad(np.zeros(last - first), [(0, padding)], constant_values=-1e9)
        places = part.places(tf.constant(labels, tf.int32), classes)
        given = tf.constant(products, tf.bfloat16), tf.constant(bias, tf.float32), places, tf.ones(rows)
        return float(divided_classification(*given, part).correct)

    found, _ = in_parts(count, correct)
    assert found == [(scores.argmax(1) == labels).sum()] * count


@pytest.mark.slow
@pytest.mark.parametrize("targets", [("query", "value"), ("key", "output", "inner", "gate", "outer")])
def test_low_rank_updates_are_those_of_the_whole_model(targets: Any, divisible: ModelConfig) -> None:
    config, random = dataclasses.replace(divisible, gated=True), np.random.default_rng(8)
    values: dict[str, np.ndarray] = {}  # of the matrices B, which begin at zero

    def learn(parts: Parts) -> tuple[float, dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        task = Pretraining(config, SEED, parts=parts)
        adapt(task.module.encoder, LoraConfig(rank=3, alpha=24, targets=targets), SEED)
        weights = {name: weight for name, weight in variables(task.module).items() if is_learnt(name)}
        if parts is UNSHARDED:
            values.update({name: random.normal(size=b.shape) for name, b in weights.items() if name.endswith("lora_b")})
        for name, value in values.items():
            weights[name].assign(parts.take(name, tf.constant(value, tf.float32)))
        with tf.GradientTape() as tape:
            measures = task.measure(batch(), Mode(tf.float32, rng()))
            loss = tf.add_n([measure.loss for measure in measures.values()])
        gradients = dict(zip(weights, tape.gradient(loss, list(weights.values())), strict=True))
        return float(loss), weights, gradients

    loss, weights, whole = learn(UNSHARDED)
    assert len(weights) == 2 * len(targets) * config.num_hidden_layers
    parts, _ = in_parts(2, learn)
    for found, _, _ in parts:
        assert found == pytest.approx(loss, rel=1e-6)
    for name, gradient in whole.items():
        pieces = [tuple(values[name] for values in part) for _, *part in parts]
        own, terms = zip(*pieces, strict=True)
        assert has_terms(name) == (axis_of(name) is None)
        np.testing.assert_array_equal(own[0] if has_terms(name) else joined(own, name), weights[name], err_msg=name)
        found = terms[0] + terms[1] if has_terms(name) else joined(terms, name)
        np.testing.assert_allclose(found, gradient, atol=1e-5 * np.abs(gradient).max(), err_msg=name)
        assert has_terms(name) is False or np.abs(terms[0] - terms[1]).max() > 1e-3 * np.abs(gradient).max()


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_all_parts_draw_the_words_of_the_whole_vocabulary(count: int) -> None:
    random, rows, words = np.random.default_rng(9), 20_000, 2 * BLOCK + 45
    scores = 4 * random.normal(size=words).astype(np.float32)
    scores[words // count + 1 :] -= 5  # the parts have different shares, and different highest scores
    numbers = ((np.arange(rows) + 0.5) / rows).astype(np.float32)

    def drawn(part: Parts) -> np.ndarray:
        first, last = part.share(words)
        bias = np.pad(np.zeros(last - first, np.float32), [(0, 5)], constant_values=-1e9)
        products = np.tile(np.pad(scores[first:last], (0, 5)), (rows, 1))
        given = tf.constant(products), tf.constant(bias), tf.constant(numbers)
        found: np.ndarray = (draw(*given) if part is UNSHARDED else divided_draw(*given, words, part)).numpy()
        return found

    whole = drawn(UNSHARDED)
    found, _ = in_parts(count, drawn)
    assert all(np.array_equal(found[0], each) for each in found)
    assert (found[0] != whole).sum() <= 3  # numbers at the border between two words, which rounding moves
    shares = np.exp(scores.astype(np.float64))
    np.testing.assert_allclose(np.bincount(found[0], minlength=words), rows * shares / shares.sum(), atol=2)


@pytest.mark.slow
def test_compiled_pieces_compute_the_same(divisible: ModelConfig) -> None:
    mode = Mode(tf.float32, DropoutRng(None))
    [(plain, _), *_], _ = learn_in_parts(divisible, 2, mode)
    [(compiled, _), *_], _ = learn_in_parts(divisible, 2, mode._replace(compile_parts=True))
    np.testing.assert_allclose(compiled, plain, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [13, 16])
def test_random_bytes_of_some_heads_are_those_they_have_among_all(tokens: int) -> None:
    [whole] = rng().bits(tf.constant([BATCH, 6, tokens, tokens]), 0.1)
    for first, count in ((0, 2), (2, 3), (5, 1)):
        [some] = rng().bits(tf.constant([BATCH, count, tokens, tokens]), 0.1, (first, 6))
        np.testing.assert_array_equal(some, whole[:, first : first + count])


@given(st.integers(0, 1000), st.integers(1, 40))
def test_each_element_has_one_owner_and_shares_differ_by_one_at_most(size: int, count: int) -> None:
    ends = [share(size, number, count) for number in range(count)]
    assert [element for first, last in ends for element in range(first, last)] == list(range(size))
    shares = [last - first for first, last in ends]
    assert max(shares) - min(shares) <= 1 and shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("name", ["layer_0/mlp/outer/kernel", "layer_0/mlp/inner/kernel", "layer_0/mlp/inner/bias"])
def test_a_part_of_a_variable_does_not_keep_the_others_in_memory(name: str) -> None:
    whole = tf.random.stateless_normal([512] if name.endswith("bias") else [512, 256], [3, 7])
    taken = [Parts(number, 2, lambda x, name: x).take(name, whole) for number in (0, 1)]
    assert np.array_equal(np.concatenate(taken, axis=axis_of(name)), whole)
    for part in taken:
        variable = tf.Variable(part).read_value()
        assert not np.shares_memory(np.asarray(memoryview(variable)), np.asarray(memoryview(whole)))


def test_a_sum_and_its_inverse_are_exact_gradients_of_each_other() -> None:
    names: list[str] = []

    def all_reduce(x: tf.Tensor, name: str) -> tf.Tensor:  # as if the other part had nothing to add
        names.append(name)
        return x

    parts, x = Parts(0, 2, all_reduce), tf.constant([1.0, -2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = parts.all_reduce_forward(tf.square(parts.identity_with_summed_gradient(x, "a")), "b")
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, -4.0])
    assert names == ["b", "a/gradient"]
