"""Without a network: all that needs none works where there is only the loopback device."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.offline import words
from tests.training import ROOT, command, errors

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def offline() -> list[str]:
    """The words in front of a command that run it without a network."""
    return words() or pytest.skip("network namespaces are not allowed here")


def run(line: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


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


@pytest.mark.multiprocess
@pytest.mark.thorough
def test_two_ranks_train_without_a_network(offline: list[str], dataset: Path, tmp_path: Path) -> None:
    done = run([*offline, *command(dataset, tmp_path / "run", "--run.steps", "5", ranks=2)])
    assert done.returncode == 0 and not errors(done.stderr), done.stderr
