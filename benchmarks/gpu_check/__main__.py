"""Compile the project's programs for NVIDIA GPUs without a GPU, and report their memory.

    make gpu-check
    make gpu-check FLAGS="--programs large_128 large_512_fused --devices h100 b200"

Writes a table to standard output, and gpu_check.json and gpu_check.md to the output folder. Exit code 4: a program
needs more memory than the device has, cannot be compiled, or its temporaries are over 5 % larger than in
benchmarks/gpu_check/reference.json. Compiled programs are cached in the work directory.
"""

import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from benchmarks.gpu_check.devices import DEVICES, RESERVED
from benchmarks.gpu_check.programs import PROGRAMS, TINY, Program
from benchmarks.gpu_check.store import Refused, Store
from bert.core import cli, files, paths, ranges
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.ranges import Range

REFERENCE = Path(__file__).with_name("reference.json")
MORE = 1.05  # times the reference's temporaries: what is still no growth
GIB = 2**30
HEADER = """\
| program | GPU | sequences | temporaries | peak | custom calls |
|---|---|---|---|---|---|
"""

Row = dict[str, Any]


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
    output: Path | None = None
    """output folder; by default gpu_check in the work directory"""
    reference: Path = REFERENCE
    """file of the figures that temporaries are compared with"""
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
        """Whether the programs are unchanged, so that the reference describes them."""
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


def figures_of(name: str, program: Program, device: str, folder: Path) -> Row:
    """Return all figures of a compiled program."""
    stored = files.read_json(folder / "memory.json")
    room = {"device": DEVICES[device].memory_bytes, "reserved": RESERVED}
    return {
        "program": name,
        "device": device,
        "sequences": program.batch,
        "memory": memory(program, stored["memory"]) | room,
        "custom_calls": stored["custom_calls"],
        "compile_seconds": stored["seconds"],
        "versions": stored["versions"],
    }


def memory(program: Program, compiled: dict[str, int]) -> dict[str, int]:
    """Return bytes: what XLA says, what else the run holds meanwhile, and the sum at its peak.

    A step's program changes the gradients in place, so the aliased bytes are the gradients. The optimizer's moments are
    twice as large and stay on the device. An update changes weights and both moments in place. The accumulated
    gradients, a third of that, stay beside the summed gradients that the update gets.
    """
    resident = {"pretrain": 2.0, "finetune": 2.0, "update": 1 / 3, "answer": 0.0}[program.kind] * compiled["aliased"]
    own = compiled["arguments"] + compiled["results"] - compiled["aliased"] + compiled["temporaries"]
    return compiled | {"resident": int(resident), "peak": int(own + resident)}


def faults(figures: Row, reference: dict[str, Any] | None) -> list[str]:
    """Return the problems, one per line. reference: earlier figures of this program on this device, if any."""
    where, wrong, used = f"{figures['program']} on {figures['device']}", [], figures["memory"]
    room = used["device"] - used["reserved"]
    if used["peak"] > room:
        wrong.append(
            f"{where}: needs {used['peak'] / GIB:.1f} GiB, and {room / GIB:.1f} GiB are there; take fewer "
            "sequences, or recompute activations"
        )
    if reference and used["temporaries"] > MORE * reference["temporaries"]:
        wrong.append(
            f"{where}: has temporaries of {used['temporaries'] / GIB:.2f} GiB, "
            f"{used['temporaries'] / reference['temporaries'] - 1:.1%} more than the reference's "
            f"{reference['temporaries'] / GIB:.2f} GiB; find out why, or accept it with --update true"
        )
    return wrong


def summary(figures: Row) -> dict[str, int]:
    """Return the figures of a row that the reference stores."""
    return {name: figures["memory"][name] for name in ("temporaries", "peak")}


def line(row: Row) -> str:
    """Return a row of the table."""
    calls = ", ".join(f"{times} {what}" for what, times in row["custom_calls"].items()) or "none"
    sizes = [f"{row['memory'][name] / GIB:.1f} GiB" for name in ("temporaries", "peak")]
    return f"| {' | '.join([row['program'], row['device'].upper(), str(row['sequences'] or ''), *sizes, calls])} |"


def check_all(options: Options, folder: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of all programs on all devices, each printed when it is ready, and the problems."""
    store, reference = Store(folder, options.xla_flags), load_reference(options.reference)
    rows, wrong = [], []
    print(HEADER, end="")
    for name in options.programs:
        program = chosen(name, options.batch)
        for device in options.devices:
            try:
                row = figures_of(name, program, device, store.compiled(store.exported(program), device))
            except Refused as error:
                wrong.append(f"{name} on {device}: {error}")
                continue
            rows.append(row)
            print(line(row), flush=True)
            compared = options.comparable and not options.update
            wrong += faults(row, reference.get(f"{name} {device}") if compared else None)
    if options.update:
        fresh = {f"{row['program']} {row['device']}": summary(row) for row in rows}
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
    print(f"\n{len(rows)} programs in {time.perf_counter() - begun:.0f} s")
    with files.atomic_write(output / "gpu_check.md") as stream:
        stream.write(HEADER + "".join(f"{line(row)}\n" for row in rows))
    files.write_json(output / "gpu_check.json", {"rows": rows, "wrong": wrong})
    if wrong:
        for text in wrong[1:]:
            print(f"wrong: {text}", file=sys.stderr)
        more = f" ({len(wrong) - 1} more above)" if wrong[1:] else ""
        raise IntegrityError(wrong[0] + more)


if __name__ == "__main__":
    cli.main(main)
