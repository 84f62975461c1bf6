"""Check the driver and the GPUs through files and nvidia-smi; nothing runs on a GPU."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bert.doctor.machine import Finding, Level, Machine, plural
from bert.hardware import nvidia

# CUDA major version -> oldest driver (NVIDIA, "CUDA Compatibility", minor version compatibility).
OLDEST_DRIVERS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
# Compute capability -> first CUDA whose PTX knows it (NVIDIA, "PTX ISA", release history). XLA writes PTX of the CUDA
# that TensorFlow was built with, and LLVM refuses a GPU that is not in it, whatever ptxas is there.
FIRST_CUDA = {(9, 0): (11, 8), (10, 0): (12, 8), (10, 3): (12, 9), (11, 0): (13, 0), (12, 0): (12, 8), (12, 1): (12, 9)}
NEWEST_CUDA = (13, 0)  # for a GPU that is not in this table
OWN_TENSORFLOW = (
    "use a TensorFlow that was built for it, such as that of NVIDIA's container 25.02 (docs/containers.md), or a GPU "
    "from Ampere to Hopper"
)
PCI_VENDOR = "0x10de"  # NVIDIA
FIELDS = ("index", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu")
OPTIONAL_FIELDS = (  # queried in groups: an unknown field makes the whole query fail
    ("compute_cap", "mig.mode.current", "persistence_mode", "compute_mode"),
    ("ecc.errors.uncorrected.volatile.total",),
    ("clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active"),
)
THROTTLE_REASONS = {  # bits of clocks_throttle_reasons.active that mean a problem
    0x08: "hardware slowdown",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
}
BUSY_MIB = 1024  # more memory in use than on an idle GPU

Row = dict[str, str]


@dataclass(frozen=True)
class GpuInfo:
    """What is known of the GPUs and the driver."""

    present: list[str] = field(default_factory=list)
    """device files, or lines of nvidia-smi -L"""
    on_bus: int = 0
    """NVIDIA display and 3D controllers on the PCI bus"""
    driver: str = ""
    """version; empty if unknown"""
    rows: list[Row] = field(default_factory=list)
    """fields of nvidia-smi, one row per GPU"""
    slices: dict[str, list[str]] = field(default_factory=dict)
    """by index of a GPU: the profiles of its MIG slices, such as `1g.10gb`"""
    problem: str = ""
    """why nvidia-smi gave no rows"""

    @property
    def count(self) -> int:
        """Number of GPUs in this machine."""
        return len(self.present)


def collect(machine: Machine) -> GpuInfo:
    """Ask the driver."""
    present = nvidia.gpus_in_machine(machine.dev)
    version = machine.read(machine.proc / "driver/nvidia/version")
    driver = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", version)
    rows, problem = _rows()
    driver_version = driver.group(1) if driver else next((row["driver_version"] for row in rows), "")
    divided = any(row.get("mig.mode.current") == "Enabled" for row in rows)
    slices = slices_of(nvidia.nvidia_smi("-L")) if divided else {}
    return GpuInfo(present, _on_bus(machine), driver_version, rows, slices, problem)


def slices_of(listed: str) -> dict[str, list[str]]:
    """Return the profiles of the MIG slices of each GPU by its index, from what `nvidia-smi -L` prints.

    A slice has an indented line below its GPU: `  MIG 1g.10gb     Device  0: (UUID: MIG-...)`.
    """
    slices: dict[str, list[str]] = {}
    index = ""
    for line in listed.splitlines():
        if gpu := re.match(r"GPU (\d+):", line):
            index = gpu[1]
        elif profile := re.match(r"\s+MIG (\S+)\s+Device\s+\d+:", line):
            slices.setdefault(index, []).append(profile[1])
    return slices


def _on_bus(machine: Machine) -> int:
    devices = machine.sysfs / "bus/pci/devices"
    folders = [folder for folder in devices.glob("*") if machine.read(folder / "vendor") == PCI_VENDOR]
    return sum(machine.read(folder / "class").startswith("0x03") for folder in folders)  # display or 3D controller


def _rows() -> tuple[list[Row], str]:
    """Return the fields of each GPU, or no rows and the reason."""
    try:
        rows = _query(FIELDS)
    except nvidia.CommandError as error:
        return [], str(error)
    for group in OPTIONAL_FIELDS if rows else ():
        try:
            rows = [row | more for row, more in zip(rows, _query(group), strict=True)]
        except (nvidia.CommandError, ValueError):  # an older driver, or another number of rows
            continue
    return rows, "" if rows else "nvidia-smi printed no list of GPUs"


def _query(names: Sequence[str]) -> list[Row]:
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    lines = nvidia.run_command(command, nvidia.NVIDIA_SMI_SECONDS).splitlines()
    cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    return [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]


def check(gpu_info: GpuInfo, cuda: str, architectures: Sequence[str], ptxas: str = "") -> Iterator[Finding]:
    """Yield the findings. cuda, architectures: what TensorFlow was built for; ptxas: XLA's. All empty if unknown."""
    if not gpu_info.present:
        yield _absent(gpu_info)
        return
    yield from _driver(gpu_info, cuda)
    if gpu_info.problem:
        missing = "No such file" in gpu_info.problem
        broken = "look for Xid errors in dmesg; reload the driver or restart the machine"
        hidden = "start a container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        level: Level = "warning" if missing else "error"
        yield Finding("nvidia-smi", level, gpu_info.problem, hidden if missing else broken)
        return
    yield _models(gpu_info)
    for row in gpu_info.rows:
        yield from _capability(row, cuda, architectures, ptxas)
        if row.get("mig.mode.current") == "Enabled":
            yield _divided(row, gpu_info.slices.get(row["index"], []))
        yield from _health(row)


