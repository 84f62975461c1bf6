"""Commands under limits that are too small: one line and exit code 5, never an abort in TensorFlow or a traceback."""

import resource
import subprocess
import sys

import pytest

from tests.conftest import ROOT


def limited(kind: int, limit: int, *arguments: str) -> tuple[int, str]:
    """Run a command under a limit; return its exit code and what it wrote to standard error."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(kind, (limit, limit))
    )
    return done.returncode, done.stderr


PRETRAIN = "bert.pretrain demo_phase1 --data.train x --init.checkpoint none"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        PRETRAIN,
        "bert.encode --model x --input y --output z.npz",
        "squad.train squad_tiny --data.train_file x",
        "squad.predict --model x --question y --context z",
    ],
)
def test_too_little_address_space_is_refused_before_tensorflow_aborts(command: str) -> None:
    code, said = limited(resource.RLIMIT_AS, 1_500_000_000, *command.split())
    assert code == 5 and said.count("\n") == 1, said
    assert said.startswith("error: the limit on address space is 1.4 GiB; TensorFlow needs 3 GiB")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["data.books", "data.tfrecords", "squad.metric", "bert.report", "bert.pretrain"])
def test_a_command_without_tensorflow_needs_little(command: str) -> None:
    assert limited(resource.RLIMIT_AS, 500_000_000, command, "--help") == (0, "")


def test_too_few_open_files_are_refused() -> None:
    code, said = limited(resource.RLIMIT_NOFILE, 12, *PRETRAIN.split())
    assert (code, said) == (5, "error: the limit on open files is 12; raise it to 64 at least (ulimit -n)\n")


# A command, which shows what TensorFlow and Horovod imported with themselves, and that Keras can be imported later.
WITHOUT_KERAS = """
import sys
from bert.core import cli
def main(argv):
    import tensorflow as tf
    import horovod.tensorflow as hvd
    assert hvd.gloo_built() and hvd.SyncBatchNormalization is None
    assert "keras" not in sys.modules and "matplotlib" not in sys.modules
    assert tf.keras.layers.BatchNormalization.__module__.startswith("keras.")
cli.main(main)
"""


@pytest.mark.slow
def test_a_command_imports_tensorflow_and_horovod_without_keras() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_KERAS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
