"""A contender as seen by benchmarks/steps.py: a process that answers one command at a time."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from bert.core.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
EXIT_SECONDS = 60.0  # time limit for a process to end


def environment(threads: int, caches: Path, gpu: bool = False) -> dict[str, str]:
    """Return the environment of every contender: threads, huge pages, a GPU or none, no network, few log messages."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    return {
        **os.environ,
        **dict.fromkeys(names, str(threads)),
        "TOKENIZERS_PARALLELISM": "false",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        **({} if gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TORCHINDUCTOR_CACHE_DIR": str(caches),
    }


class Contender:
    """Context manager: a running process of benchmarks/adapter.py."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """log: file to which its output is appended."""
        self.name, self.command, self.log = name, command, log
        with open(log, "a", encoding="utf-8") as stream:
            stream.write(f"{name}: {' '.join(command)}\n")
        with open(log, "a", encoding="utf-8") as stream:
            try:
                self.process = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=ROOT,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stream,
                )
            except OSError as error:
                raise UserError(f"{name} cannot be started ({error}); see benchmarks/README.md") from error

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self.process.stdin and self.process.stdout
        if kind is not None:
            self.process.kill()
        with self.process:  # closes its pipes, so that its input ends
            try:
                self.process.communicate(timeout=EXIT_SECONDS)
            except (subprocess.TimeoutExpired, OSError, ValueError):
                self.process.kill()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and return the answer. Raises UserError if the contender fails or ends."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; the reason is read below
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line.endswith("\n") else {"error": self._ended()}
        if "error" in answer:
            raise UserError(f"{self.name} failed to {do}: {answer['error']}; all it said is in {self.log}")
        return answer

    def _ended(self) -> str:
        code = self.process.wait()
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"it ended with code {code}, its last line: {lines[-1][:200]}"
