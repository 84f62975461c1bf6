"""Check Python, its packages, TensorFlow with the CUDA libraries, and Horovod."""

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert.doctor import gpus
from bert.doctor.gpus import GpuInfo
from bert.doctor.machine import ROOT, Finding, Level, Machine
from bert.hardware import nvidia

PYTHONS = ((3, 11), (3, 14))  # first supported version, first unsupported version
TENSORFLOWS = ("2.21", "2.17")  # tested: in requirements.txt, and in NVIDIA's last TensorFlow container
NEEDED = ("tensorflow", "numpy", "google-crc32c", "tensorboard")  # for training; other stages need the rest
SETUP, GPU_SETUP = "run make setup", "run make setup DEVICE=gpu"
NCCL = "libnccl.so.2"

Report = dict[str, Any]


@dataclass(frozen=True)
class SoftwareInfo:
    """What the probes report: `build`, `driver`, `compiler`, `libraries`, `tensorflow`, `gpus`, `horovod`."""

    report: Report = field(default_factory=dict)
    problem: str = ""
    """why parts are missing; empty if none are"""

    @property
    def build(self) -> Report:
        """The build information of TensorFlow."""
        return self.report.get("build", {}) or self.report.get("tensorflow", {}).get("build", {})

    @property
    def cuda(self) -> str:
        """The CUDA version that TensorFlow was built with; empty if none or unknown."""
        return str(self.build.get("cuda_version", "")) if self.build.get("is_cuda_build") else ""

    @property
    def architectures(self) -> list[str]:
        """The GPU architectures that TensorFlow was built for, such as `sm_80`."""
        return list(self.build.get("cuda_compute_capabilities", []))

    @property
    def ptxas(self) -> str:
        """The version and the path of the ptxas that XLA finds; empty if none or unknown."""
        compiler = self.report.get("compiler", {})
        return " ".join(filter(None, (compiler.get("ptxas_version"), compiler.get("ptxas"))))


