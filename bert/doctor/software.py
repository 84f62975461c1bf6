"""Python, the packages, TensorFlow with CUDA's libraries, Horovod with what it was built with."""

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert.doctor.machine import ROOT, Finding, Level, Machine
from bert.hardware import nvidia

PYTHONS = ((3, 11), (3, 14))  # from, and before
TENSORFLOWS = ("2.21", "2.17")  # tested: that of requirements.txt, and that of NVIDIA's last container
NEEDED = ("tensorflow", "numpy", "google-crc32c", "tensorboard")  # by training; the others by stages before and after
SETUP, GPU_SETUP = "run make setup", "run make setup DEVICE=gpu"
NCCL = "libnccl.so.2"

Facts = dict[str, Any]


@dataclass(frozen=True)
class Software:
    """What the probes told: `build`, `driver`, `compiler`, `libraries`, `tensorflow`, `gpus`, `horovod`."""

    facts: Facts = field(default_factory=dict)
    trouble: str = ""
    """why a probe told less than all"""

    @property
    def build(self) -> Facts:
        """What TensorFlow was built with."""
        return self.facts.get("build", {}) or self.facts.get("tensorflow", {}).get("build", {})

    @property
    def cuda(self) -> str:
        """The version of CUDA that TensorFlow was built with; empty if none, or not known."""
        return str(self.build.get("cuda_version", "")) if self.build.get("is_cuda_build") else ""

    @property
    def architectures(self) -> list[str]:
        """The GPUs that it was built for, as `sm_80`."""
        return list(self.build.get("cuda_compute_capabilities", []))


