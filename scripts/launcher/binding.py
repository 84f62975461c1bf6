"""One rank on its share of the cores beside its GPU, with the InfiniBand adapters there named to NCCL.

The GPU is the one that bert.hardware.devices chooses. Ranks whose GPUs are attached to the same NUMA node share its
cores; without GPUs the ranks are distributed over the nodes in order. Binding never fails a run: where something cannot
be found out, local rank 0 says what, and the ranks run unbound.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import command_line
import processes
import settings

SCRIPT = "launcher.sh"


class Unbound(Exception):
    """Why a rank cannot be bound."""


class Place(NamedTuple):
    """A rank of this host."""

    rank: int
    ranks: int

    @classmethod
    def of_this_process(cls) -> "Place":
        rank = settings.first_set("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", default="0")
        ranks = settings.first_set("HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", default="")
        of_nodes = settings.tasks_per_node(ranks or os.environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        node = 0 if ranks else int(os.environ.get("SLURM_NODEID", "0"))
        return cls(int(rank), of_nodes[node])


def main(words: Sequence[str]) -> NoReturn:
    """Run `[--dry-run] COMMAND...` bound."""
    options = command_line.parse(SCRIPT, (), words)
    place = Place.of_this_process()
    try:
        command = [*bind(place), *options.command]
    except Unbound as error:
        if place.rank == 0:
            print(f"warning: --bind: {error} ; the ranks run unbound", file=sys.stderr)
        settings.limit_threads(settings.cores_per_rank(place.ranks))
        command = options.command
    if options.dry_run:
        command_line.show(command)
        sys.exit()
    processes.replace(command)


def bind(place: Place) -> list[str]:
    """Set the environment of a bound rank; return the words in front of its command. Raise Unbound with the reason."""
    system = Path(os.environ.get("BERT_SYS") or "/sys")
    nodes = numa_nodes(system)
    if not nodes:
        raise Unbound(f"no NUMA nodes in {system}")
    gpus = visible_gpus()
    homes = [home_node(Place(rank, place.ranks), gpus, nodes, system) for rank in range(place.ranks)]
    here = homes[place.rank]
    if here is None:
        raise Unbound("the NUMA node of the GPU is not known")
    cores = node_cores(here, system)
    part, parts = homes[: place.rank].count(here), homes.count(here)
    if len(cores) < parts:
        raise Unbound(f"NUMA node {here} has fewer cores for this process ({len(cores)}) than ranks ({parts})")
    share = cores[len(cores) * part // parts : len(cores) * (part + 1) // parts]
    cpus = ",".join(map(str, sorted(cpu for threads in share for cpu in threads)))
    for binder in (  # containers forbid the first
        ["numactl", f"--physcpubind={cpus}", f"--membind={here}"],
        ["taskset", "--cpu-list", cpus],
    ):
        if _output(*binder, "true") is not None:
            settings.limit_threads(len(share))
            if adapters := active_adapters(here, system):
                settings.set_defaults(NCCL_IB_HCA=f"={','.join(adapters)}")  # = in front: exactly these names
            return binder
    raise Unbound(f"neither numactl nor taskset can bind to the cores {cpus}")


def numa_nodes(system: Path) -> list[int]:
    """Return the NUMA nodes that have cores."""
    lists = (system / "devices/system/node").glob("node[0-9]*/cpulist")
    return sorted(int(path.parent.name.removeprefix("node")) for path in lists if path.read_text().strip())


def visible_gpus() -> list[str]:
    """Return the PCI bus of each GPU that the process may use, in CUDA's order; empty where one is not known."""
    listed = _output("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader") or ""
    buses = {}
    order = []
    for line in listed.splitlines():
        fields = line.split(", ")
        if len(fields) == 3 and fields[2].count(":") == 2:
            index, uuid, bus = fields
            buses[index] = buses[uuid] = bus
            order.append(index)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = order if visible is None else list(filter(None, visible.split(",")))
    return [buses.get(name, "") for name in names]


def home_node(place: Place, gpus: Sequence[str], nodes: Sequence[int], system: Path) -> int | None:
    """Return the NUMA node of a rank's GPU, or its node in turn where there is no choice; None if it is not known."""
    if not gpus or len(nodes) == 1:
        return nodes[place.rank * len(nodes) // place.ranks]
    bus = gpus[place.rank % len(gpus)].lower()[-12:]  # 00000000:0F:00.0 for nvidia-smi, 0000:0f:00.0 for Linux
    try:
        node = int((system / "bus/pci/devices" / bus / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def node_cores(node: int, system: Path) -> list[list[int]]:
    """Return the cores of a NUMA node that this process may use, each as the list of its threads' CPU numbers."""
    allowed = os.environ.get("BERT_CPUS")
    mine = cpu_numbers(allowed) if allowed else os.sched_getaffinity(0)
    cores: dict[int, list[int]] = {}
    for cpu in sorted(mine & cpu_numbers((system / f"devices/system/node/node{node}/cpulist").read_text())):
        siblings = system / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        first = min(cpu_numbers(siblings.read_text())) if siblings.exists() else cpu
        cores.setdefault(first, []).append(cpu)
    return [cores[first] for first in sorted(cores)]


def cpu_numbers(text: str) -> set[int]:
    """Return the numbers of a list as Linux writes it: 0-2,8 is {0, 1, 2, 8}. Raise Unbound if it is none."""
    parts = [part for part in text.strip().split(",") if part]
    if not all(re.fullmatch("[0-9]{1,6}(-[0-9]{1,6})?", part) for part in parts):
        raise Unbound(f"{text.strip()[:80]!r} is not a list of CPU numbers")
    ranges: Iterable[list[str]] = (part.split("-") for part in parts)
    return {cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)}


def active_adapters(node: int, system: Path) -> list[str]:
    """Return the InfiniBand adapters of a NUMA node that have an active port."""
    return [
        adapter.name
        for adapter in sorted((system / "class/infiniband").glob("*"))
        if _read(adapter / "device/numa_node").strip() == str(node)
        and any("ACTIVE" in _read(state) for state in adapter.glob("ports/*/state"))
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _output(*command: str) -> str | None:
    """Return what a command prints, or None if it fails or is not there."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
