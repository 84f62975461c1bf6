"""A checkpoint holds the values of its step, even if training continues while it is written."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core import files
from bert.core.errors import ResourceError
from bert.training import checkpoint, saver
from bert.training.communicator import Communicator
from bert.training.saver import Saver


def value(run: Path, step: int, name: str = "a") -> Any:
    return tf.train.load_checkpoint(str(run / f"checkpoints/step-{step:08d}" / "variables")).get_tensor(name)


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


def test_a_change_waits_until_a_large_checkpoint_is_written_but_not_until_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver, "SMALL", 7)
    events = {name: threading.Event() for name in ("write", "flush", "changes")}
    write_bundle, flush = checkpoint.write_bundle, files.flush

    def slow_write(*arguments: Any) -> None:
        assert events["write"].wait(60)
        write_bundle(*arguments)

    def slow_flush(path: Path) -> None:
        assert events["flush"].wait(60)
        flush(path)

    monkeypatch.setattr(checkpoint, "write_bundle", slow_write)
    monkeypatch.setattr(files, "flush", slow_flush)
    writing = Saver(tmp_path, 2, 0, Communicator())
    writing.save(1, {"a": tf.Variable(1.0), "b": tf.Variable(2.0)})

    def change() -> None:
        writing.release()
        events["changes"].set()

    changing = threading.Thread(target=change)
    changing.start()
    assert not events["changes"].wait(0.3)
    events["write"].set()
    assert events["changes"].wait(60) and not checkpoint.steps(tmp_path)
    events["flush"].set()
    writing.wait()
    changing.join()
    assert value(tmp_path, 1) == 1
    events["write"].clear()
    monkeypatch.setattr(saver, "SMALL", 8)
    writing.save(2, {"a": tf.Variable(1.0), "b": tf.Variable(2.0)})
    writing.release()  # of few bytes: at once
    events["write"].set()
    writing.wait()


def test_a_change_does_not_wait_for_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "SMALL", 0)
    (tmp_path / "checkpoints").write_text("in the way")
    writing = Saver(tmp_path, 2, 0, Communicator())
    writing.save(1, {"a": tf.Variable(1.0)})
    writing.release()
    with pytest.raises(Exception, match="checkpoints"):
        writing.wait()


PEAK = """
import resource, sys
from pathlib import Path
import tensorflow as tf
from bert.training.communicator import Communicator
from bert.training.saver import Saver

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

state = {str(number): tf.Variable(tf.ones([2**22])) for number in range(24)}  # 16 MiB each

@tf.function(jit_compile=True)
def update():
    for variable in state.values():
        variable.assign_add(tf.ones_like(variable))

update()
before, saver = peak(), Saver(Path(sys.argv[1]), 2, 0, Communicator())
saver.save(1, state)
saver.release()
update()
saver.wait()
print(peak() - before)
"""


@pytest.mark.slow
def test_a_save_does_not_hold_the_state_twice(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PEAK, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 24 * 16 / 4
    np.testing.assert_array_equal(value(tmp_path, 1, "23"), np.full(2**22, 2, np.float32))
