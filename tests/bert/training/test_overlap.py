"""A backward pass in segments gives the gradients of a whole one, and each segment waits for the one before it."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from bert.core.config import InitConfig, ModelConfig, OptimizerConfig, ParallelConfig, PrecisionConfig, RunConfig
from bert.model.encoder import variables
from bert.pretraining import Pretraining
from bert.text.packing import pack
from bert.text.sampler import Batch
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer, learning
from bert.training.segments import Boundaries, Gradients
from bert.training.step import Step
from bert.training.task import Task
from extensions.gpt.task import CausalLM
from squad.config import Windowing
from squad.model import AnswerSpans
from tasks.training import FineTuning

NAMES = ["embeddings/word", "embeddings/position", "layer_0/mlp/kernel", "layer_1/mlp/kernel", "layer_2/mlp/kernel"]
NAMES += ["masked_lm/kernel", "pooler/kernel"]  # nothing depends on the last one
WIDTH = 5


def weights() -> dict[str, tf.Variable]:
    random = np.random.default_rng(3)
    shapes = {"embeddings/word": (11, WIDTH), "embeddings/position": (3, WIDTH)}
    return {
        name: tf.Variable(random.normal(size=shapes.get(name, (WIDTH, WIDTH))).astype(np.float32)) for name in NAMES
    }


def loss(variables: dict[str, tf.Variable], boundaries: Boundaries | None) -> tf.Tensor:
    """A tied output as in BERT; groups of layers 0 and 1, and 2."""
    add = boundaries.add if boundaries else lambda x: x
    x = tf.gather(variables["embeddings/word"], [1, 4, 1]) + variables["embeddings/position"]
    for number in range(3):
        x = x if number == 1 else add(x)
        x = tf.tanh(x @ variables[f"layer_{number}/mlp/kernel"])
    x = add(x) @ variables["masked_lm/kernel"]
    return tf.reduce_sum(tf.nn.log_softmax(x @ tf.transpose(variables["embeddings/word"]))[:, 4])


def ancestors(op: tf.Operation) -> set[tf.Operation]:
    seen, left = {op}, [op]
    while left:
        current = left.pop()
        new = {*current.control_inputs, *(tensor.op for tensor in current.inputs)} - seen
        seen |= new
        left += new
    return seen


@pytest.mark.slow
def test_segments_give_the_gradients_of_the_whole_in_order() -> None:
    variables = weights()
    with tf.GradientTape() as tape:
        value = loss(variables, None)
    expected = dict(zip(NAMES, tape.gradient(value, list(variables.values())), strict=True))
    calls: list[list[str]] = []
    outputs: list[list[tf.Tensor]] = []

    @tf.function
    def in_segments() -> dict[str, tf.Tensor]:
        with tf.GradientTape(persistent=True) as tape:
            boundaries = Boundaries(tape)
            value = loss(variables, boundaries)
        found = {}

        def store(gradients: Gradients) -> list[tf.Tensor]:
            calls.append(list(gradients))
            present = {name: tf.convert_to_tensor(value) for name, value in gradients.items() if value is not None}
            found.update(present)
            outputs.append(list(present.values()))
            return outputs[-1]

        boundaries.backward(boundaries.segments(value, NAMES, (0, 2)), variables, store)
        return found

    found = in_segments()
    assert calls == [NAMES[5:], NAMES[4:5], NAMES[2:4], NAMES[:2]]
    assert expected["pooler/kernel"] is None and found.keys() == set(NAMES[:-1])
    for name, value in found.items():
        np.testing.assert_allclose(value, tf.convert_to_tensor(expected[name]), rtol=1e-5, atol=1e-6, err_msg=name)
    for before, after in itertools.pairwise(outputs):
        assert all({tensor.op for tensor in before} <= ancestors(later.op) for later in after)


ROWS, TOKENS, WORDS, PREDICTIONS = 3, 7, 43, 2
ZERO = 1e-7  # gradients that are smaller are zero, but for rounding, as of biases that shift all logits of a softmax
ODD = ModelConfig(
    vocab_size=WORDS,
    hidden_size=20,
    num_hidden_layers=3,
    num_attention_heads=5,
    intermediate_size=28,
    max_position_embeddings=TOKENS,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)


class FirstOfTwo(Communicator):
    """The first of two ranks; the other one adds nothing to the sums."""

    size = 2

    def __init__(self) -> None:
        self.buckets: dict[str, list[tf.Tensor]] = {}

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        self.buckets[name] = list(tensors)
        return list(tensors)


def masked(seed: int) -> Batch:
    """A batch of pretraining, as stored: rows of 3, 4 and 7 tokens, which packing puts into two."""
    random = np.random.default_rng(seed)
    used = np.array([3, 4, TOKENS])[:, None]
    places = np.arange(TOKENS)
    mask = (places < used).astype(np.int32)
    return {
        "input_ids": random.integers(1, WORDS, (ROWS, TOKENS)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": ((places > 1) * mask).astype(np.int32),
        "masked_lm_positions": np.array([[1, 0], [1, 3], [2, 5]], np.int32),
        "masked_lm_ids": random.integers(1, WORDS, (ROWS, PREDICTIONS)).astype(np.int32),
        "masked_lm_weights": np.array([[1, 0], [1, 1], [1, 1]], np.float32),
        "next_sentence_labels": np.array([[1], [0], [1]], np.int32),
    }


def spans(seed: int) -> Batch:
    labels = {name: np.array([[1], [2], [5]], np.int32) for name in ("start_positions", "end_positions")}
    return {name: masked(seed)[name] for name in ("input_ids", "input_mask", "segment_ids")} | labels


def stream(seed: int) -> Batch:
    return {"input_ids": np.random.default_rng(seed).integers(0, WORDS, (ROWS, TOKENS + 1)).astype(np.int32)}


def tensors(batch: Batch) -> Batch:
    return {name: tf.constant(value) for name, value in batch.items()}


def summed(
    task: Task, batches: Sequence[Batch], precision: PrecisionConfig, overlap: bool, frozen_layers: int = 0
) -> tuple[dict[str, np.ndarray], dict[str, float], FirstOfTwo]:
    """The gradients and measures of the batches, and what the communicator was given."""
    learns = learning(variables(task.module), InitConfig(frozen_layers=frozen_layers))
    comm, optimizer = FirstOfTwo(), Optimizer(learns, OptimizerConfig(learning_rate=1.0))
    parallel = ParallelConfig(overlap=overlap, bucket_megabytes=0.009)
    step = Step(task, optimizer, comm, precision, RunConfig(seed=4), parallel)
    weights, number = {name: tf.constant(7.0) for name in task.names}, tf.constant(5, tf.int64)
    gradients, sums = step.gradients.sum(batches, weights, number)
    found = {name: gradient.numpy() for name, gradient in zip(learns, gradients, strict=True)}
    return found, {name: float(value) for name, value in sums.items()}, comm


def alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float) -> None:
    """Compare gradients; tolerance: relative to the largest number of each."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if not name.endswith("key/bias"):  # whose gradient is zero, but for rounding
            largest = np.abs(value).max()
            limit = tolerance * largest if largest > ZERO else ZERO
            np.testing.assert_allclose(other[name], value, rtol=0, atol=limit, err_msg=name)


