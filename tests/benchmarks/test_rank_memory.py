"""benchmarks/rank_memory.py: the ranks of both layouts really train, and the sharded one holds less."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import rank_memory
from bert import plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("millions", [20, 60, 700])
def test_the_model_has_about_so_many_parameters(millions: float) -> None:
    count = plan.parameters(rank_memory.model_of(1e6 * millions))
    assert count == pytest.approx(1e6 * millions, rel=0.25 if millions < 60 else 0.07)


def test_what_is_saved_is_a_mean_over_the_ranks_above_what_was_there_before() -> None:
    whole = [{"now": 900.0, "before": 100.0, "peak": 2000.0}, {"now": 1100.0, "before": 100.0, "peak": 2200.0}]
    sharded = [{"now": 700.0, "before": 200.0, "peak": 1800.0}] * 2
    found = rank_memory.compare(whole, sharded, parameters=60)
    assert (found["whole"], found["sharded"], found["saved"], found["saved_at_peak"]) == (900, 500, 400, 300)
    assert found["theory"] == 8 * 60 / 2  # half of the moments, on two ranks


@pytest.mark.multiprocess
def test_a_sharded_optimizer_takes_less_memory_of_each_rank() -> None:
    words = [sys.executable, "-m", "benchmarks.rank_memory", "--ranks", "2", "--parameters", "40", "--updates", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    saved = done.stdout.splitlines()[-1].split()
    assert saved[0] == "saved" and 0.6 * float(saved[3]) < float(saved[1]) < 1.4 * float(saved[3]), done.stdout
