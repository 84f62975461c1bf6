"""Check how several machines would communicate: InfiniBand, GPUDirect, ssh."""

import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from bert.doctor.machine import Finding, Machine

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
MIN_LOCKED = 2**31  # bytes that RDMA can pin; NCCL's buffers are smaller, but add up over ranks


def check(machine: Machine, gpus: int) -> Iterator[Finding]:
    """Yield the findings about InfiniBand and ssh."""
    ports = sorted(machine.sysfs.glob("class/infiniband/*/ports/*"))
    active = [port for port in ports if _state(machine, port) == "ACTIVE"]
    yield from _ports(machine, ports, active)
    if active:
        yield _verbs(machine)
        yield from _locked(machine)
        if gpus:
            yield _gpudirect(machine)
    yield _ssh()


def _state(machine: Machine, port: Path) -> str:
    """Return `ACTIVE`, `DOWN`, ... from a text like `4: ACTIVE`."""
    return machine.read(port / "state").rpartition(":")[2].strip()


def _name(port: Path) -> str:
    return f"{port.parent.parent.name} port {port.name}"


def _ports(machine: Machine, ports: list[Path], active: list[Path]) -> Iterator[Finding]:
    if not ports:
        yield Finding("InfiniBand", "note", "none; several machines would communicate over TCP")
        return
    if active:
        ports_text = [
            f"{_name(port)} {machine.read(port / 'rate')}, {machine.read(port / 'link_layer') or 'link layer unknown'}"
            for port in active
        ]
        yield Finding("InfiniBand", "ok", "; ".join(ports_text))
    for port in ports:
        if port not in active:
            physical = machine.read(port / "phys_state").rpartition(":")[2].strip() or "unknown"
            yield Finding(
                "InfiniBand",
                "warning",
                f"{_name(port)} is {_state(machine, port) or 'unknown'}, physically {physical}",
                "check the cable and the subnet manager; until then name the adapters to use in NCCL_IB_HCA",
            )


def _verbs(machine: Machine) -> Finding:
    if any(machine.dev.glob("infiniband/uverbs*")):
        return Finding("RDMA devices", "ok", str(machine.dev / "infiniband"))
    return Finding(
        "RDMA devices",
        "warning",
        f"no {machine.dev}/infiniband/uverbs*: NCCL would use TCP",
        "start a container with --device /dev/infiniband; otherwise load the module ib_uverbs",
    )


def _locked(machine: Machine) -> Iterator[Finding]:
    limit = machine.soft_limit(resource.RLIMIT_MEMLOCK)
    if 0 <= limit < MIN_LOCKED:
        yield Finding(
            "locked memory",
            "warning",
            f"limited to {limit / 2**20:.3g} MiB: InfiniBand may fail to pin its buffers",
            "set ulimit -l unlimited (limits.conf); start a container with --ulimit memlock=-1",
        )
    else:
        yield Finding("locked memory", "ok", "unlimited" if limit < 0 else f"{limit / 2**30:.3g} GiB")


def _gpudirect(machine: Machine) -> Finding:
    loaded = [name for name in PEER_MODULES if (machine.sysfs / "module" / name).exists()]
    if loaded:
        return Finding("GPUDirect RDMA", "ok", loaded[0])
    return Finding(
        "GPUDirect RDMA",
        "note",
        "neither nvidia_peermem nor nv_peer_mem is loaded: NCCL uses dma-buf if it can, or else host memory",
        "load the module with modprobe nvidia_peermem (as administrator)",
    )


def _ssh() -> Finding:
    if shutil.which("ssh"):
        return Finding("ssh", "ok", "installed, as needed by scripts/launch.sh -H")
    return Finding(
        "ssh",
        "note",
        "not installed: scripts/launch.sh -H cannot start ranks on other machines; SLURM does not need it",
    )
