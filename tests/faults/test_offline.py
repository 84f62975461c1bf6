"""Without a network: all that needs none works where there is only the loopback device, and a download says so."""

import fcntl
import shutil
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.training import ROOT, command, errors

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
UNSHARE = ["unshare", "--user", "--map-root-user", "--net"]


def loopback_only() -> None:
    """Start the loopback device of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(control, SIOCSIFFLAGS, request)


ENTER = "import os, sys; from tests.faults.test_offline import loopback_only; loopback_only()"
RUN = f"{ENTER}; os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.fixture(scope="module")
def offline() -> list[str]:
    """The words in front of a command that run it without a network."""
    words = [*UNSHARE, sys.executable, "-c", RUN]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")
    return words


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def test_the_namespace_has_no_network(offline: list[str]) -> None:
    code = """
import socket
with socket.socket() as server, socket.socket() as client:
    server.bind(("127.0.0.1", 0))
    server.listen()
    client.connect(server.getsockname())
with socket.socket() as outside:
    print(outside.connect_ex(("192.0.2.1", 80)))
"""
    done = run([*offline, sys.executable, "-c", code])
    assert done.returncode == 0 and int(done.stdout) != 0, done.stderr


@pytest.mark.slow
def test_from_text_to_a_score_without_a_network(offline: list[str]) -> None:
    done = run([*offline, sys.executable, "-m", "pytest", "-q", "-m", "", "tests/test_journey.py"])
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.multiprocess
def test_two_ranks_train_without_a_network(offline: list[str], dataset: Path, tmp_path: Path) -> None:
    done = run([*offline, *command(dataset, tmp_path / "run", "--run.steps", "5", ranks=2)])
    assert done.returncode == 0 and not errors(done.stderr), done.stderr


@pytest.mark.parametrize(("name", "files"), [("wikipedia", 1), ("squad2", 2)])
def test_a_download_fails_at_once_and_lists_what_to_carry(
    offline: list[str], tmp_path: Path, name: str, files: int
) -> None:
    begin = time.monotonic()
    done = run([*offline, sys.executable, "-m", "data.download", name, "--output", str(tmp_path / "out")])
    assert done.returncode == 3 and time.monotonic() - begin < 60
    said = done.stderr.splitlines()
    assert len(errors(done.stderr)) == 1 and said[-1].startswith("error: https://") and "no connection" in said[-1]
    assert sum(f"\t{tmp_path / 'out.incoming'}" in line for line in said) == files
