"""The soak in a short form, from a fixed seed: rounds under faults end with the bits of undisturbed ones."""

import subprocess
import sys

import pytest

from tests.training import ROOT

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(1800)]


def test_two_rounds_under_random_faults_end_with_the_bits_of_undisturbed_ones() -> None:
    command = [sys.executable, "-m", "tests.soak", "--seed", "3", "--rounds", "2", "--faults", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rounds: 1 of training, 1 of chain\n" in done.stdout, done.stdout
    assert "FAILED" not in done.stdout
