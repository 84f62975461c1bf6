"""Check CPU cores, memory, shared memory, process limits and disk."""

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bert.doctor.machine import GIB, Finding, Level, Machine, plural

CORES_PER_GPU = 4  # for the data reader, TensorFlow, Horovod and the system
MEMORY = 2 * GIB  # a small model on a CPU
MEMORY_PER_GPU = 12 * GIB  # libraries, XLA compilation, and a checkpoint of BERT-Large with its moments
SHARED_PER_GPU = GIB // 8
FILES = 4096
STACK = 8 << 20
MIN_DISK, ENOUGH_DISK = 1 * GIB, 20 * GIB  # a checkpoint of BERT-Large has 4 GB; up to four exist at a time
BLOCK = 16 << 20  # bytes per write when the disk's speed is measured
BLOCKS = 4
SLOW_DISK = 20e6  # bytes per second


def check(machine: Machine, gpus: int) -> Iterator[Finding]:
    """Yield the findings. gpus: one rank runs on each; 0 for a CPU."""
    yield _cores(machine, gpus)
    yield _memory(machine, gpus)
    yield _shared(machine, gpus)
    yield from _limits(machine)


def _cores(machine: Machine, gpus: int) -> Finding:
    usable, quota = machine.cores(), _quota(machine)
    have = min(usable, quota) if quota else usable
    summary = plural(usable, "core") + (f", limited to the time of {quota:g} by a control group" if quota else "")
    need = CORES_PER_GPU * gpus
    if have < need:
        return Finding(
            "CPU",
            "warning",
            f"{summary} for {plural(gpus, 'GPU')}, which may wait for input data",
            f"give the job at least {need} cores (--cpus, --cpus-per-task)",
        )
    return Finding("CPU", "ok", summary)


def _groups(machine: Machine, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups (version 2 or 1), from the innermost to the root."""
    for line in machine.read(machine.proc / "self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = machine.sysfs / "fs/cgroup" / (controller if controllers else "")
        inner = root / name.strip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _quota(machine: Machine) -> float | None:
    """Return the CPU limit of the control groups, in cores; None if unlimited."""
    quotas = []
    for group in _groups(machine, "cpu"):
        if fields := machine.read(group / "cpu.max").split():
            limit, period = fields[0], fields[-1]
        else:
            limit, period = machine.read(group / "cpu.cfs_quota_us"), machine.read(group / "cpu.cfs_period_us")
        if limit.isdecimal() and period.isdecimal():  # unlimited is "max" or "-1"
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def _memory(machine: Machine, gpus: int) -> Finding:
    lines = machine.read(machine.proc / "meminfo").splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
    if "MemTotal" not in sizes:
        return Finding("memory", "warning", f"unknown: {machine.proc}/meminfo has no MemTotal", "run free")
    limits = [
        int(text)
        for group in _groups(machine, "memory")
        for text in (machine.read(group / "memory.max"), machine.read(group / "memory.limit_in_bytes"))
        if text.isdecimal() and int(text) < sizes["MemTotal"]
    ]
    have = min([sizes.get("MemAvailable", sizes["MemTotal"]), *limits])
    summary = f"{have / GIB:.1f} of {sizes['MemTotal'] / GIB:.1f} GiB available"
    summary += f", limited to {min(limits) / GIB:.1f} GiB by a control group" if limits else ""
    need = max(MEMORY, MEMORY_PER_GPU * gpus)
    if have < need:
        return Finding(
            "memory",
            "warning",
            f"{summary}; {need / GIB:.0f} GiB are needed",
            "end other jobs, or give this job more (--memory, --mem)",
        )
    return Finding("memory", "ok", summary)


def _shared(machine: Machine, gpus: int) -> Finding:
    folder = machine.dev / "shm"
    if not folder.is_dir():
        level: Level = "warning" if gpus > 1 else "note"
        return Finding(
            "shared memory", level, f"no {folder}", "mount a tmpfs there; start a container with --shm-size 1g"
        )
    total, free = machine.space(folder)
    summary = f"{free / 2**20:,.0f} of {total / 2**20:,.0f} MiB free in {folder}"
    if gpus > 1 and free < SHARED_PER_GPU * gpus:
        return Finding(
            "shared memory",
            "warning",
            f"{summary}: NCCL may fail to start on {gpus} GPUs",
            "start a container with --shm-size 1g or --ipc host",
        )
    return Finding("shared memory", "ok", summary)


def _limits(machine: Machine) -> Iterator[Finding]:
    files, stack = machine.soft_limit(resource.RLIMIT_NOFILE), machine.soft_limit(resource.RLIMIT_STACK)
    if 0 <= files < FILES:
        yield Finding("open files", "warning", f"limited to {files}; {FILES} are needed", f"run ulimit -n {FILES}")
    else:
        yield Finding("open files", "ok", "unlimited" if files < 0 else f"{files:,}")
    if 0 <= stack < STACK:
        yield Finding("stack", "warning", f"limited to {stack / 2**20:.3g} MiB; compilers need 8", "run ulimit -s 8192")
    else:
        yield Finding("stack", "ok", "unlimited" if stack < 0 else f"{stack / 2**20:.3g} MiB")


def check_disk(machine: Machine) -> Iterator[Finding]:
    """Yield the findings about the disk of the working directory: free space, and write speed with a temporary file."""
    folder = machine.workdir.absolute()
    while not folder.is_dir():
        folder = folder.parent
    total, free = machine.space(folder)
    summary = f"{free / GIB:,.1f} of {total / GIB:,.1f} GiB free in {folder}"
    if not os.access(folder, os.W_OK):
        yield Finding("disk", "error", f"{folder} is not writable", "set BERT_WORKDIR to another folder")
        return
    if free < MIN_DISK:
        yield Finding("disk", "error", summary, "free some space, or set BERT_WORKDIR to another folder")
        return
    rate = _speed(folder)
    summary += f", write speed {rate / 1e6:,.0f} MB/s"
    if free < ENOUGH_DISK:
        yield Finding(
            "disk",
            "warning",
            summary,
            f"a run of BERT-Large needs {ENOUGH_DISK // GIB} GiB; free space, or set BERT_WORKDIR to another folder",
        )
    elif rate < SLOW_DISK:
        yield Finding("disk", "warning", summary, "checkpoints will be slow: set BERT_WORKDIR to a faster disk")
    else:
        yield Finding("disk", "ok", summary)


def _speed(folder: Path) -> float:
    """Measure the write speed of a disk, in bytes per second."""
    block = os.urandom(BLOCK)
    begun = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as stream:
        for _ in range(BLOCKS):
            stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return BLOCK * BLOCKS / (time.perf_counter() - begun)
