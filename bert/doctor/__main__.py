"""Check whether this machine can train BERT: driver, GPUs, CUDA, TensorFlow, Horovod, network, limits, disk.

    python -m bert.doctor [--json] [--patience SECONDS]

Prints one line per finding: its level (ok, note, warning or error), what was found, and the remedy. --json prints a
list of objects instead. Exit code 0: training is possible (on the CPU, if there is no GPU). Exit code 5: something
required is missing. Nothing is computed on a GPU, so running jobs are not disturbed.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, TypeVar

from bert.core import cli, ranges
from bert.core.errors import ResourceError
from bert.core.ranges import Range
from bert.doctor import gpus, network, resources, software
from bert.doctor.gpus import GpuInfo
from bert.doctor.machine import Finding, Machine, guarded
from bert.doctor.software import SoftwareInfo

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.doctor`."""

    json: cli.Switch = False
    """print a JSON list of objects instead of lines"""
    patience: Annotated[float, Range(0.001, 1e6)] = 30.0
    """time limit for importing TensorFlow and Horovod, in seconds; raise it on a slow network disk"""

    def __post_init__(self) -> None:
        ranges.check(self)


def examine(machine: Machine) -> list[Finding]:
    """Return all findings. Slow checks run in parallel."""
    findings: list[Finding] = []
    with ThreadPoolExecutor() as pool:
        gpu_query = pool.submit(gpus.collect, machine)
        libraries, frameworks = (pool.submit(software.run_probe, machine, mode) for mode in ("libraries", "frameworks"))
        disk = pool.submit(lambda: list(guarded("disk", lambda: resources.check_disk(machine))))
    gpu_info = _result_or_default(gpu_query, GpuInfo(), "GPUs", findings)
    parts = [_result_or_default(part, SoftwareInfo(), "TensorFlow", findings) for part in (libraries, frameworks)]
    problem = next((part.problem for part in parts if part.problem), "")
    software_info = SoftwareInfo(parts[0].report | parts[1].report, problem)
    count = gpu_info.count
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "GPUs": functools.partial(
            gpus.check, gpu_info, software_info.cuda, software_info.architectures, software_info.ptxas
        ),
        "Python": functools.partial(software.check_python, machine),
        "TensorFlow": functools.partial(software.check_tensorflow, software_info, count),
        "CUDA libraries": functools.partial(software.check_cuda, software_info, count),
        "Horovod": functools.partial(software.check_horovod, software_info, gpu_info),
        "network": functools.partial(network.check, machine, count),
        "resources": functools.partial(resources.check, machine, count),
    }
    for subject, check in checks.items():
        findings += guarded(subject, check)
    return [*findings, *disk.result()]


def _result_or_default(future: "Future[T]", default: T, subject: str, findings: list[Finding]) -> T:
    """Return the result of a query; if it failed, add a warning to `findings` and return `default`."""
    error = future.exception()
    if error is None:
        return future.result()

    def fail() -> Iterable[Finding]:
        raise error

    findings += guarded(subject, fail)
    return default


def report(findings: list[Finding]) -> str:
    """Return the findings as lines of text."""
    width = max(len(finding.subject) for finding in findings)
    return "\n".join(finding.line(width) for finding in findings)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.doctor", description=__doc__)
    findings = examine(Machine(patience=options.patience))
    listed = [dataclasses.asdict(finding) for finding in findings]
    print(json.dumps(listed, indent=1) if options.json else report(findings))
    if errors := list(dict.fromkeys(finding.subject for finding in findings if finding.level == "error")):
        raise ResourceError(f"this machine is not ready for training: {', '.join(errors)}; see the remedies above")


if __name__ == "__main__":
    cli.main(main)
