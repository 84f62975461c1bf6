"""Says whether BERT can be trained on this machine: driver, GPUs, CUDA, TensorFlow, Horovod, network, limits, disk.

    python -m bert.doctor [--json] [--patience SECONDS]

A line for each finding: ok, note, warning or error, what was found, and the remedy. Exit code 0: it can train (on the
CPU, if it has no GPU). 5: something needed is missing. Nothing is computed on a GPU, so that a job that runs there is
not disturbed. --json prints a list of objects instead.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from bert import cli
from bert.doctor import gpus, network, resources, software
from bert.doctor.gpus import Graphics
from bert.doctor.machine import Finding, Machine, careful
from bert.doctor.software import Software
from bert.errors import ResourceError, UsageError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.doctor`."""

    json: cli.Switch = False
    """print a JSON list of objects instead of lines"""
    patience: float = 30.0
    """seconds that importing TensorFlow and Horovod may take; more on a slow network disk"""

    def __post_init__(self) -> None:
        if self.patience <= 0:
            raise UsageError(f"--patience must be positive, not {self.patience:g}")


def examine(machine: Machine) -> list[Finding]:
    """All findings; the slow ones are looked for at the same time."""
    found: list[Finding] = []
    with ThreadPoolExecutor() as pool:
        drivers = pool.submit(gpus.look, machine)
        libraries, frameworks = (pool.submit(software.look, machine, mode) for mode in ("libraries", "frameworks"))
        disk = pool.submit(lambda: list(careful("disk", lambda: resources.check_disk(machine))))
    graphics = _take(drivers, Graphics(), "GPUs", found)
    parts = [_take(part, Software(), "TensorFlow", found) for part in (libraries, frameworks)]
    trouble = next((part.trouble for part in parts if part.trouble), "")
    known = Software(parts[0].facts | parts[1].facts, trouble)
    count = graphics.count
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "GPUs": functools.partial(gpus.check, graphics, known.cuda, known.architectures),
        "Python": functools.partial(software.check_python, machine),
        "TensorFlow": functools.partial(software.check_tensorflow, known, count),
        "CUDA libraries": functools.partial(software.check_cuda, known, count),
        "Horovod": functools.partial(software.check_horovod, known, count),
        "network": functools.partial(network.check, machine, count),
        "resources": functools.partial(resources.check, machine, count),
    }
    for subject, check in checks.items():
        found += careful(subject, check)
    return [*found, *disk.result()]


def _take(future: "Future[T]", otherwise: T, subject: str, found: list[Finding]) -> T:
    """The result of a look; if it failed, a warning is added to `found` and `otherwise` stands in."""
    error = future.exception()
    if error is None:
        return future.result()

    def fail() -> Iterable[Finding]:
        raise error

    found += careful(subject, fail)
    return otherwise


def report(found: list[Finding]) -> str:
    """The findings as lines."""
    width = max(len(finding.subject) for finding in found)
    return "\n".join(finding.line(width) for finding in found)


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m bert.doctor", description=__doc__)
    found = examine(Machine(patience=options.patience))
    print(json.dumps([dataclasses.asdict(finding) for finding in found], indent=1) if options.json else report(found))
    if errors := list(dict.fromkeys(finding.subject for finding in found if finding.level == "error")):
        raise ResourceError(f"this machine cannot train as it is: {', '.join(errors)}; the remedies stand above")


if __name__ == "__main__":
    cli.main(main)
