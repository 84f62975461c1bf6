"""The driver and the GPUs, asked through files and nvidia-smi; nothing is run on a GPU."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bert.doctor.machine import Finding, Level, Machine, numbered
from bert.hardware import nvidia

# The oldest drivers for each CUDA (NVIDIA, "CUDA Compatibility", minor version compatibility).
DRIVERS = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
NVIDIA = "0x10de"  # the maker's number on the PCI bus; 0x03.... is a display or 3D controller
ROW = ("index", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu")
MORE = (  # asked group by group: a driver that does not know one field answers nothing at all
    ("compute_cap", "mig.mode.current", "persistence_mode", "compute_mode"),
    ("ecc.errors.uncorrected.volatile.total",),
    ("clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active"),
)
THROTTLED = {  # bits of clocks_throttle_reasons.active that are no normal state
    0x08: "hardware slowdown",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
BUSY_MIB = 1024  # memory in use that is more than an idle GPU has

Row = dict[str, str]


@dataclass(frozen=True)
class Graphics:
    """What is known of the GPUs."""

    present: list[str] = field(default_factory=list)
    """device files, or lines of nvidia-smi"""
    on_bus: int = 0
    """NVIDIA's controllers on the PCI bus"""
    driver: str = ""
    """version; empty if unknown"""
    rows: list[Row] = field(default_factory=list)
    """fields of nvidia-smi for each GPU"""
    trouble: str = ""
    """why there are no rows"""

    @property
    def count(self) -> int:
        """GPUs of this machine."""
        return len(self.present)


def look(machine: Machine) -> Graphics:
    """Collects it."""
    present = nvidia.gpus_in_machine(machine.dev)
    version = machine.read(machine.proc / "driver/nvidia/version")
    driver = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", version)
    rows, trouble = _rows()
    named = driver.group(1) if driver else next((row["driver_version"] for row in rows), "")
    return Graphics(present, _on_bus(machine), named, rows, trouble)


def _on_bus(machine: Machine) -> int:
    devices = machine.sysfs / "bus/pci/devices"
    found = [folder for folder in devices.glob("*") if machine.read(folder / "vendor") == NVIDIA]
    return sum(machine.read(folder / "class").startswith("0x03") for folder in found)


def _rows() -> tuple[list[Row], str]:
    """Fields of each GPU, or none and why."""
    try:
        rows = _query(ROW)
    except nvidia.CommandError as error:
        return [], str(error)
    for group in MORE if rows else ():
        try:
            rows = [row | more for row, more in zip(rows, _query(group), strict=True)]
        except (nvidia.CommandError, ValueError):  # an older driver, or another answer than was asked for
            continue
    return rows, "" if rows else "nvidia-smi printed no list of GPUs"


def _query(names: Sequence[str]) -> list[Row]:
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    lines = nvidia.ask(command, nvidia.NVIDIA_SMI_SECONDS).splitlines()
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    return [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]


def check(graphics: Graphics, cuda: str, architectures: Sequence[str]) -> Iterator[Finding]:
    """cuda, architectures: what TensorFlow was built for; empty if that is not known."""
    if not graphics.present:
        yield _absent(graphics)
        return
    yield from _driver(graphics, cuda)
    if graphics.trouble:
        missing = "No such file" in graphics.trouble
        broken = "look for Xid in dmesg; reload the driver or restart the machine"
        hidden = "in a container, start it with --gpus all, or NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        level: Level = "warning" if missing else "error"
        yield Finding("nvidia-smi", level, graphics.trouble, hidden if missing else broken)
        return
    yield _models(graphics)
    for row in graphics.rows:
        yield from _health(row, architectures)


def _absent(graphics: Graphics) -> Finding:
    if graphics.on_bus:
        return Finding(
            "GPUs",
            "warning",
            f"{graphics.on_bus} on the PCI bus, but no driver shows them",
            "install NVIDIA's driver; in a container, start it with --gpus all",
        )
    return Finding("GPUs", "note", "none; training runs on the CPU")


def _driver(graphics: Graphics, cuda: str) -> Iterator[Finding]:
    if not graphics.driver:
        yield Finding("driver", "warning", "its version is not known", "run nvidia-smi")
        return
    have = tuple(int(part) for part in re.findall(r"\d+", graphics.driver))
    need = DRIVERS.get(int(cuda.split(".")[0])) if cuda else None
    if need and have < need:
        text = ".".join(map(str, need))
        yield Finding(
            "driver",
            "error",
            f"{graphics.driver}, too old for CUDA {cuda}, which TensorFlow was built with",
            f"install driver {text} or newer",
        )
    else:
        yield Finding("driver", "ok", graphics.driver + (f", fit for CUDA {cuda}" if need else ""))