def _absent(gpu_info: GpuInfo) -> Finding:
    if gpu_info.on_bus:
        return Finding(
            "GPUs",
            "warning",
            f"{gpu_info.on_bus} on the PCI bus, but no driver is loaded for them",
            "install the NVIDIA driver; start a container with --gpus all",
        )
    return Finding("GPUs", "note", "none; training runs on the CPU")


def _driver(gpu_info: GpuInfo, cuda: str) -> Iterator[Finding]:
    if not gpu_info.driver:
        yield Finding("driver", "warning", "unknown version", "run nvidia-smi")
        return
    if need := missing_driver(gpu_info.driver, cuda):
        yield Finding(
            "driver",
            "error",
            f"{gpu_info.driver} is too old for CUDA {cuda}, which TensorFlow was built with",
            f"install driver {need} or newer",
        )
    else:
        yield Finding(
            "driver",
            "ok",
            gpu_info.driver + (f", supports CUDA {cuda}" if cuda.split(".")[0] in OLDEST_DRIVERS else ""),
        )


def missing_driver(driver: str, cuda: str) -> str:
    """Return the oldest driver that a version of CUDA needs, if this one is older; empty if not, or unknown."""
    need = OLDEST_DRIVERS.get(cuda.split(".")[0], "")
    have, least = ([int(part) for part in re.findall(r"\d+", version)] for version in (driver, need))
    return need if have < least else ""


def _models(gpu_info: GpuInfo) -> Finding:
    kinds = Counter(
        f"{row['name']}, {_number(row['memory.total']) / 1024:.0f} GiB"
        + (f", compute capability {row['compute_cap']}" if "compute_cap" in row else "")
        for row in gpu_info.rows
    )
    summary = "; ".join(f"{count} x {kind}" for kind, count in kinds.items())
    if len(gpu_info.rows) != gpu_info.count:
        return Finding(
            "GPUs",
            "warning",
            f"nvidia-smi lists {summary}; the machine has {plural(gpu_info.count, 'device file')}",
            "a GPU may have failed: look for Xid errors in dmesg",
        )
    if len(kinds) > 1:
        return Finding(
            "GPUs", "warning", summary, "the slowest GPU sets the speed; select equal ones by CUDA_VISIBLE_DEVICES"
        )
    return Finding("GPUs", "ok", summary)


