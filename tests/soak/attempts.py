"""One start of a command: what it says as it says it, its processes, and its end."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.training import ROOT

PATIENCE = 180.0  # seconds after which a command that has not ended hangs


class Hang(Exception):
    """A command did not end, or left a process behind."""


class Attempt:
    """A command that runs in the folder `at`. All processes that work there belong to it."""

    def __init__(self, command: Sequence[str], at: Path, environment: Mapping[str, str]) -> None:
        self.at = at
        self.lines: list[str] = []
        self._said = threading.Condition()
        variables = os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment)
        self.process = subprocess.Popen(
            command, cwd=at, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line.rstrip("\n"))
                self._said.notify_all()
        with self._said:
            self._said.notify_all()

    def updates(self) -> int:
        """Return the number of updates that the command has reported."""
        return sum(line.startswith("train ") for line in self.lines)

    def after_updates(self, count: int) -> bool:
        """Wait for this many updates; return whether the command still runs."""
        with self._said:
            self._said.wait_for(lambda: self.updates() >= count or not self._reader.is_alive(), PATIENCE)
        return self.process.poll() is None

    def after_seconds(self, seconds: float) -> bool:
        """Wait so long; return whether the command still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is None

    def end(self) -> int:
        """Wait until the command and all its processes have ended; return its exit code. Raise Hang if they do not."""
        deadline = time.monotonic() + PATIENCE
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise Hang(f"did not end within {PATIENCE:g} seconds") from error
        while left := working_in(self.at):
            if time.monotonic() > deadline:
                raise Hang(f"left {len(left)} processes behind: {' '.join(left[0].cmdline())}")
            time.sleep(0.05)
        self._reader.join(PATIENCE)
        return code

    def rank(self, number: int) -> psutil.Process | None:
        """Return the process of a rank, not its launcher; None if it does not run."""
        for process in working_in(self.at):
            with contextlib.suppress(psutil.Error):
                launches = any(word.endswith("scripts/launcher") for word in process.cmdline())
                if process.environ().get("HOROVOD_RANK") == str(number) and not launches and _is_python(process):
                    return process
        return None

    def workers(self) -> list[psutil.Process]:
        """Return the processes of the command's pool."""
        found = []
        for process in working_in(self.at):
            with contextlib.suppress(psutil.Error):
                if any("spawn_main" in word for word in process.cmdline()):
                    found.append(process)
        return found


def _is_python(process: psutil.Process) -> bool:
    return "python" in process.name()


def working_in(folder: Path) -> list[psutil.Process]:
    """Return the living processes whose current folder is `folder`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, as far as they still live."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


def kill_all(folder: Path) -> None:
    """Kill whatever works in `folder`, and what it starts meanwhile."""
    while processes := working_in(folder):
        kill(processes)
        time.sleep(0.02)
