"""Replaced-token detection: draws follow the softmax, targets and losses are those of NumPy, however it is divided."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import BatchConfig, ModelConfig, ObjectiveConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.core.errors import InputError
from bert.model.dropout import DropoutRng, micro_batch_seed
from bert.model.encoder import Mode, TokenBatch, variables
from bert.model.heads import MASKED_LOGIT
from bert.model.losses import Detection
from bert.text.packing import pack
from bert.text.records import Dataset
from bert.text.sampler import Batch, BatchSampler
from bert.training import checkpoint
from bert.training.communicator import Communicator
from bert.training.evaluation import Evaluation
from bert.training.optimizer import Optimizer
from bert.training.step import Step
from bert.training.task import Execution
from extensions.replaced_tokens.model import BLOCK, Masked, draw, replaced, uniforms
from extensions.replaced_tokens.task import ReplacedTokens
from tests.training import write_dataset

OBJECTIVE = ObjectiveConfig(name="replaced_tokens", generator_width=0.4, generator_layers=0.5)
PLAIN = Mode(tf.float32, DropoutRng(None))


def task_of(model: ModelConfig, seed: int = 3) -> ReplacedTokens:
    """Widths 20 and 8, embeddings of width 12; weights large enough that the detection is not all of one kind."""
    config = dataclasses.replace(model, embedding_size=12, initializer_range=0.3)
    generator = OBJECTIVE.further(config)
    assert generator is not None
    return ReplacedTokens(config, generator, seed, OBJECTIVE)


def without_dropout(model: ModelConfig) -> ModelConfig:
    return dataclasses.replace(model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.mark.slow
def test_draws_from_a_grid_of_numbers_divide_it_as_the_softmax_does() -> None:
    random, count = np.random.default_rng(0), 3 * BLOCK - 55
    scores = 3 * random.normal(size=count).astype(np.float32)
    bias = random.normal(size=count).astype(np.float32)
    bias[[0, 7, BLOCK, count - 1]] = MASKED_LOGIT  # in blocks of their own at their ends, too
    bias[BLOCK : 2 * BLOCK] = MASKED_LOGIT  # a block of which nothing is ever drawn
    size = 100_000
    grid = ((np.arange(size) + 0.5) / size).astype(np.float32)
    drawn = draw(tf.tile(scores[None], [size, 1]), tf.constant(bias), tf.constant(grid)).numpy()
    shares = np.exp((scores + bias).astype(np.float64))
    counts = np.bincount(drawn, minlength=count)
    np.testing.assert_allclose(counts, size * shares / shares.sum(), atol=2)
    assert len(counts) == count and not counts[bias == MASKED_LOGIT].any()

    least, most = np.array([0.0], np.float32), np.array([1 - 2.0**-24], np.float32)
    for number, expected in ((least, np.flatnonzero(shares)[0]), (most, np.flatnonzero(shares)[-1])):
        assert draw(tf.constant(scores[None]), tf.constant(bias), tf.constant(number)).numpy() == [expected]


def test_numbers_are_uniform_and_belong_to_update_word_and_place() -> None:
    ids = tf.constant(np.random.default_rng(1).integers(5, 3000, (400, 64)), tf.int32)
    places = tf.range(400 * 64)
    masked = Masked(places, tf.reshape(ids, [-1]), tf.ones(400 * 64))

    def numbers(step: int, place: int) -> np.ndarray:
        rng = DropoutRng(micro_batch_seed(4, tf.constant(step), tf.constant(place)))
        return uniforms(rng.branch(5), TokenBatch(ids), masked).numpy()

    first = numbers(1, 0)
    assert np.array_equal(first, numbers(1, 2))  # whichever micro-batch it is
    for found in (first, numbers(2, 0)):
        counts = np.histogram(found, 64, (0, 1))[0]
        assert ((counts - 400) ** 2 / 400).sum() < 110  # chi-square with 63 degrees of freedom: 1 in 5,000
    assert abs(np.corrcoef(first, numbers(2, 0))[0, 1]) < 0.03
    assert first.max() < 1


def parts(task: ReplacedTokens, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that the detection reads and its logits [B, T], of steps that are computed one by one."""
    module = task.module
    tokens = TokenBatch(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    positions = batch["masked_lm_positions"].numpy()
    places = tf.constant((np.arange(len(positions))[:, None] * tokens.ids.shape[1] + positions).reshape(-1), tf.int32)
    words, weights = (tf.reshape(batch[f"masked_lm_{name}"], [-1]) for name in ("ids", "weights"))
    masked = Masked(places, words, weights)
    hidden = module.generator(tokens, PLAIN, places)
    scores = module.masked_lm(hidden, module.encoder.embeddings.word, tf.float32)
    drawn = draw(scores, module.masked_lm.biases(), uniforms(PLAIN.dropout, tokens, masked))
    corrupted = batch["input_ids"].numpy().copy()
    for place, word, weight in zip(places.numpy(), drawn.numpy(), weights.numpy(), strict=True):
        if weight:
            corrupted.reshape(-1)[place] = word
    np.testing.assert_array_equal(replaced(tokens.ids, masked, drawn), corrupted)
    states = module.encoder(tokens._replace(ids=tf.constant(corrupted)), PLAIN)
    return corrupted, module.replaced_token(tf.reshape(states, [-1, states.shape[2]]), tf.float32).numpy()


@pytest.mark.slow
def test_targets_losses_and_figures_are_those_of_numpy(model_config: ModelConfig, dataset: Path) -> None:
    task, batch = task_of(model_config), Dataset(dataset, "train").read(np.arange(11))
    corrupted, logits = parts(task, batch)
    text = batch["input_ids"].numpy().copy()
    for row, (positions, ids, weights) in enumerate(
        zip(*(batch[f"masked_lm_{name}"].numpy() for name in ("positions", "ids", "weights")), strict=True)
    ):
        for position, word, weight in zip(positions, ids, weights, strict=True):
            text[row, position] = word if weight else text[row, position]
    labels, real = (corrupted != text).reshape(-1), batch["input_mask"].numpy().reshape(-1) > 0
    x = logits.astype(np.float64)
    losses = np.where(labels, np.log1p(np.exp(-x)), np.log1p(np.exp(x)))[real].mean()
    predicted = x > 0
    found = Evaluation(task, Execution(tf.float32), Communicator()).of_all_ranks({"": [batch]})
    right = (labels & predicted & real).sum()
    assert 0 < right < min((labels & real).sum(), (predicted & real).sum())
    assert found["rtd_loss"] == pytest.approx(losses, rel=1e-5)
    assert found["rtd_accuracy"] == pytest.approx(100 * (labels == predicted)[real].mean())
    assert found["rtd_precision"] == pytest.approx(100 * right / (predicted & real).sum())
    assert found["rtd_recall"] == pytest.approx(100 * right / (labels & real).sum())
    assert found["loss"] == pytest.approx(found["mlm_loss"] + 50 * found["rtd_loss"], rel=1e-6)


def test_a_draw_of_the_right_word_is_no_replacement(model_config: ModelConfig, dataset: Path) -> None:
    task, batch = task_of(model_config), Dataset(dataset, "train").read(np.arange(11))
    words = np.unique(batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"].numpy() > 0])
    task.module.masked_lm.bias.assign(tf.one_hot(int(words[3]), 99) * 1e3)  # this word is always drawn
    measured = task.measure(batch, PLAIN)["rtd"]
    assert isinstance(measured, Detection)
    weights, ids = batch["masked_lm_weights"].numpy(), batch["masked_lm_ids"].numpy()
    assert float(measured.positive) == ((ids != words[3]) * weights).sum() < weights.sum()


def updated(task: ReplacedTokens, batches: list[Batch], precision: PrecisionConfig) -> dict[str, np.ndarray]:
    optimizer = Optimizer(variables(task.module), OptimizerConfig(learning_rate=1.0))
    step = Step(task, optimizer, Communicator(), precision, RunConfig(seed=4))
    found = step.update(1, batches, rate=1e-2)
    assert found["loss"] == pytest.approx(found["mlm_loss"] + 50 * found["rtd_loss"], rel=1e-5)
    return {
        name: gradient.numpy() for name, gradient in zip(optimizer.weights, step.accumulator.gradients, strict=True)
    }


@pytest.mark.slow
def test_a_checkpoint_with_words_of_the_model_alone_is_refused(model_config: ModelConfig, tmp_path: Path) -> None:
    module = task_of(model_config).module
    own = {"embeddings/difference": tf.Variable(tf.zeros([99, 12]))}
    folder = checkpoint.save(tmp_path, 1, variables(module) | own, keep=1)
    with pytest.raises(InputError, match=r"of --objective\.embeddings disentangled, which was removed"):
        checkpoint.Stored(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "divided", ["micro-batches", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("packed rows", "xla"))]
)
def test_gradients_do_not_depend_on_how_an_update_is_computed(
    divided: str, model_config: ModelConfig, tmp_path: Path
) -> None:
    dataset = write_dataset(tmp_path / "data", shards=(17,), shortest=4)  # short enough to be packed
    data, config = Dataset(dataset, "train"), without_dropout(model_config)
    whole = BatchSampler(data, BatchConfig(total=12, per_device=12), seed=1).read(0)
    expected = updated(task_of(config), whole, PrecisionConfig())
    batches, xla = whole, divided == "xla"
    if divided == "micro-batches":
        batches = BatchSampler(data, BatchConfig(total=12, per_device=3), seed=1).read(0)
    if divided == "packed rows":
        packed = pack({name: value.numpy() for name, value in whole[0].items()})
        assert len(packed["input_ids"]) < 12
        batches = [{name: tf.constant(value) for name, value in packed.items()}]
    found = updated(task_of(config), batches, PrecisionConfig(xla=xla))
    assert expected.keys() == found.keys() and any(name.startswith("generator/layer_0") for name in found)
    for name, gradient in expected.items():
        size = np.abs(gradient).max()
        np.testing.assert_allclose(found[name], gradient, rtol=1e-3, atol=max(1e-4 * size, 2e-6), err_msg=name)


@pytest.mark.slow
def test_the_generator_learns_from_masked_words_alone(model_config: ModelConfig, dataset: Path) -> None:
    task, batch = task_of(model_config), Dataset(dataset, "train").read(np.arange(5))
    weights = variables(task.module)
    with tf.GradientTape(persistent=True) as tape:
        measures = task.measure(batch, PLAIN)
    by_words, by_detection = (tape.gradient(measures[name].loss, weights) for name in ("mlm", "rtd"))
    for name in weights:
        is_shared, is_generators = name.startswith("embeddings/") and "proj" not in name, name.startswith("generator/")
        assert (by_words[name] is not None) == (is_shared or is_generators), name
        assert (by_detection[name] is not None) == (not is_generators), name
    assert [objective.learns_labels for objective in task.objectives] == [False, False]
