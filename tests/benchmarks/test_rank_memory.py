"""benchmarks/rank_memory.py: the ranks of all layouts really train, and hold less if something is divided."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import rank_memory
from bert.plan import model_cost

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("millions", [20, 60, 700])
def test_the_model_has_about_so_many_parameters(millions: float) -> None:
    count = model_cost.parameters(rank_memory.model_of(1e6 * millions))
    assert count == pytest.approx(1e6 * millions, rel=0.1)


def test_memory_is_a_mean_over_the_ranks_in_megabytes() -> None:
    assert rank_memory.mean([{"peak": 3e6}, {"peak": 8e6}], "peak") == 5.5


def test_the_memory_of_this_process_grows_by_what_it_uses() -> None:
    before = rank_memory.resident()
    held = np.ones(50_000_000, np.uint8)
    during = rank_memory.resident()
    assert 49e6 < during["now"] - before["now"] < 80e6 and during["peak"] >= during["now"]
    del held
    assert rank_memory.resident()["now"] - before["now"] < 30e6


@pytest.mark.multiprocess
def test_a_sharded_optimizer_and_a_model_in_parts_take_less_memory_of_each_rank() -> None:
    words = [sys.executable, "-m", "benchmarks.rank_memory", "--ranks", "2", "--parameters", "40", "--updates", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    for layout in ("sharded", "parts"):
        row = next(line for line in done.stdout.splitlines() if line.startswith(f"| {layout} |"))
        before_the_first_update = re.search(r"saves [\d,]+, (\d+) %", row)
        assert before_the_first_update and 85 < int(before_the_first_update[1]) < 115, done.stdout
