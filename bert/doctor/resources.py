"""What TensorFlow stands on: cores, memory, shared memory, limits of a process, disk."""

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bert.doctor.machine import GIB, Finding, Level, Machine, numbered

CORES_PER_GPU = 4  # the reader's thread, TensorFlow's, Horovod's, and one for the system
MEMORY = 2 * GIB  # for a small model on a CPU
MEMORY_PER_GPU = 12 * GIB  # libraries, XLA's compiling, and BERT-Large with its moments on its way to a checkpoint
SHARED_PER_GPU = GIB // 8
FILES = 4096
STACK = 8 << 20
ROOM, LITTLE = 1 * GIB, 20 * GIB  # checkpoints of BERT-Large: 4 GB each, four at most at a time
BLOCK = 16 << 20  # bytes written to see how fast the disk is
BLOCKS = 4
SLOW = 20e6  # bytes a second


def check(machine: Machine, gpus: int) -> Iterator[Finding]:
    """gpus: those that ranks will be started for; 0 for a CPU."""
    yield _cores(machine, gpus)
    yield _memory(machine, gpus)
    yield _shared(machine, gpus)
    yield from _limits(machine)


def _cores(machine: Machine, gpus: int) -> Finding:
    usable, quota = machine.cores(), _quota(machine)
    have = min(usable, quota) if quota else usable
    said = numbered(usable, "core") + (f", limited to the time of {quota:g} by a control group" if quota else "")
    need = CORES_PER_GPU * gpus
    if have < need:
        return Finding(
            "CPU",
            "warning",
            f"{said} for {numbered(gpus, 'GPU')}: they may wait for samples",
            f"give the job {need} cores or more (--cpus, --cpus-per-task)",
        )
    return Finding("CPU", "ok", said)


def _groups(machine: Machine, controller: str) -> Iterator[Path]:
    """Folders of this process's control groups, from the innermost to the root; version 2, then version 1."""
    for line in machine.read(machine.proc / "self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = machine.sysfs / "fs/cgroup" / (controller if controllers else "")
        inner = root / name.strip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _quota(machine: Machine) -> float | None:
    """Cores whose time a control group allows; None if it does not limit."""
    found = []
    for group in _groups(machine, "cpu"):
        if two := machine.read(group / "cpu.max").split():
            limit, period = two[0], two[-1]
        else:
            limit, period = machine.read(group / "cpu.cfs_quota_us"), machine.read(group / "cpu.cfs_period_us")
        if limit.isdecimal() and period.isdecimal():  # else max, or -1
            found.append(int(limit) / int(period))
    return min(found, default=None)


def _memory(machine: Machine, gpus: int) -> Finding:
    lines = machine.read(machine.proc / "meminfo").splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
    if "MemTotal" not in sizes:
        return Finding("memory", "warning", f"{machine.proc}/meminfo does not say how much there is", "run free")
    limits = [
        int(text)
        for group in _groups(machine, "memory")
        for text in (machine.read(group / "memory.max"), machine.read(group / "memory.limit_in_bytes"))
        if text.isdecimal() and int(text) < sizes["MemTotal"]
    ]
    have = min([sizes.get("MemAvailable", sizes["MemTotal"]), *limits])
    said = f"{have / GIB:.1f} GiB to be had of {sizes['MemTotal'] / GIB:.1f}"
    said += f", limited to {min(limits) / GIB:.1f} by a control group" if limits else ""
    need = max(MEMORY, MEMORY_PER_GPU * gpus)
    if have < need:
        return Finding(
            "memory",
            "warning",
            f"{said}; {need / GIB:.0f} are wanted",
            "end other jobs, or give this one more (--memory, --mem)",
        )
    return Finding("memory", "ok", said)


def _shared(machine: Machine, gpus: int) -> Finding:
    folder = machine.dev / "shm"
    if not folder.is_dir():
        level: Level = "warning" if gpus > 1 else "note"
        return Finding("shared memory", level, f"no {folder}", "mount a tmpfs there; in a container, --shm-size 1g")
    total, free = machine.space(folder)
    said = f"{free / 2**20:,.0f} of {total / 2**20:,.0f} MiB free in {folder}"
    if gpus > 1 and free < SHARED_PER_GPU * gpus:
        return Finding(
            "shared memory",
            "warning",
            f"{said}: NCCL may fail to start on {gpus} GPUs",
            "in a container, --shm-size 1g or --ipc host",
        )
    return Finding("shared memory", "ok", said)


def _limits(machine: Machine) -> Iterator[Finding]:
    files, stack = machine.soft_limit(resource.RLIMIT_NOFILE), machine.soft_limit(resource.RLIMIT_STACK)
    if 0 <= files < FILES:
        yield Finding("open files", "warning", f"limited to {files}; {FILES} are wanted", f"ulimit -n {FILES}")
    else:
        yield Finding("open files", "ok", "unlimited" if files < 0 else f"{files:,}")
    if 0 <= stack < STACK:
        yield Finding("stack", "warning", f"limited to {stack / 2**20:.3g} MiB; compilers want 8", "ulimit -s 8192")
    else:
        yield Finding("stack", "ok", "unlimited" if stack < 0 else f"{stack / 2**20:.3g} MiB")


def check_disk(machine: Machine) -> Iterator[Finding]:
    """Room and speed where everything generated goes; what is written to see that is removed."""
    folder = machine.workdir.absolute()
    while not folder.is_dir():
        folder = folder.parent
    total, free = machine.space(folder)
    said = f"{free / GIB:,.1f} of {total / GIB:,.1f} GiB free in {folder}"
    if not os.access(folder, os.W_OK):
        yield Finding("disk", "error", f"{folder} cannot be written to", "set BERT_WORKDIR to another folder")
        return
    if free < ROOM:
        yield Finding("disk", "error", said, "make room, or set BERT_WORKDIR to another folder")
        return
    rate = _speed(folder)
    said += f", {rate / 1e6:,.0f} MB/s written"
    if free < LITTLE:
        yield Finding(
            "disk",
            "warning",
            said,
            f"checkpoints of BERT-Large want {LITTLE // GIB} GiB: make room, or set BERT_WORKDIR",
        )
    elif rate < SLOW:
        yield Finding("disk", "warning", said, "checkpoints will take long: set BERT_WORKDIR to a faster disk")
    else:
        yield Finding("disk", "ok", said)


def _speed(folder: Path) -> float:
    """Bytes a second that reach the disk."""
    block = os.urandom(BLOCK)
    begun = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as stream:
        for _ in range(BLOCKS):
            stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return BLOCK * BLOCKS / (time.perf_counter() - begun)
