"""A backward pass in segments gives the gradients of a whole one, and each segment waits for the one before it."""

import itertools

import numpy as np
import tensorflow as tf

from bert.training.overlap import Boundaries, Gradients

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
