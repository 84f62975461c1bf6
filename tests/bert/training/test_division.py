"""The rows of a variable are divided over the ranks, and whole in a checkpoint; real ranks are in test_loop.py."""

import numpy as np
import tensorflow as tf

from bert.training import division
from bert.training.distributed import Communicator
from bert.training.division import DividedVariable


class Ranks(Communicator):
    """One of three ranks, whose collectives return what the whole would be."""

    def __init__(self, rank: int, whole: np.ndarray) -> None:
        self.rank, self.size, self.whole = rank, 3, whole

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        return tf.constant(self.whole)


def test_a_rank_keeps_its_rows_of_what_rank_0_was_assigned() -> None:
    whole = np.arange(14, dtype=np.float32).reshape(7, 2)
    for rank, (first, last) in enumerate([(0, 3), (3, 5), (5, 7)]):
        variable = DividedVariable("m", tf.TensorShape([7, 2]), Ranks(rank, whole), rows=True)
        assert variable.local.shape == (last - first, 2)
        variable.distribute()
        np.testing.assert_array_equal(variable.local.numpy(), whole[first:last])


def test_a_single_process_copies_what_it_has_and_a_rank_that_does_not_write_keeps_nothing() -> None:
    state = {"w": tf.Variable([1.0, 2.0]), "m": DividedVariable("m", tf.TensorShape([3]), Communicator())}
    state["m"].assign(np.array([3.0, 4.0, 5.0], np.float32))
    state["m"].distribute()  # a single process broadcasts to itself
    values = division.copies(state)
    state["w"].assign([0.0, 0.0])
    assert {name: np.asarray(value).tolist() for name, value in values.items()} == {"w": [1, 2], "m": [3, 4, 5]}
    assert division.copies(state, keep=False) == {}
