"""Several ranks on this host, with what horovodrun would set for them.

horovodrun first imports TensorFlow, to ask Horovod whether it has Gloo. An environment without Horovod has none.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import IO, NoReturn

import place
import processes
import settings

GRACE = 5.0  # seconds that ranks have to end when another one has failed, as horovodrun gives them
LOOPBACK = "127.0.0.1"
LOCKS = {1: threading.Lock(), 2: threading.Lock()}  # of standard output and standard error


def run(words: Sequence[str]) -> NoReturn:
    """Run `N COMMAND...`: the command N times, as ranks. When one fails, end the others; end with its status."""
    count, command = int(words[0]), words[1:]
    ranks: list[subprocess.Popen[bytes]] = []
    relays: list[threading.Thread] = []

    def stop(*_: int | FrameType | None) -> None:
        _end(ranks, relays)
        sys.exit(128 + signal.SIGTERM)

    processes.handle((signal.SIGTERM,), stop)
    host, port = processes.host(), os.environ[processes.RENDEZVOUS]
    settings.set_defaults(NCCL_SOCKET_IFNAME="lo", PYTHONUNBUFFERED="1")
    for number in range(count):
        own = number, count
        variables = os.environ | place.by_gloo(own, own, (0, 1), host, LOOPBACK, port) | {"HOROVOD_GLOO_IFACE": "lo"}
        # The kernel ends it when this process is killed. All that it starts is in its process group.
        line = ["setpriv", "--pdeathsig", "TERM", *command]
        rank = processes.start(line, env=variables, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ranks.append(rank)
        assert rank.stdout and rank.stderr
        for source, target in ((rank.stdout, 1), (rank.stderr, 2)):
            relays.append(threading.Thread(target=_relay, args=(source, target), daemon=True))
            relays[-1].start()
    failed: list[subprocess.Popen[bytes]] = []
    running = True
    while running and not failed:
        time.sleep(0.05)
        running = None in [rank.poll() for rank in ranks]
        failed = [rank for rank in ranks if rank.returncode]
    _end(ranks, relays)
    sys.exit(processes.status_of(failed[0]) if failed else 0)


def _relay(source: IO[bytes], target: int) -> None:
    """Copy whole lines. Under PYTHONUNBUFFERED a line comes in pieces, and another rank's could come between them."""
    for line in source:
        with LOCKS[target]:  # the kernel keeps no more than 4 KiB together
            while line:
                line = line[os.write(target, line) :]


def _end(ranks: Sequence[subprocess.Popen[bytes]], relays: Sequence[threading.Thread]) -> None:
    """Ask the ranks that still run to end, and kill those that do not; pass on what they still say."""
    for rank in ranks:
        rank.terminate()
    deadline = time.monotonic() + GRACE
    for rank in ranks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGKILL)
    for relay in relays:
        relay.join()
