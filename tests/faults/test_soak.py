"""The soak in a short form: rounds under faults end with the bits of undisturbed ones.

The seed is one with which the round of training begins with kills of a rank, of the launcher, and of all at once.
"""

import os
import subprocess
import sys

import pytest

from tests.training import ROOT

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_rounds_under_random_faults_end_with_the_bits_of_undisturbed_ones(rounds: int) -> None:
    command = [sys.executable, "-m", "tests.soak", "--seed", "102", "--rounds", str(rounds), "--faults", "3"]
    # The files of compiled programs would meet a limit on file sizes first, which may come in the second round.
    shared = os.environ | ({"TF_XLA_FLAGS": ""} if rounds > 1 else {})
    done = subprocess.run(command, cwd=ROOT, env=shared, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for fault in ("kill", "kill all", "kill launcher"):
        assert f"1  training: {fault}\n" in done.stdout, done.stdout
    assert f"rounds: 1 of training{', 1 of chain' * (rounds - 1)}\n" in done.stdout, done.stdout
    assert "FAILED" not in done.stdout
