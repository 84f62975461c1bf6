"""benchmarks/step_memory.py: the planned activations are those that a step on a CPU has."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import step_memory
from bert.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_mistakes_end_in_one_line() -> None:
    with pytest.raises(UsageError, match="--models huge: one of tiny small base large"):
        step_memory.main(["--models", "huge"])
    with pytest.raises(UsageError, match="--tokens 64: one of 128 512"):
        step_memory.main(["--tokens", "64"])
    with pytest.raises(UsageError, match="two or more"):
        step_memory.main(["--batches", "8"])


def test_the_flags_choose_layers_and_recomputation() -> None:
    options = step_memory.Options(layers=3, recompute=True)
    model = step_memory.model_of(options, "base")
    assert (model.num_hidden_layers, model.recompute_activations, model.hidden_size) == (3, True, 768)


@pytest.mark.slow
def test_activations_of_a_step_on_a_cpu_are_planned_within_10_percent() -> None:
    words = ["--models", "base", "--layers", "4", "--batches", "16", "32"]
    command = [sys.executable, "-m", "benchmarks.step_memory", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[-1]
    assert row.startswith("| base, 4 layers, 128 tokens, float32 | 32 - 16 |"), done.stdout
    error = float(row.split("|")[-2].strip().rstrip("%")) / 100
    assert abs(error) <= step_memory.GOAL, row
