"""Runs one command to its end, or to its time limit, and measures it with all processes that it waits for.

The kernel counts the memory of the process that starts a command as the command's, so this one imports little.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from bert.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
GRACE = 10.0  # seconds between asking a command to end and ending it
TOTAL = re.compile(r"^100\.00\s+[\d.]+\s+\d*\s+(\d+)\b.*total$", re.MULTILINE)  # the last line of strace -c


class Failed(UserError):
    """A command did not end as it should; the curve has no figures."""

    exit_code = 1


def run(words: Sequence[str], log: Path, limit: float, trace: str = "") -> dict[str, float]:
    """Return processor seconds, MB of the largest process, calls if they are counted, and what the command reports.

    A last line of JSON on standard output replaces figures. Raise Failed, saying why, if the command fails, takes more
    than `limit` seconds, or needs strace where there is none.
    """
    counted = log.with_suffix(".strace")
    if trace:
        if not shutil.which("strace"):
            raise Failed("strace is not installed, which counts calls to the system")
        words = ["strace", "-f", "--seccomp-bpf", "-c", "-e", f"trace={trace}", "-o", str(counted), *words]
    with open(log, "wb") as errors, _started(words, errors) as process:
        late = threading.Event()
        clock = threading.Timer(limit, _end, (process, late))
        clock.start()
        try:
            assert process.stdout
            output = process.stdout.read().decode(errors="replace").splitlines()
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            clock.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
    if late.is_set():
        raise Failed(f"took more than {limit:g} s")
    if process.returncode:
        lines = log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        why = next((line for line in lines if line.startswith("error:")), lines[-1])
        raise Failed(f"ended with code {process.returncode}: {why.removeprefix('error: ')[:200]}")
    figures = {"seconds": usage.ru_utime + usage.ru_stime, "megabytes": usage.ru_maxrss * 1024 / 1e6}
    if trace:
        total = TOTAL.search(counted.read_text())
        figures["calls"] = float(total[1]) if total else 0.0
    if output and output[-1].startswith("{"):
        with contextlib.suppress(ValueError):
            figures |= json.loads(output[-1])
    return figures


@contextlib.contextmanager
def _started(words: Sequence[str], errors: BinaryIO) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in a process group of its own, of which nothing is left after the block."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _send(process, signal.SIGKILL)
        if process.returncode is None:
            process.wait()
        assert process.stdout
        process.stdout.close()


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    """Ask the processes of the group to end; end them if they do not."""
    late.set()
    _send(process, signal.SIGTERM)
    for _ in range(int(GRACE / 0.1)):
        if process.returncode is not None:
            return
        time.sleep(0.1)
    _send(process, signal.SIGKILL)


def _send(process: subprocess.Popen[bytes], kind: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, kind)
