"""How long a program's kernels take at least on a GPU: a roofline with the share of the peaks that is reached.

A kernel takes as long as its products at 70 % of the peak of their type or its memory traffic at 85 % of the
bandwidth, whichever is longer, and 2 microseconds for its launch. Nothing overlaps, and what a kernel reads comes from
memory, not from a cache. These are assumptions, not measurements.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from benchmarks.gpu_check.devices import Device
from benchmarks.gpu_check.kernels import Kernel

OF_PEAK, OF_BANDWIDTH, LAUNCH = 0.70, 0.85, 2e-6


@dataclass(frozen=True)
class Item:
    """Kernels of one kind and result."""

    what: str
    launches: int
    milliseconds: float
    gigabytes: float
    teraflops: float


def seconds(kernel: Kernel, device: Device) -> float:
    """Of all launches of the kernel."""
    arithmetic = kernel.flops / (OF_PEAK * device.peak[kernel.factors])
    traffic = kernel.bytes / (OF_BANDWIDTH * device.bandwidth)
    return kernel.times * (max(arithmetic, traffic) + LAUNCH)


def total(kernels: Iterable[Kernel], device: Device) -> float:
    """Seconds of all kernels, one after another."""
    return sum(seconds(kernel, device) for kernel in kernels)


def items(kernels: Iterable[Kernel], device: Device, loops: int = 1, by_kind: bool = False) -> list[Item]:
    """Kernels of one kind (and, unless `by_kind`, one result) together, the longest first; of one of `loops` passes."""
    groups: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        groups[kernel.kind if by_kind else f"{kernel.kind} {kernel.result}"].append(kernel)
    listed = [
        Item(
            what,
            sum(kernel.times for kernel in group) // loops,
            total(group, device) * 1e3 / loops,
            sum(kernel.bytes * kernel.times for kernel in group) / 1e9 / loops,
            sum(kernel.flops * kernel.times for kernel in group) / 1e12 / loops,
        )
        for what, group in groups.items()
    ]
    return sorted(listed, key=lambda item: -item.milliseconds)


def plain(listed: Iterable[Item]) -> list[dict[str, str | int | float]]:
    """For JSON."""
    return [{k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(item).items()} for item in listed]
