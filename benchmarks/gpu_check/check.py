"""The figures of one program on one device, and its problems."""

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
    """Return all figures of a compiled program."""
    gpu = DEVICES[device]
    stored = json.loads((folder / "memory.json").read_text())
    launched = kernels(hlo.parse(gzip.decompress((folder / "optimised.hlo.gz").read_bytes()).decode()))
    loop = [kernel for kernel in launched if kernel.looped]
    once = [kernel for kernel in launched if not kernel.looped]
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


def faults(figures: Row, reference: dict[str, Any] | None) -> list[str]:
    """Return the problems, one per line. reference: earlier figures of this program on this device, if any."""
    where, wrong = f"{figures['program']} on {figures['device']}", []
    used = figures["memory"]
    room = used["device"] - used["reserved"]
    if used["peak"] > room:
        wrong.append(
            f"{where}: needs {used['peak'] / 2**30:.1f} GiB, and {room / 2**30:.1f} GiB are there; take fewer "
            "sequences, or recompute activations"
        )
    if reference and figures["bytes"] > MORE * reference["bytes"]:
        wrong.append(
            f"{where}: moves {figures['bytes'] / 1e9:.2f} GB, {figures['bytes'] / reference['bytes'] - 1:.1%} more "
            f"than the reference's {reference['bytes'] / 1e9:.2f} GB; find out why, or accept it with --update true"
        )
    return wrong


def summary(figures: Row) -> dict[str, Any]:
    """Return the figures of a row that the reference stores."""
    return {
        "temporaries": figures["memory"]["temporaries"],
        "peak": figures["memory"]["peak"],
        "kernels": figures["kernels"],
        "bytes": figures["bytes"],
        "milliseconds": round(figures["milliseconds"], 3),
        "custom_calls": figures["custom_calls"],
    }


def _sum(launched: list[Kernel], value: Callable[[Kernel], float]) -> float:
    return sum(value(kernel) * kernel.times for kernel in launched)


def _counted(launched: list[Kernel], what: Callable[[Kernel], str], passes: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for kernel in launched:
        if what(kernel):
            counts[what(kernel)] += kernel.times // passes
    return counts
