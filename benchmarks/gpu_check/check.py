"""What is found out about one program on one device, and what is wrong with it."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check import hlo, roofline
from benchmarks.gpu_check.devices import DEVICES, RESERVED
from benchmarks.gpu_check.kernels import Kernel, kernels
from benchmarks.gpu_check.programs import MICRO_BATCHES, Program

LARGEST = 12  # items of a roofline in the results
MORE = 1.05  # times the reference's bytes: what is still no growth

Row = dict[str, Any]


def row(name: str, program: Program, device: str, folder: Path) -> Row:
    """All figures of a compiled program."""
    gpu = DEVICES[device]
    stored = json.loads((folder / "memory.json").read_text())
    found = kernels(hlo.parse(gzip.decompress((folder / "optimised.hlo.gz").read_bytes()).decode()))
    loop = [kernel for kernel in found if kernel.looped]
    once = [kernel for kernel in found if not kernel.looped]
    repeated, passes = (loop, MICRO_BATCHES) if loop else (once, 1)
    seconds = roofline.total(repeated, gpu) / passes
    flops = _sum(repeated, lambda kernel: kernel.flops) / passes
    return {
        "program": name,
        "device": device,
        "sequences": program.batch,
        "memory": memory(program, stored["memory"]) | {"device": gpu.memory_bytes, "reserved": RESERVED},
        "kernels": int(_sum(repeated, lambda kernel: 1) / passes),
        "products": dict(sorted(_counted(repeated, lambda kernel: kernel.product, passes).items())),
        "custom_calls": dict(sorted(_counted(repeated, lambda kernel: kernel.target, passes).items())),
        "bytes": int(_sum(repeated, lambda kernel: kernel.bytes) / passes),
        "flops": flops,
        "milliseconds": seconds * 1e3,
        "milliseconds_once": roofline.total(once, gpu) * 1e3 if loop else 0.0,
        "sequences_per_second": program.batch / seconds,
        "share_of_peak": flops / seconds / gpu.peak[program.compute],
        "kinds": roofline.plain(roofline.items(repeated, gpu, passes, by_kind=True)),
        "largest": roofline.plain(roofline.items(repeated, gpu, passes)[:LARGEST]),
        "compile_seconds": stored["seconds"],
        "versions": stored["versions"],
    }


def memory(program: Program, compiled: dict[str, int]) -> dict[str, int]:
    """Bytes: what XLA says, what else the run holds meanwhile, and the peak of all.

    A step's program changes the gradients in place, so they are what is aliased; the optimizer's moments are twice as
    large and stay on the device. An update changes weights and both moments in place; the accumulated gradients, a
    third of that, stay beside the summed ones that it gets.
    """
    resident = {"pretrain": 2.0, "finetune": 2.0, "update": 1 / 3, "answer": 0.0}[program.kind] * compiled["aliased"]
    own = compiled["arguments"] + compiled["results"] - compiled["aliased"] + compiled["temporaries"]
    return compiled | {"resident": int(resident), "peak": int(own + resident)}


def faults(found: Row, reference: dict[str, Any] | None) -> list[str]:
    """What is wrong, a line each. reference: the figures that this program on this device had; None: it has none."""
    where, wrong = f"{found['program']} on {found['device']}", []
    used = found["memory"]
    room = used["device"] - used["reserved"]
    if used["peak"] > room:
        wrong.append(
            f"{where}: needs {used['peak'] / 2**30:.1f} GiB, and {room / 2**30:.1f} GiB are there; take fewer "
            "sequences, or recompute activations"
        )
    if reference and found["bytes"] > MORE * reference["bytes"]:
        wrong.append(
            f"{where}: moves {found['bytes'] / 1e9:.2f} GB, {found['bytes'] / reference['bytes'] - 1:.1%} more than "
            f"the reference's {reference['bytes'] / 1e9:.2f} GB; find out why, or accept it with --update true"
        )
    return wrong


def summary(found: Row) -> dict[str, Any]:
    """What the reference keeps of a row."""
    return {
        "temporaries": found["memory"]["temporaries"],
        "peak": found["memory"]["peak"],
        "kernels": found["kernels"],
        "bytes": found["bytes"],
        "milliseconds": round(found["milliseconds"], 3),
        "custom_calls": found["custom_calls"],
    }


def _sum(found: list[Kernel], value: Callable[[Kernel], float]) -> float:
    return sum(value(kernel) * kernel.times for kernel in found)


def _counted(found: list[Kernel], what: Callable[[Kernel], str], passes: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for kernel in found:
        if what(kernel):
            counts[what(kernel)] += kernel.times // passes
    return counts
