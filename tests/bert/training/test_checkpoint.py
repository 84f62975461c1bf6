"""A checkpoint holds the values of its step, even if training continues while it is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import ResourceError
from bert.training import checkpoint
from bert.training.distributed import Communicator
from bert.training.saver import Saver


def value(run: Path, step: int) -> Any:
    return tf.train.load_checkpoint(str(run / f"checkpoints/step-{step:08d}" / "variables")).get_tensor("a")


def test_updates_during_the_write_do_not_change_the_checkpoint(tmp_path: Path) -> None:
    variable = tf.Variable(tf.zeros([1000, 1000]), name="a")

    @tf.function(jit_compile=True)
    def update() -> None:
        variable.assign_add(tf.ones_like(variable))

    saver = Saver(tmp_path, 9, 0, Communicator())
    for step in range(1, 6):
        update()
        saver.save(step, {"a": variable})
        update()
    saver.wait()
    for step in range(1, 6):
        np.testing.assert_array_equal(value(tmp_path, step), np.full((1000, 1000), 2 * step - 1, np.float32))


@pytest.mark.parametrize(("keep_every", "left"), [(0, [9, 10]), (4, [4, 8, 9, 10])])
def test_the_newest_checkpoints_and_those_of_multiples_are_kept(
    keep_every: int, left: list[int], tmp_path: Path
) -> None:
    saver = Saver(tmp_path, 2, keep_every, Communicator())
    for step in range(1, 11):
        saver.save(step, {"a": tf.Variable(1.0)})
    saver.wait()
    assert [path.name for path in checkpoint.steps(tmp_path)] == [f"step-{step:08d}" for step in left]


def test_an_error_of_the_background_write_is_raised_at_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise ResourceError("the disk is full")

    monkeypatch.setattr(checkpoint, "save", full)
    saver = Saver(tmp_path, 2, 0, Communicator())
    saver.save(1, {})
    with pytest.raises(ResourceError, match="full"):
        saver.save(2, {})
    saver.wait()