def _models(graphics: Graphics) -> Finding:
    kinds = Counter(
        f"{row['name']}, {_number(row['memory.total']) / 1024:.0f} GiB"
        + (f", compute capability {row['compute_cap']}" if "compute_cap" in row else "")
        for row in graphics.rows
    )
    said = "; ".join(f"{count} x {kind}" for kind, count in kinds.items())
    if len(graphics.rows) != graphics.count:
        return Finding(
            "GPUs",
            "warning",
            f"{said}; but {numbered(graphics.count, 'device file')} in the machine",
            "a GPU may have fallen off the bus: look for Xid in dmesg",
        )
    if len(kinds) > 1:
        return Finding("GPUs", "warning", said, "the slowest sets the speed: choose like ones by CUDA_VISIBLE_DEVICES")
    return Finding("GPUs", "ok", said)


def _health(row: Row, architectures: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with one GPU."""
    subject = f"GPU {row['index']}"
    yield from _capability(subject, row.get("compute_cap", ""), architectures)
    if row.get("mig.mode.current") == "Enabled":
        yield Finding(
            subject,
            "warning",
            "MIG is on: a process sees one slice, and NCCL joins no slices",
            "for training on whole GPUs: nvidia-smi -mig 0 (by the administrator)",
        )
    if row.get("compute_mode") == "Prohibited":
        yield Finding(subject, "error", "compute mode is Prohibited", "nvidia-smi -c DEFAULT (by the administrator)")
    if row.get("persistence_mode") == "Disabled":
        yield Finding(
            subject,
            "warning",
            "persistence mode is off: every start loads the driver anew, which takes seconds",
            "nvidia-smi -pm 1, or run nvidia-persistenced",
        )
    if _number(row.get("ecc.errors.uncorrected.volatile.total", "0")) > 0:
        count = row["ecc.errors.uncorrected.volatile.total"]
        yield Finding(
            subject,
            "error",
            f"{count} memory errors that ECC could not correct since the driver was loaded",
            "take it out of service (CUDA_VISIBLE_DEVICES) until it was reset and tested",
        )
    if reasons := _throttled(row):
        clocks = f", {row['clocks.sm']} of {row['clocks.max.sm']} MHz"
        yield Finding(subject, "warning", f"its clock is held down by {reasons}{clocks}", "look at cooling and power")
    used, busy = _number(row["memory.used"]), _number(row["utilization.gpu"])
    if used > BUSY_MIB:
        yield Finding(
            subject,
            "warning",
            f"in use by another job: {used:,.0f} MiB taken, {busy:.0f} % busy",
            "wait for it, or choose another by CUDA_VISIBLE_DEVICES",
        )


def _capability(subject: str, capability: str, architectures: Sequence[str]) -> Iterator[Finding]:
    if not capability or not architectures:
        return
    have = _pair(capability)
    built = [_pair(f"{name.split('_')[1][:-1]}.{name[-1]}") for name in architectures]
    if have < min(built):
        low = "{}.{}".format(*min(built))
        yield Finding(
            subject,
            "error",
            f"compute capability {capability}; this TensorFlow needs {low} or more",
            "use a newer GPU, or hide this one by CUDA_VISIBLE_DEVICES",
        )
    elif have[0] > max(built)[0]:
        yield Finding(
            subject,
            "note",
            f"compute capability {capability} is newer than this TensorFlow: the driver "
            "compiles its kernels at the first start, which may take minutes",
        )
    elif have < (8, 0):
        yield Finding(subject, "note", f"compute capability {capability} has no bfloat16: float16 is used")


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _throttled(row: Row) -> str:
    try:
        bits = int(row.get("clocks_throttle_reasons.active", "0"), 16)
    except ValueError:  # [N/A]
        return ""
    return ", ".join(reason for bit, reason in THROTTLED.items() if bits & bit)


def _number(text: str) -> float:
    """A field as a number; fields that a GPU does not have, [N/A], are 0."""
    try:
        return float(text)
    except ValueError:
        return 0.0
