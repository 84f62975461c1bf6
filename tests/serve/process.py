"""A service as a process of its own, on a free port of this machine."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
STARTS = 300.0  # seconds within which it must listen; many on a machine that does much else


class Service:
    """A running service; `said` collects its standard error."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self._listening = threading.Event()
        self.address = ""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        assert self._listening.wait(STARTS) and self.address, "".join(self.said)
        httpx.get(f"{self.address}/readyz", timeout=STARTS).raise_for_status()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.match(r"listening on (http://\S+)", line):
                self.address = found[1]
                self._listening.set()
        self._listening.set()

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def ask(self, route: str, **fields: Any) -> httpx.Response:
        return httpx.post(f"{self.address}/v1/{route}", json=fields, timeout=60)

    def metric(self, name: str) -> float:
        """The sum of a figure over its labels."""
        lines = httpx.get(f"{self.address}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1e3  # type: ignore[index]

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said if line.startswith("{")]

    def stop(self, kind: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(kind)
        code = self.process.wait(60)
        self._reading.join(60)
        return code


@contextmanager
def service(*arguments: object) -> Iterator[Service]:
    """A service that ends with the block."""
    found = Service(*arguments)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()
