"""A machine that does not exist: folders for /proc, /sys and /dev, an nvidia-smi, and what the frameworks emit."""

import dataclasses
import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from bert.doctor.__main__ import examine
from bert.doctor.machine import ROOT, Finding, Machine
from bert.doctor.probe import required_libraries

GIB = 2**30
H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "driver_version": "560.35.03",
    "memory.total": "81559",
    "memory.used": "4",
    "utilization.gpu": "0",
    "compute_cap": "9.0",
    "mig.mode.current": "Disabled",
    "persistence_mode": "Enabled",
    "compute_mode": "Default",
    "ecc.errors.uncorrected.volatile.total": "0",
    "clocks.sm": "1980",
    "clocks.max.sm": "1980",
    "clocks_throttle_reasons.active": "0x0000000000000001",
}
BUILD = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}
NVIDIA_SMI = """\
#!{python} -S
import json, sys
rows = json.load(open({rows!r}))
if sys.argv[1] == "-L":
    for number, row in enumerate(rows):
        print(f"GPU {{number}}: {{row['name']}} (UUID: GPU-{{number}})")
        for place, profile in enumerate(row.get("slices", [])):  # as drivers from 470 on print them
            print(f"  MIG {{profile:<12}}Device {{place:>2}}: (UUID: MIG-1aae4990-b962-574e-8375-{{place:012}})")
    sys.exit()
names = sys.argv[1].removeprefix("--query-gpu=").split(",")
unknown = [name for name in names if name != "index" and any(name not in row for row in rows)]
if unknown:
    print(f'Field "{{unknown[0]}}" is not a valid field to query.')
    sys.exit(2)
for number, row in enumerate(rows):
    print(", ".join((row | {{"index": str(number)}})[name] for name in names))
"""


class FakeMachine:
    """Eight H100 with everything in order, until a test changes something."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, gpus: int = 8) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = [dict(H100) for _ in range(gpus)]
        self.proc, self.sysfs, self.dev = (folder / name for name in ("proc", "sys", "dev"))
        self.limits = {resource.RLIMIT_MEMLOCK: -1, resource.RLIMIT_NOFILE: 1 << 20, resource.RLIMIT_STACK: 8 << 20}
        self.shared = 64 * GIB
        self.cores = 16 * gpus or 4
        self.packages = list(required_libraries(BUILD))
        libraries = {name: {"path": f"/site/nvidia/x/lib/{name}", "version": ""} for name in self.packages}
        for name, version in (("libcudart.so.12", "12.5"), ("libcudnn.so.9", "9.3.0"), ("libnccl.so.2", "2.25.1")):
            libraries[name]["version"] = version
        self.facts: dict[str, dict[str, Any]] = {
            "libraries": {
                "build": BUILD,
                "libraries": libraries,
                "driver": {"path": "/usr/lib/libcuda.so.1", "version": "12.6"},
                "compiler": {
                    "libdevice.10.bc": "/site/libdevice.10.bc",
                    "ptxas": "/site/ptxas",
                    "ptxas_version": "12.9.86",
                },
            },
            "frameworks": {
                "tensorflow": {"version": "2.21.0", "build": BUILD},
                "gpus": [f"GPU:{n}" for n in range(gpus)],
                "horovod": {
                    "version": "0.28.1",
                    **{"nccl": 22501, "gloo": 1, "mpi": 0, "cuda": 1},
                    "built_with": {"cuda": "12.9.86", "capabilities": [75, 80, 90], "nccl": "2.32.3"},
                },
            },
        }
        self.write(self.proc / "meminfo", f"MemTotal: {2**31} kB\nMemAvailable: {2**31 - 2**22} kB\n")
        self.write(self.proc / "self/cgroup", "0::/job\n")
        self.write(self.sysfs / "fs/cgroup/job/cpu.max", "max 100000\n")
        self.write(self.sysfs / "fs/cgroup/job/memory.max", "max\n")
        (self.dev / "shm").mkdir(parents=True)
        if gpus:
            self.driver("560.35.03")
            for number in range(gpus):
                (self.dev / f"nvidia{number}").touch()
            for name in ("mlx5_0", "mlx5_1"):
                self.port(name)
            self.write(self.dev / "infiniband/uverbs0", "")
            (self.sysfs / "module/nvidia_peermem").mkdir(parents=True)
            self.program("nvidia-smi", NVIDIA_SMI.format(python=sys.executable, rows=str(folder / "rows.json")))
        monkeypatch.setenv("PATH", str(folder / "bin"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def write(self, path: Path, text: str) -> None:
        """A file, with its folders."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, text: str) -> None:
        """A program on the path."""
        self.write(self.folder / "bin" / name, text)
        (self.folder / "bin" / name).chmod(0o755)

    def driver(self, version: str) -> None:
        """Another version of the driver."""
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Fri Aug 16 21:39:15 UTC 2024\n"
        self.write(self.proc / "driver/nvidia/version", text)

    def port(self, name: str, state: str = "4: ACTIVE", physical: str = "5: LinkUp") -> None:
        """An InfiniBand adapter with one port."""
        at = self.sysfs / "class/infiniband" / name / "ports/1"
        for file, text in (
            ("state", state),
            ("phys_state", physical),
            ("rate", "400 Gb/sec (4X NDR)"),
            ("link_layer", "InfiniBand"),
        ):
            self.write(at / file, text + "\n")

    def machine(self, probe: str | None = None) -> Machine:
        """Return the machine as it is now. probe: Python code to run instead of the probe that prints `facts`."""
        self.write(self.folder / "rows.json", json.dumps(self.rows))
        for mode, facts in self.facts.items():
            lines = ["a line of a log", *(json.dumps({name: value}) for name, value in facts.items())]
            self.write(self.folder / mode, "\n".join(lines))
        code = f"import pathlib, sys\nprint(pathlib.Path({str(self.folder)!r}, sys.argv[1]).read_text())"
        return Machine(
            proc=self.proc,
            sysfs=self.sysfs,
            dev=self.dev,
            workdir=self.folder / "not" / "yet",
            requirements=ROOT / "requirements.txt",
            probe=(sys.executable, "-S", "-c", probe or code),
            patience=20.0,
            space=lambda folder: (self.shared, self.shared) if folder.name == "shm" else (900 * GIB, 500 * GIB),
            soft_limit=self.limits.__getitem__,
            cores=lambda: self.cores,
        )

    def findings(self, **changes: Any) -> list[Finding]:
        """Return what the doctor finds."""
        return examine(dataclasses.replace(self.machine(), **changes))


def problems(findings: list[Finding]) -> list[tuple[str, str]]:
    """Return subject and level of every warning and error."""
    return [(finding.subject, finding.level) for finding in findings if finding.level in ("warning", "error")]


def about(findings: list[Finding], subject: str) -> Finding:
    """Return the only finding about a subject."""
    (only,) = [finding for finding in findings if finding.subject == subject]
    return only
