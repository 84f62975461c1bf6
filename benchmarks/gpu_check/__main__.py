"""Compile the project's programs for NVIDIA GPUs without a GPU, and report their memory, traffic and time.

    make gpu-check
    make gpu-check FLAGS="--programs large_128 large_512_fused --devices h100 b200"

Writes a table to standard output, and gpu_check.json and gpu_check.md to the output folder. Exit code 4: a program
needs more memory than the device has, cannot be compiled, or moves over 5 % more bytes than in
benchmarks/gpu_check/reference.json. Compiled programs are cached in the work directory.
"""

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from benchmarks.gpu_check import check, report
from benchmarks.gpu_check.devices import DEVICES
from benchmarks.gpu_check.programs import PROGRAMS, TINY, Program
from benchmarks.gpu_check.store import Refused, Store
from bert.core import cli, files, paths, ranges
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.ranges import Range

REFERENCE = Path(__file__).with_name("reference.json")


@dataclass(frozen=True, kw_only=True)
class Options:
    programs: tuple[str, ...] = tuple(PROGRAMS)
    """names of the programs to compile"""
    devices: tuple[str, ...] = ("h100",)
    """GPUs to compile for: a100, h100, h200, b200"""
    batch: Annotated[int, Range(0, 65_536)] = 0
    """sequences per batch; 0: as each program defines"""
    xla_flags: str = ""
    """flags for the compiler, in the format of XLA_FLAGS"""
    details: bool = True
    """print the largest items of each program's time"""
    output: Path | None = None
    """output folder; by default gpu_check in the work directory"""
    reference: Path = REFERENCE
    """file of the figures that bytes are compared with"""
    update: bool = False
    """write the figures to the reference instead of comparing them"""

    def __post_init__(self) -> None:
        ranges.check(self)
        _check_known("programs", self.programs, PROGRAMS | TINY)
        _check_known("devices", self.devices, DEVICES)
        if self.update and not self.comparable:
            raise UsageError("--update needs the programs as defined; leave out --batch and --xla_flags")

    @property
    def comparable(self) -> bool:
        """Whether the programs are those of the reference."""
        return not (self.batch or self.xla_flags)


def _check_known(flag: str, names: tuple[str, ...], existing: dict[str, Any]) -> None:
    for name in names:
        if name not in existing:
            raise UsageError(f"--{flag} {name}: is not known; known are {', '.join(existing)}")


def load_reference(path: Path) -> dict[str, Any]:
    """Return the figures by program and device. Raises InputError if the file is not valid."""
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise InputError(f"{path}: not a reference ({error}); write it again with --update true") from error


def check_all(options: Options, folder: Path) -> tuple[list[check.Row], list[str]]:
    """Return the rows of all programs on all devices, each printed when it is ready, and the problems."""
    store, reference = Store(folder, options.xla_flags), load_reference(options.reference)
    rows, wrong = [], []
    print(report.HEADER, end="")
    for name in options.programs:
        program = chosen(name, options.batch)
        for device in options.devices:
            try:
                row = check.row(name, program, device, store.compiled(store.exported(program), device))
            except Refused as error:
                wrong.append(f"{name} on {device}: {error}")
                continue
            rows.append(row)
            print(report.line(row), flush=True)
            compared = options.comparable and not options.update
            wrong += check.faults(row, reference.get(f"{name} {device}") if compared else None)
    if options.update:
        fresh = {f"{row['program']} {row['device']}": check.summary(row) for row in rows}
        files.write_json(options.reference, reference | fresh)
    return rows, wrong


def chosen(name: str, batch: int) -> Program:
    """Return a program by name, with `batch` sequences unless it is 0."""
    program = (PROGRAMS | TINY)[name]
    if not batch or not program.batch:
        return program
    return replace(program, batch=batch, rows=program.rows * batch // program.batch)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.gpu_check", description=__doc__)
    begun = time.perf_counter()
    folder = paths.workdir() / "gpu_check"
    output = folder if options.output is None else options.output
    rows, wrong = check_all(options, folder)
    if options.details:
        print("", *(report.details(row) for row in rows), sep="\n")
    print(f"\n{report.ASSUMED}{len(rows)} programs in {time.perf_counter() - begun:.0f} s")
    table = [report.line(row) for row in rows]
    with files.atomic_write(output / "gpu_check.md") as stream:
        stream.write(report.HEADER + "".join(f"{text}\n" for text in table) + f"\n{report.ASSUMED}")
    files.write_json(output / "gpu_check.json", {"rows": rows, "wrong": wrong})
    if wrong:
        for text in wrong[1:]:
            print(f"wrong: {text}", file=sys.stderr)
        more = f" ({len(wrong) - 1} more above)" if wrong[1:] else ""
        raise IntegrityError(wrong[0] + more)


if __name__ == "__main__":
    cli.main(main)