def run_probe(machine: Machine, mode: str) -> SoftwareInfo:
    """Run one probe, for at most `machine.patience` seconds."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(ROOT)}
    try:
        output, problem = nvidia.run_command([*machine.probe, mode], machine.patience, environment), ""
    except nvidia.CommandError as error:
        output, problem = error.output, f"the probe of {mode} failed ({error})"
    report: Report = {}
    for line in output.splitlines():
        try:
            report |= json.loads(line)
        except (ValueError, TypeError):  # printed by a library
            continue
    return SoftwareInfo(report, problem)


def check_python(machine: Machine, version: Sequence[int] = sys.version_info[:3]) -> Iterator[Finding]:
    """Yield the findings about the interpreter and the packages of requirements.txt."""
    number = ".".join(map(str, version))
    if PYTHONS[0] <= tuple(version[:2]) < PYTHONS[1]:
        yield Finding("Python", "ok", f"{number}, {sys.prefix}")
    else:
        yield Finding(
            "Python", "error", f"{number}; 3.11 to 3.13 are supported", "export PYTHON=python3.11, then run make setup"
        )
    lines = machine.requirements.read_text(encoding="utf-8").splitlines()
    matches = [re.match(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    pins = {str(match.group(1)): str(match.group(2)) for match in matches if match}
    installed = {name: _installed_version(name) for name in pins}
    missing = [name for name, version in installed.items() if not version]
    if missing:
        level: Level = "error" if set(NEEDED) & set(missing) else "warning"
        yield Finding("packages", level, f"missing: {', '.join(missing)}", SETUP)
    untested = {name: pin for name, pin in pins.items() if installed[name] not in ("", pin)}
    if untested:
        listed = ", ".join(f"{name} {installed[name]} (not {pin})" for name, pin in untested.items())
        yield Finding("packages", "note", f"other versions than tested: {listed}")
    elif not missing:
        yield Finding("packages", "ok", f"{len(pins)}, all as in requirements.txt; NLTK needs no downloaded data")


def _installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check_tensorflow(software: SoftwareInfo, gpus: int) -> Iterator[Finding]:
    """Yield the findings about TensorFlow. gpus: number of GPUs in the machine; TensorFlow should see all of them."""
    report = software.report.get("tensorflow")
    if report is None:
        yield Finding(
            "TensorFlow", "error", software.problem or "the probe gave no answer", f"{SETUP}, or give --patience 120"
        )
        return
    if "error" in report:
        yield Finding("TensorFlow", "error", f"cannot be imported ({report['error']})", SETUP)
        return
    version, cuda = str(report["version"]), software.cuda
    summary = f"{version}, built with CUDA {cuda}" if cuda else f"{version}, built without CUDA"
    if not version.startswith(tuple(f"{tested}." for tested in TENSORFLOWS)):
        yield Finding("TensorFlow", "warning", f"{summary}; tested versions: {', '.join(TENSORFLOWS)}", SETUP)
    else:
        yield Finding("TensorFlow", "ok", summary)
    if gpus:
        yield _visible_gpus(software, gpus)


def _visible_gpus(software: SoftwareInfo, gpus: int) -> Finding:
    visible = software.report.get("gpus")
    if visible is None:
        return Finding(
            "TensorFlow GPUs",
            "error",
            software.problem or "TensorFlow did not list them",
            "run nvidia-smi: the driver may hang",
        )
    if len(visible) >= gpus:
        return Finding("TensorFlow GPUs", "ok", f"all {gpus}" if gpus > 1 else "1")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    summary = f"TensorFlow sees {len(visible)} of {gpus}"
    if hidden is not None:
        return Finding(
            "TensorFlow GPUs", "warning", f"{summary}: CUDA_VISIBLE_DEVICES is {hidden!r}", "unset it to use all GPUs"
        )
    if visible:
        return Finding("TensorFlow GPUs", "warning", summary, "compare with the list of nvidia-smi")
    reason = "" if software.cuda else "; it was built without CUDA"
    remedy = "see driver library" if "error" in software.report.get("driver", {}) else GPU_SETUP
    return Finding("TensorFlow GPUs", "error", f"{summary}{reason}: training would run on the CPU", remedy)


def check_cuda(software: SoftwareInfo, gpus: int) -> Iterator[Finding]:
    """Yield the findings about the libraries that TensorFlow loads. They are needed only with a GPU."""
    if not software.cuda:
        return
    libraries: dict[str, Report] | None = software.report.get("libraries")
    if libraries is None:
        yield Finding("CUDA libraries", "warning", software.problem or "not checked", GPU_SETUP)
        return
    if gpus and "driver" in software.report:
        yield _driver_library(software.report["driver"])
    toolkit = {name: report for name, report in libraries.items() if not name.startswith(("libcudnn", "libnccl"))}
    yield _libraries("CUDA libraries", toolkit, gpus, software.cuda)
    cudnn = {name: report for name, report in libraries.items() if name.startswith("libcudnn")}
    yield _libraries("cuDNN", cudnn, gpus, str(software.build.get("cudnn_version", "")))
    nccl = {NCCL: libraries[NCCL]} if NCCL in libraries else {}
    yield _libraries("NCCL", nccl, gpus if gpus > 1 else 0, "")
    yield _compiler(software, gpus)


def _driver_library(report: Report) -> Finding:
    if "error" in report:
        return Finding(
            "driver library",
            "error",
            report["error"].splitlines()[0],
            "install the driver; start a container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    return Finding("driver library", "ok", f"for CUDA {report['version']}, {report['path']}")


def _libraries(subject: str, libraries: dict[str, Report], gpus: int, built_with: str) -> Finding:
    """gpus: 0 if these libraries are not needed. built_with: their version when TensorFlow was built; may be empty."""
    missing = [name for name, report in libraries.items() if "error" in report]
    built = f" (TensorFlow was built with {built_with})" if built_with else ""
    if not libraries:
        return Finding(subject, "warning", f"it is unknown which ones TensorFlow loads{built}", GPU_SETUP)
    if missing:
        if not gpus:
            return Finding(subject, "note", f"{', '.join(missing)} not found; not needed on this machine")
        reason = libraries[missing[0]]["error"].splitlines()[0]
        return Finding(subject, "error", f"{', '.join(missing)} cannot be loaded{built}: {reason}", GPU_SETUP)
    first = next(iter(libraries.values()))
    version = next((report["version"] for report in libraries.values() if report.get("version")), "version unknown")
    count = f", {len(libraries)} libraries" if len(libraries) > 1 else ""
    if gpus and built_with and version[0].isdecimal():
        numbers = _numbers(version)
        if numbers < _numbers(built_with)[: len(numbers)]:
            return Finding(subject, "error", f"{version} is older than in TensorFlow's build ({built_with})", GPU_SETUP)
    return Finding(subject, "ok", f"{version}{count}{built}, {os.path.dirname(first['path'])}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _compiler(software: SoftwareInfo, gpus: int) -> Finding:
    paths: dict[str, str] = software.report.get("compiler", {})
    missing = [name for name in ("libdevice.10.bc", "ptxas") if name not in paths]
    if not missing:
        return Finding("XLA compiler", "ok", f"libdevice, and ptxas {software.ptxas}")
    message = f"{' and '.join(missing)} not found"
    if not gpus:
        return Finding("XLA compiler", "note", f"{message}; not needed on this machine")
    remedy = f"{GPU_SETUP}, or set XLA_FLAGS=--xla_gpu_cuda_data_dir=DIRECTORY of a CUDA toolkit"
    return Finding("XLA compiler", "error" if "libdevice.10.bc" in missing else "warning", message, remedy)


def check_horovod(software: SoftwareInfo, gpu_info: GpuInfo) -> Iterator[Finding]:
    """Yield the findings about Horovod and MPI. Horovod is needed for several ranks only."""
    report, gpus = software.report.get("horovod"), gpu_info.count
    if report is None or "error" in report:
        reason = report["error"].splitlines()[0] if report else software.problem or "the probe gave no answer"
        level: Level = "error" if gpus > 1 else "warning"
        remedy = GPU_SETUP if gpus else SETUP
        message = f"not usable, so several ranks need --run.communicator tensorflow ({reason})"
        yield Finding("Horovod", level, message, remedy)
        return
    backends = [label for name, label in (("nccl", "NCCL"), ("gloo", "Gloo"), ("mpi", "MPI")) if report.get(name)]
    summary = f"{report['version']} with {', '.join(backends) or 'no backend'}; loads with this TensorFlow"
    if gpus > 1 and not report.get("nccl"):
        yield Finding(
            "Horovod",
            "error",
            f"{report['version']} with {', '.join(backends)}, without NCCL: gradients of {gpus} GPUs would go through "
            "the CPU",
            GPU_SETUP,
        )
    elif not backends:
        yield Finding("Horovod", "warning", summary, SETUP)
    elif reason := _unfit(report.get("built_with", {}), gpu_info):
        level = "error" if gpus > 1 else "warning"
        yield Finding("Horovod", level, f"{report['version']} {reason}", f"{GPU_SETUP} on this machine")
    else:
        yield Finding("Horovod", "ok", summary)
    yield _mpi(bool(report.get("mpi")))


def _unfit(built_with: Report, gpu_info: GpuInfo) -> str:
    """Return why the kernels of this Horovod cannot run on the GPUs; empty if they can, or nothing was recorded.

    built_with: what `scripts/build_horovod.sh` recorded.
    """
    cuda, capabilities = str(built_with.get("cuda", "")), built_with.get("capabilities", [])
    if gpu_info.driver and (need := gpus.missing_driver(gpu_info.driver, cuda)):
        return f"was compiled with CUDA {cuda}, which needs driver {need} or newer; this one is {gpu_info.driver}"
    have = [row["compute_cap"] for row in gpu_info.rows if re.fullmatch(r"\d+\.\d", row.get("compute_cap", ""))]
    lowest = min(map(int, capabilities), default=0)
    if too_old := [one for one in have if int(one.replace(".", "")) < lowest]:
        return f"was compiled for compute capability {lowest / 10} and newer; a GPU has {too_old[0]}"
    return ""


def _mpi(built: bool) -> Finding:
    if mpirun := shutil.which("mpirun"):
        try:
            version = nvidia.run_command([mpirun, "--version"], nvidia.NVIDIA_SMI_SECONDS).strip().splitlines()[0]
        except (nvidia.CommandError, IndexError) as error:
            return Finding(
                "MPI",
                "warning" if built else "note",
                f"{mpirun} --version failed ({error})",
                "use scripts/launch.sh",
            )
        return Finding("MPI", "ok", version if built else f"{version}; Horovod was built without it")
    if built:
        return Finding(
            "MPI",
            "warning",
            "Horovod was built with MPI, but there is no mpirun",
            "load the cluster's MPI module, or use scripts/launch.sh",
        )
    return Finding("MPI", "note", "not installed; scripts/launch.sh starts ranks without it")