def look(machine: Machine, mode: str) -> Software:
    """Runs one probe; what hangs is ended after `machine.patience` seconds."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)}
    try:
        shown, trouble = nvidia.ask([*machine.probe, mode], machine.patience, environment), ""
    except nvidia.CommandError as error:
        shown, trouble = error.shown, f"the process that looks at {mode} failed ({error})"
    facts: Facts = {}
    for line in shown.splitlines():
        try:
            facts |= json.loads(line)
        except (ValueError, TypeError):  # something else printed it
            continue
    return Software(facts, trouble)


def check_python(machine: Machine, version: Sequence[int] = sys.version_info[:3]) -> Iterator[Finding]:
    """The interpreter, and the packages of requirements.txt."""
    said = ".".join(map(str, version))
    if PYTHONS[0] <= tuple(version[:2]) < PYTHONS[1]:
        yield Finding("Python", "ok", f"{said}, {sys.prefix}")
    else:
        yield Finding("Python", "error", f"{said}; 3.11 to 3.13 are supported", "make setup PYTHON=python3.11")
    lines = machine.requirements.read_text(encoding="utf-8").splitlines()
    matches = [re.match(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    pins = {str(match.group(1)): str(match.group(2)) for match in matches if match}
    have = {name: _installed(name) for name in pins}
    absent = [name for name, found in have.items() if not found]
    if absent:
        level: Level = "error" if set(NEEDED) & set(absent) else "warning"
        yield Finding("packages", level, f"missing: {', '.join(absent)}", SETUP)
    if other := [f"{name} {have[name]} (not {pin})" for name, pin in pins.items() if have[name] not in ("", pin)]:
        yield Finding("packages", "note", f"other versions than tested: {', '.join(other)}")
    elif not absent:
        yield Finding(
            "packages",
            "ok",
            f"{len(pins)}, all as in requirements.txt; Punkt is trained on the corpus, so NLTK needs no data",
        )


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_tensorflow(software: Software, gpus: int) -> Iterator[Finding]:
    """gpus: those in the machine, which TensorFlow is to see."""
    facts = software.facts.get("tensorflow")
    if facts is None:
        yield Finding("TensorFlow", "error", software.trouble or "it told nothing", f"{SETUP}, or give --patience 120")
        return
    if "error" in facts:
        yield Finding("TensorFlow", "error", f"does not import ({facts['error']})", SETUP)
        return
    version, cuda = str(facts["version"]), software.cuda
    said = f"{version}, built with CUDA {cuda}" if cuda else f"{version}, built without CUDA"
    if not version.startswith(tuple(f"{one}." for one in TENSORFLOWS)):
        yield Finding("TensorFlow", "warning", f"{said}; tested are {' and '.join(TENSORFLOWS)}", SETUP)
    else:
        yield Finding("TensorFlow", "ok", said)
    if gpus:
        yield _seen(software, gpus)


def _seen(software: Software, gpus: int) -> Finding:
    seen = software.facts.get("gpus")
    if seen is None:
        return Finding(
            "TensorFlow's GPUs",
            "error",
            software.trouble or "it did not list them",
            "run nvidia-smi: the driver may hang",
        )
    if len(seen) >= gpus:
        return Finding("TensorFlow's GPUs", "ok", f"all {gpus}" if gpus > 1 else "1")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    said = f"it sees {len(seen)} of {gpus}"
    if hidden is not None:
        return Finding(
            "TensorFlow's GPUs", "warning", f"{said}: CUDA_VISIBLE_DEVICES is {hidden!r}", "unset it to use all"
        )
    if seen:
        return Finding("TensorFlow's GPUs", "warning", said, "look at nvidia-smi for those that are missing")
    why = "" if software.cuda else "; it was built without CUDA"
    remedy = GPU_SETUP
    if "error" in software.facts.get("driver", {}):
        remedy = "see the driver's library"
    return Finding("TensorFlow's GPUs", "error", f"{said}{why}: training would run on the CPU", remedy)


def check_cuda(software: Software, gpus: int) -> Iterator[Finding]:
    """The libraries that TensorFlow opens. Without a GPU nothing needs them."""
    if not software.cuda:
        return
    libraries: dict[str, Facts] | None = software.facts.get("libraries")
    if libraries is None:
        yield Finding("CUDA libraries", "warning", software.trouble or "they were not looked at", GPU_SETUP)
        return
    if gpus and "driver" in software.facts:
        yield _driver_library(software.facts["driver"])
    own = {name: found for name, found in libraries.items() if not name.startswith(("libcudnn", "libnccl"))}
    yield _libraries("CUDA libraries", own, gpus, software.cuda)
    cudnn = {name: found for name, found in libraries.items() if name.startswith("libcudnn")}
    yield _libraries("cuDNN", cudnn, gpus, str(software.build.get("cudnn_version", "")))
    nccl = {NCCL: libraries[NCCL]} if NCCL in libraries else {}
    yield _libraries("NCCL", nccl, gpus if gpus > 1 else 0, "")
    yield _compiler(software, gpus)


def _driver_library(facts: Facts) -> Finding:
    if "error" in facts:
        return Finding(
            "driver's library",
            "error",
            facts["error"].splitlines()[0],
            "install NVIDIA's driver; in a container, --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    return Finding("driver's library", "ok", f"made for CUDA {facts['version']}, {facts['path']}")


def _libraries(subject: str, found: dict[str, Facts], gpus: int, wanted: str) -> Finding:
    """gpus: 0 if nothing needs these libraries here. wanted: the version that TensorFlow was built with."""
    missing = [name for name, facts in found.items() if "error" in facts]
    built = f" (TensorFlow was built with {wanted})" if wanted else ""
    if not found:
        return Finding(subject, "warning", f"not known which ones TensorFlow opens{built}", GPU_SETUP)
    if missing:
        why = found[missing[0]]["error"].splitlines()[0]
        said = f"{', '.join(missing)} cannot be loaded{built}: {why}"
        if not gpus:
            return Finding(subject, "note", f"{', '.join(missing)} not found, and not needed here")
        return Finding(subject, "error", said, GPU_SETUP)
    first = next(iter(found.values()))
    version = next((facts["version"] for facts in found.values() if facts.get("version")), "version unknown")
    many = f", {len(found)} libraries" if len(found) > 1 else ""
    older = wanted and version[0].isdecimal() and _numbers(version) < _numbers(wanted)[: len(_numbers(version))]
    if older and gpus:
        return Finding(subject, "error", f"{version}, older than TensorFlow was built with ({wanted})", GPU_SETUP)
    return Finding(subject, "ok", f"{version}{many}{built}, {os.path.dirname(first['path'])}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _compiler(software: Software, gpus: int) -> Finding:
    found: dict[str, str] = software.facts.get("compiler", {})
    missing = [name for name in ("libdevice.10.bc", "ptxas") if name not in found]
    if not missing:
        return Finding("XLA's compiler", "ok", f"ptxas and libdevice, {found['ptxas']}")
    said = f"{' and '.join(missing)} not found"
    if not gpus:
        return Finding("XLA's compiler", "note", f"{said}, and not needed here")
    remedy = f"{GPU_SETUP}, or set XLA_FLAGS=--xla_gpu_cuda_data_dir=DIRECTORY of a CUDA toolkit"
    return Finding("XLA's compiler", "error" if "libdevice.10.bc" in missing else "warning", said, remedy)


def check_horovod(software: Software, gpus: int) -> Iterator[Finding]:
    """Several ranks need it; one does not."""
    facts = software.facts.get("horovod")
    if facts is None or "error" in facts:
        why = facts["error"].splitlines()[0] if facts else software.trouble or "it was not reached"
        level: Level = "error" if gpus > 1 else "warning"
        remedy = GPU_SETUP if gpus else SETUP
        yield Finding("Horovod", level, f"cannot be used, so one rank trains alone ({why})", remedy)
        return
    has = [label for name, label in (("nccl", "NCCL"), ("gloo", "Gloo"), ("mpi", "MPI")) if facts.get(name)]
    said = f"{facts['version']} with {', '.join(has) or 'nothing'}; it loads with this TensorFlow"
    if gpus > 1 and not facts.get("nccl"):
        yield Finding(
            "Horovod",
            "error",
            f"{facts['version']} with {', '.join(has)}, without NCCL: gradients of "
            f"{gpus} GPUs would go through the CPU",
            GPU_SETUP,
        )
    elif not has:
        yield Finding("Horovod", "warning", said, SETUP)
    else:
        yield Finding("Horovod", "ok", said)
    yield _mpi(bool(facts.get("mpi")))


def _mpi(built: bool) -> Finding:
    if mpirun := shutil.which("mpirun"):
        try:
            version = nvidia.ask([mpirun, "--version"], nvidia.NVIDIA_SMI_SECONDS).strip().splitlines()[0]
        except (nvidia.CommandError, IndexError) as error:
            return Finding(
                "MPI",
                "warning" if built else "note",
                f"{mpirun} does not say its version ({error})",
                "use scripts/launch.sh",
            )
        return Finding("MPI", "ok", version if built else f"{version}; Horovod was built without it")
    if built:
        return Finding(
            "MPI",
            "warning",
            "Horovod was built with it, but there is no mpirun",
            "load the site's module for it, or use scripts/launch.sh",
        )
    return Finding("MPI", "note", "none; scripts/launch.sh starts ranks without it")
