"""Runs the items of the list: each result is stored at once, and what has one is not run again."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contender import ROOT
from benchmarks.gpu_day.child import PEAK
from benchmarks.gpu_day.items import Item
from benchmarks.steps import commit
from bert.core import files

STATE = "state.json"
ATTEMPTS = 2  # of an item that is cut short by the end of the time, of this program or of the machine
GRACE = 5.0  # seconds between asking a process to end and ending it
SHOWN = 60  # last lines of a command's output, for the page

NOT_HERE = re.compile("No module named|cannot be started")  # a package, or the other interpreter, is not installed
Result = dict[str, Any]


def command(item: Item) -> list[str]:
    """Return the command of an item."""
    return [sys.executable, "-m", "benchmarks.gpu_day.child", *item.words]


@dataclass
class State:
    """What is known so far, over all calls."""

    rehearse: bool | None = None
    """None: nothing has run"""
    gpu: str = ""
    """name, driver and memory, as nvidia-smi has them"""
    results: dict[str, Result] = field(default_factory=dict)
    """by name: status (done, failed or skipped), seconds, commit, and what was found or why not"""
    attempts: dict[str, int] = field(default_factory=dict)
    """how often an item was begun"""
    planned: dict[str, str] = field(default_factory=dict)
    """the memory that bert.plan expects"""

    @classmethod
    def load(cls, output: Path) -> "State":
        """The state of a folder, or a new one."""
        path = output / STATE
        return cls(**files.read_json(path)) if path.exists() else cls()

    def save(self, output: Path) -> None:
        """Write the state atomically."""
        files.write_json(output / STATE, vars(self))


@dataclass
class Runner:
    """Runs items one after the other."""

    output: Path
    state: State
    seconds: float
    """time of this call"""
    command: Callable[[Item], list[str]] = command
    clock: Callable[[], float] = time.monotonic
    tell: Callable[[str], None] = lambda line: print(line, flush=True)

    def run(self, items: Sequence[Item]) -> Iterator[Item]:
        """Run the items that have no result and for which the time is left; yield each that then has one."""
        end = self.clock() + self.seconds
        for item in items:
            left = end - self.clock()
            if item.name in self.state.results or left < item.least:
                continue
            if self.state.attempts.get(item.name, 0) >= ATTEMPTS:
                result: Result | None = {"status": "failed", "seconds": 0.0, "why": f"cut short {ATTEMPTS} times"}
            else:
                result = self._attempt(item, left)
            if result:
                self.state.results[item.name] = result | {"commit": commit()}
                self.state.save(self.output)
                yield item
            outcome = (result.get("why") or "done") if result else "cut short by the end of the time"
            self.tell(f"{item.name}: {outcome}; {max(0.0, end - self.clock()) / 60:.1f} min left")

    def _attempt(self, item: Item, left: float) -> Result | None:
        """Return the result of an item, or None if the end of the time cut it short."""
        self.state.attempts[item.name] = self.state.attempts.get(item.name, 0) + 1
        self.state.save(self.output)  # a machine that goes down has been noted
        folder, begun = self.output / item.name, self.clock()
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier attempt, which a run would continue
        folder.mkdir(parents=True)
        log = folder / "log.txt"
        flags = f"{os.environ.get('XLA_FLAGS', '')} {item.xla_flags}".strip()  # the user's may say where CUDA is
        environment = {**os.environ, **({"XLA_FLAGS": flags} if flags else {})}
        try:
            code = _execute(self.command(item), environment, log, min(item.limit, left))
        except KeyboardInterrupt:
            self.state.attempts[item.name] -= 1
            self.state.save(self.output)
            raise
        seconds = self.clock() - begun
        if code == 0:
            result = {"status": "done", "seconds": seconds, **_result(item, folder)}
            shutil.rmtree(folder / "run", ignore_errors=True)  # gigabytes
            return result
        if code is None and left < item.limit:
            return None
        said = reason(_lines(log))
        if code is not None and NOT_HERE.search(said):
            return {"status": "skipped", "seconds": seconds, "why": f"skipped: {said}"}
        what = f"longer than {item.limit:.0f} s" if code is None else f"ended with code {code}"
        return {"status": "failed", "seconds": seconds, "why": f"failed: {what}: {said}"}


def _execute(words: list[str], environment: dict[str, str], log: Path, limit: float) -> int | None:
    """Return the exit code; None if it took too long. The process and what it started are gone afterwards."""
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=GRACE)


def _lines(log: Path) -> list[str]:
    text = log.read_text(encoding="utf-8", errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def reason(output: Sequence[str]) -> str:
    """Return the line that says why a command failed: its error, or a failed check of XLA's, or else its last one."""
    lines = [line for line in output if not line.startswith(PEAK)]
    errors = [line for line in lines if line.startswith("error:") or "] Check failed: " in line]
    return (errors or lines or ["it printed nothing"])[-1][:300]


def _result(item: Item, folder: Path) -> Result:
    """Return what a finished command has found: the figures of a run, the table of a benchmark, or its output."""
    lines, table = _lines(folder / "log.txt"), folder / "steps.md"
    if item.is_run:
        return {"facts": _figures(folder / "run", lines)}
    return {"text": table.read_text(encoding="utf-8")} if table.exists() else {"output": "\n".join(lines[-SHOWN:])}


def _figures(run: Path, output: list[str]) -> Result:
    """Return the figures of each update of a run of bert.pretrain, and the hash of the weights at its end."""
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    updates = [line for line in logged if line["split"] == "train"]
    described = files.read_json(run / "config.json")
    config, newest = described["config"], max((run / "checkpoints").glob("step-*"))
    weights = files.read_json(newest / "manifest.json")["files"]
    memory = [int(line.removeprefix(PEAK)) for line in output if line.startswith(PEAK)]
    return {
        "losses": [float(line["loss"]) for line in updates],
        "sequences_per_second": [line["sequences_per_second"] for line in updates],
        "teraflops": [line["model_teraflops_per_second"] for line in updates],
        "total": config["batch.total"],
        "sequences": config["batch.per_device"],
        "tokens": round(updates[-1]["tokens_per_second"] / updates[-1]["sequences_per_second"]),
        "compute": config["precision.compute"],
        "versions": described["versions"],
        "weights": {name: entry["sha256"] for name, entry in weights.items() if ".data-" in name},
        "peak_bytes": memory[-1] if memory else None,
    }
