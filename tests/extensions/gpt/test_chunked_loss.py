"""The chunked cross-entropy and its gradients are those of all scores at once."""

import numpy as np
import pytest
import tensorflow as tf

from extensions.gpt import chunked_loss

ROWS, WIDTH, VOCAB, FACTOR = 37, 12, 101, 3.0


def given() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    random = np.random.default_rng(1)
    hidden, table = random.normal(size=(ROWS, WIDTH)), random.normal(size=(VOCAB, WIDTH))
    labels = random.integers(0, VOCAB, ROWS)
    labels[::3] = np.argmax(hidden[::3] @ table.T, axis=1)  # some predictions are correct
    return tf.constant(hidden, tf.float32), tf.constant(table, tf.float32), tf.constant(labels, tf.int32)


def expected() -> tuple[float, int, np.ndarray, np.ndarray]:
    """Return the loss, the correct predictions, and FACTOR times the loss's gradients, in float64 NumPy."""
    hidden, table, labels = (x.numpy().astype(np.float64) for x in given())
    scores, places = hidden @ table.T, np.eye(VOCAB)[labels.astype(int)]
    powers = np.exp(scores - scores.max(1, keepdims=True))
    probabilities = powers / powers.sum(1, keepdims=True)
    by_scores = FACTOR * (probabilities - places)
    loss = -np.log((probabilities * places).sum(1)).sum()
    return loss, int((scores.argmax(1) == labels).sum()), by_scores @ table, by_scores.T @ hidden


def computed(
    dtype: tf.DType, rows: int, multiple: int = 1, training: bool = True, xla: bool | None = None
) -> tuple[float, int, np.ndarray, np.ndarray]:
    """xla: whether a graph is compiled; None: no graph."""
    given_now = given()

    def compute() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(given_now[:2])
            chunk_bytes = rows * 4 * (VOCAB + -VOCAB % multiple)
            measure = chunked_loss.tied(
                *given_now, dtype, multiple=multiple, training=training, chunk_bytes=chunk_bytes
            )
            scaled = FACTOR * measure.loss
        return measure, tape.gradient(scaled, given_now[:2])

    (loss, correct), gradients = compute() if xla is None else tf.function(compute, jit_compile=xla)()
    return float(loss), int(correct), *(g.numpy() for g in gradients)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "unit"), [(tf.float32, 1e-6), (tf.bfloat16, 2**-7), (tf.float16, 2**-9)])
def test_chunks_of_rows_have_the_loss_and_the_gradients_of_the_whole_in_numpy(dtype: tf.DType, unit: float) -> None:
    loss, correct, *gradients = expected()
    for rows in (10, 37):
        found, found_correct, *found_gradients = computed(dtype, rows)
        assert found == pytest.approx(loss, rel=unit)
        assert found_correct == correct or dtype != tf.float32
        for one, other in zip(found_gradients, gradients, strict=True):
            np.testing.assert_allclose(one, other, atol=4 * unit * np.abs(other).max(), rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("multiple", "training"), [(8, True), (1, False), (8, False)])
@pytest.mark.parametrize("xla", [False, True])
def test_a_rounded_vocabulary_and_gradients_that_are_computed_later_give_the_same(
    multiple: int, training: bool, xla: bool
) -> None:
    loss, correct, *gradients = computed(tf.float32, 10, multiple, training, xla)
    exact_loss, exact_correct, *exact = expected()
    assert (loss, correct) == (pytest.approx(exact_loss, rel=1e-6), exact_correct)
    for one, other in zip(gradients, exact, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("multiple", [1, 8])
def test_the_first_of_equal_scores_is_the_prediction(multiple: int) -> None:
    random = np.random.default_rng(4)
    hidden, table = random.integers(-1, 2, (ROWS, 2)), random.integers(-1, 2, (VOCAB, 2))  # a score is -2 to 2
    first = (hidden @ table.T).argmax(1)
    last = VOCAB - 1 - (hidden @ table.T)[:, ::-1].argmax(1)
    for labels, correct in ((first, ROWS), (last, (first == last).sum())):
        given = tf.constant(hidden, tf.float32), tf.constant(table, tf.float32), tf.constant(labels, tf.int32)
        found = chunked_loss.tied(*given, tf.bfloat16, multiple=multiple, chunk_bytes=10 * 4 * 104)
        assert float(found.correct) == correct < ROWS + (labels is first)


def test_no_tensor_is_as_large_as_all_scores() -> None:
    """Of the traced program: the largest tensor has one chunk's scores."""
    rows, size = 1000, 10

    @tf.function
    def compute(hidden: tf.Tensor, table: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([hidden, table])
            loss = chunked_loss.tied(hidden, table, labels, tf.float32, chunk_bytes=size * 4 * VOCAB).loss
        return tape.gradient(loss, [hidden, table])

    traced = compute.get_concrete_function(
        tf.TensorSpec([rows, WIDTH]), tf.TensorSpec([VOCAB, WIDTH]), tf.TensorSpec([rows], tf.int32)
    )
    graphs = [traced.graph, *(function.graph for function in _called(traced.graph))]
    shapes = [x.shape for graph in graphs for op in graph.get_operations() for x in op.outputs]
    known = [shape.num_elements() for shape in shapes if shape.is_fully_defined()]
    assert any(shape.as_list() == [size, VOCAB] for shape in shapes if shape.rank == 2)
    assert max(known) < rows * VOCAB / 4


def _called(graph: tf.Graph) -> list[tf.types.experimental.ConcreteFunction]:
    return [graph._get_function(name) for name in graph._functions] if hasattr(graph, "_functions") else []
