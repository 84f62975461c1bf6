"""How several machines would reach each other: InfiniBand, GPUDirect, ssh."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from bert.doctor.machine import Finding, Machine

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
LOCKED = 2**31  # bytes that RDMA is to be able to pin; NCCL's buffers are smaller, but add up over ranks


def check(machine: Machine, gpus: int) -> Iterator[Finding]:
    """InfiniBand with what belongs to it, and the way to start ranks elsewhere."""
    ports = sorted(machine.sysfs.glob("class/infiniband/*/ports/*"))
    active = [port for port in ports if _state(machine, port) == "ACTIVE"]
    yield from _ports(machine, ports, active)
    if active:
        yield _verbs(machine)
        yield from _locked(machine)
        if gpus:
            yield _direct(machine)
    yield _ssh()


def _state(machine: Machine, port: Path) -> str:
    """`ACTIVE`, `DOWN` ... of `4: ACTIVE`."""
    return machine.read(port / "state").rpartition(":")[2].strip()


def _name(port: Path) -> str:
    return f"{port.parent.parent.name} port {port.name}"


def _ports(machine: Machine, ports: list[Path], active: list[Path]) -> Iterator[Finding]:
    if not ports:
        yield Finding("InfiniBand", "note", "none; several machines would use TCP")
        return
    if active:
        said = [
            f"{_name(port)} {machine.read(port / 'rate')}, {machine.read(port / 'link_layer') or 'link layer unknown'}"
            for port in active
        ]
        yield Finding("InfiniBand", "ok", "; ".join(said))
    for port in ports:
        if port not in active:
            physical = machine.read(port / "phys_state").rpartition(":")[2].strip() or "unknown"
            yield Finding(
                "InfiniBand",
                "warning",
                f"{_name(port)} is {_state(machine, port) or 'unknown'}, physically {physical}",
                "look at the cable and the subnet manager; until then NCCL_IB_HCA names the adapters to use",
            )


def _verbs(machine: Machine) -> Finding:
    if any(machine.dev.glob("infiniband/uverbs*")):
        return Finding("RDMA devices", "ok", str(machine.dev / "infiniband"))
    return Finding(
        "RDMA devices",
        "warning",
        f"no {machine.dev}/infiniband/uverbs*: NCCL would use TCP",
        "in a container, give --device /dev/infiniband; else load ib_uverbs",
    )


def _locked(machine: Machine) -> Iterator[Finding]:
    limit = machine.soft_limit(resource.RLIMIT_MEMLOCK)
    if 0 <= limit < LOCKED:
        yield Finding(
            "locked memory",
            "warning",
            f"limited to {limit / 2**20:.3g} MiB: InfiniBand cannot pin its buffers",
            "ulimit -l unlimited (limits.conf); in a container, --ulimit memlock=-1",
        )
    else:
        said = "unlimited" if limit < 0 else f"{limit / 2**30:.3g} GiB"
        yield Finding("locked memory", "ok", said)


def _direct(machine: Machine) -> Finding:
    loaded = [name for name in PEER_MODULES if (machine.sysfs / "module" / name).exists()]
    if loaded:
        return Finding("GPUDirect RDMA", "ok", loaded[0])
    return Finding(
        "GPUDirect RDMA",
        "note",
        "neither nvidia_peermem nor nv_peer_mem is loaded; NCCL may still use "
        "dma-buf, else data goes through host memory (modprobe nvidia_peermem)",
    )


def _ssh() -> Finding:
    if shutil.which("ssh"):
        return Finding("ssh", "ok", "there, as scripts/launch.sh -H needs it")
    return Finding(
        "ssh",
        "note",
        "none: scripts/launch.sh -H cannot start ranks on other machines; SLURM and mpirun have their own ways",
    )