@pytest.mark.slow
def test_programs_of_xla_give_the_gradients_of_the_whole_while_buckets_travel() -> None:
    task = Pretraining(dataclasses.replace(ODD, num_hidden_layers=2, attention_probs_dropout_prob=0.0), 3, pairs="none")
    batch = [tensors(masked(1))]
    whole, measures, _ = summed(task, batch, PrecisionConfig(), overlap=False)
    found, also, comm = summed(task, batch, PrecisionConfig(xla=True), overlap=True)
    alike(whole, found, 2e-6)
    assert also == pytest.approx(measures, rel=1e-6)
    assert list(comm.buckets) == [f"bucket_{number}" for number in range(len(comm.buckets))]
    programs = [
        {op.name for tensor in bucket for op in ancestors(tensor.op) if op.type.endswith("PartitionedCall")}
        for bucket in comm.buckets.values()
    ]
    # The heads and their gradients need the embeddings, two layers and one another; each segment adds one program.
    assert sorted({len(used) for used in programs}) == [4, 5, 6, 7]
    assert all(before <= after for before, after in itertools.pairwise(programs))


PRE_NORM = dataclasses.replace(ODD, norm_placement="pre", causal=True, type_vocab_size=0)
XLA = PrecisionConfig(xla=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "batch", "precision", "frozen_layers", "tolerance"),
    [
        pytest.param(
            lambda: Pretraining(ODD, 3), lambda seed: pack(masked(seed)), XLA, 0, 2e-6, marks=pytest.mark.thorough
        ),
        (lambda: Pretraining(dataclasses.replace(ODD, recompute_activations=True), 3), masked, XLA, 1, 2e-6),
        pytest.param(lambda: CausalLM(PRE_NORM, 3), stream, XLA, 0, 2e-6, marks=pytest.mark.thorough),
        pytest.param(
            lambda: FineTuning(AnswerSpans(Windowing(), False), ODD, 3), spans, XLA, 0, 2e-6, marks=pytest.mark.thorough
        ),
        pytest.param(
            lambda: Pretraining(ODD, 3),
            masked,
            PrecisionConfig(xla=True, compute="float16"),
            0,
            5e-3,
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["packed", "recomputed and frozen", "causal", "answer spans", "float16"],
)
def test_programs_of_xla_add_what_the_loop_over_all_micro_batches_adds(
    task: Callable[[], Task],
    batch: Callable[[int], Batch],
    precision: PrecisionConfig,
    frozen_layers: int,
    tolerance: float,
) -> None:
    trained, batches = task(), [tensors(batch(seed)) for seed in (1, 2)]
    whole, measures, _ = summed(trained, batches, precision, False, frozen_layers)
    found, also, _ = summed(trained, batches, precision, True, frozen_layers)
    alike(whole, found, tolerance)
    assert also == pytest.approx(measures, rel=1e-6 if precision is XLA else 1e-2)
