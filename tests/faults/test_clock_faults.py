"""The wall clock jumps by hours, both ways, while a process runs: nothing that depends on time follows it.

A preloaded library moves the clock of a process (`tests/soak/disturb.c`), as libfaketime does. A wait until a time of
the wall clock that began before the jump is not prolonged, as it would be in a kernel whose clock is set.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert.core import files
from tests import hostile
from tests.downloads import BODY, SHA256, whole
from tests.hostile import Site
from tests.soak.faults import Disturbance
from tests.training import ROOT, command, measured, same_bits, train_here, weights

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
HOUR = 3600
LENGTH = ["--run.steps", "60", "--run.save_every", "7"]


@pytest.fixture
def disturbance(tmp_path: Path) -> Disturbance:
    made = Disturbance(tmp_path)
    if not made.works:
        pytest.skip("needs a C compiler")
    return made


@pytest.mark.slow
@pytest.mark.thorough
def test_a_clock_that_jumps_while_a_run_trains_has_no_effect(
    dataset: Path, tmp_path: Path, disturbance: Disturbance
) -> None:
    train_here(dataset, tmp_path / "straight", *LENGTH)
    run, updates = tmp_path / "run", 0
    line, variables = command(dataset, run, *LENGTH), os.environ | disturbance.environment
    with subprocess.Popen(line, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        for said in process.stderr:
            updates += said.startswith("train ")
            disturbance.move_clock({0: 0, 1: -30 * HOUR, 2: 5 * HOUR}[updates // 5 % 3])
    assert process.returncode == 0
    same_bits(weights(tmp_path / "straight", 60), weights(run, 60))
    assert measured(tmp_path / "straight") == measured(run)
    lines = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(value >= 0 for values in lines for value in values.values() if isinstance(value, (int, float)))


WAITING = """
import sys, time
from pathlib import Path
from bert.core.errors import UsageError
from bert.core import files
files.PATIENCE = 2.0
print("waits", flush=True)
begin = time.monotonic()
try:
    with files.exclusive(Path(sys.argv[1])):
        pass
except UsageError:
    waited = time.monotonic() - begin
    sys.stdin.readline()  # the clock has jumped
    print(f"{waited:.0f} {time.time():.0f}", flush=True)
"""


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_lock_is_waited_for_as_long_whatever_the_clock_says(
    hours: int, tmp_path: Path, disturbance: Disturbance
) -> None:
    line = [sys.executable, "-c", WAITING, str(tmp_path / "run")]
    variables = os.environ | disturbance.environment | {"PYTHONPATH": str(ROOT)}
    with (
        files.exclusive(tmp_path / "run"),
        subprocess.Popen(line, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin and process.stdout and process.stdout.readline() == "waits\n"
        disturbance.move_clock(HOUR * hours)
        process.stdin.close()
        seconds, now = map(int, process.stdout.readline().split())
    assert 2 <= seconds <= 10
    assert abs(now - time.time() - HOUR * hours) < 100  # the clock did jump


FETCHING = """
import sys
from pathlib import Path
from data.fetch import transfer
from tests.downloads import policy
client = transfer.Client("test/1 (nobody@example.org)", policy=policy(pause=0.5, window=0.5, min_speed=1000))
client.fetch(transfer.File(name="a.bin", url=sys.argv[1], limit=1 << 20, digests={"sha256": sys.argv[3]}),
             Path(sys.argv[2]))
"""


def test_a_download_goes_on_whatever_the_clock_says(tmp_path: Path, disturbance: Disturbance) -> None:
    folder = tmp_path / "download"
    folder.mkdir()
    with Site().running() as site:
        site.files["/a.bin"] = BODY
        jumps = [lambda hours=hours: disturbance.move_clock(HOUR * hours) for hours in (-30, 30)]
        site.faults["/a.bin"] = [hostile.cut(share, jump) for share, jump in zip((0.3, 0.6), jumps, strict=True)]
        line = [sys.executable, "-c", FETCHING, f"{site.url}/a.bin", str(folder), SHA256]
        variables = os.environ | disturbance.environment | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert whole(folder) and len(site.requests) == 3