def _divided(row: Row, slices: Sequence[str]) -> Finding:
    """Return the finding about a GPU that MIG divides."""
    subject, whole = f"GPU {row['index']}", "to train on whole GPUs, run nvidia-smi -mig 0 (as administrator)"
    if not slices:
        message = "MIG is enabled and there are no slices, so no process can use it"
        return Finding(subject, "error", message, f"make some with nvidia-smi mig -cgi PROFILE -C; {whole}")
    listed = ", ".join(f"{count} x {profile}" for profile, count in Counter(slices).items())
    return Finding(
        subject,
        "warning",
        f"MIG is enabled ({listed}): a process sees one slice and its memory, and NCCL cannot connect slices",
        whole,
    )


def _health(row: Row) -> Iterator[Finding]:
    """Yield the problems of one GPU."""
    subject = f"GPU {row['index']}"
    if row.get("compute_mode") == "Prohibited":
        yield Finding(subject, "error", "compute mode is Prohibited", "run nvidia-smi -c DEFAULT (as administrator)")
    if row.get("persistence_mode") == "Disabled":
        yield Finding(
            subject,
            "warning",
            "persistence mode is off: every process start loads the driver again, which takes seconds",
            "run nvidia-smi -pm 1 or nvidia-persistenced",
        )
    if _number(row.get("ecc.errors.uncorrected.volatile.total", "0")) > 0:
        count = row["ecc.errors.uncorrected.volatile.total"]
        yield Finding(
            subject,
            "error",
            f"{count} uncorrectable memory errors since the driver was loaded",
            "exclude it by CUDA_VISIBLE_DEVICES until it has been reset and tested",
        )
    if reasons := _throttled(row):
        clocks = f", {row['clocks.sm']} of {row['clocks.max.sm']} MHz"
        yield Finding(subject, "warning", f"clock throttled: {reasons}{clocks}", "check cooling and power")
    used, busy = _number(row["memory.used"]), _number(row["utilization.gpu"])
    if used > BUSY_MIB:
        yield Finding(
            subject,
            "warning",
            f"in use by another job: {used:,.0f} MiB used, {busy:.0f} % busy",
            "wait for that job, or select another GPU by CUDA_VISIBLE_DEVICES",
        )


def _capability(row: Row, cuda: str, architectures: Sequence[str], ptxas: str) -> Iterator[Finding]:
    """Yield the findings about whether this TensorFlow has code for the architecture of a GPU."""
    subject, capability = f"GPU {row['index']}", row.get("compute_cap", "")
    if not capability or not architectures:
        return
    have = _pair(capability)
    numbers = [re.sub(r"\D", "", name) for name in architectures]  # sm_90a, compute_120
    built = [(int(number[:-1]), int(number[-1])) for number in numbers]
    if have < min(built):
        low = "{}.{}".format(*min(built))
        yield Finding(
            subject,
            "error",
            f"compute capability {capability}; this TensorFlow needs {low} or higher",
            "use a newer GPU, or exclude this one by CUDA_VISIBLE_DEVICES",
        )
    elif have[0] > max(built)[0] and _pair(cuda) < (need := FIRST_CUDA.get(have, NEWEST_CUDA)):
        low = "{}.{}".format(*need)
        yield Finding(
            subject,
            "error",
            f"compute capability {capability} needs CUDA {low}; this TensorFlow was built with {cuda}, so XLA cannot "
            f"compile for it, and TensorFlow's own kernels may fail too (ptxas: {ptxas or 'not found'}; another one "
            "does not help)",
            OWN_TENSORFLOW,
        )
    elif have[0] > max(built)[0]:
        yield Finding(
            subject,
            "note",
            f"compute capability {capability} is newer than this TensorFlow: the driver compiles its kernels at the "
            "first start, which may take minutes",
        )
    elif have < (8, 0):
        yield Finding(subject, "note", f"compute capability {capability} has no bfloat16; float16 is used")


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _throttled(row: Row) -> str:
    try:
        bits = int(row.get("clocks_throttle_reasons.active", "0"), 16)
    except ValueError:  # [N/A]
        return ""
    return ", ".join(reason for bit, reason in THROTTLE_REASONS.items() if bits & bit)


def _number(text: str) -> float:
    """Return a field as a number; 0 for a field that the GPU does not have ([N/A])."""
    try:
        return float(text)
    except ValueError:
        return 0.0
