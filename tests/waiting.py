"""Waiting for what another process does, with a bound, and words for what did not come."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_for(
    came: Callable[[], Any], what: str, process: subprocess.Popen[Any] | None = None, seconds: float = 60
) -> None:
    """Return as soon as `came()` is true; fail, saying what was waited for, after `seconds` or when `process` ends."""
    end = time.monotonic() + seconds
    while not came():
        assert process is None or process.poll() is None, f"ended with {process.returncode}, before {what}"
        assert time.monotonic() < end, f"no {what} in {seconds:g} seconds"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie, which may stay until the machine's first process collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
