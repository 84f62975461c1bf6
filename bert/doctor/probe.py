"""Import TensorFlow and Horovod and load CUDA libraries in a separate process, whose crash the doctor survives.

    python -m bert.doctor.probe libraries | frameworks

Prints one JSON object per line and flushes each, so a later crash does not hide earlier lines. It makes no tensor:
TensorFlow lists the GPUs without allocating their memory.
"""

import contextlib
import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# CUDA major version -> libraries that a TensorFlow built with it loads. NCCL and cuDNN have their own versions.
CUDA_LIBRARIES = {
    11: (
        "libcudart.so.11.0",
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcufft.so.10",
        "libcusolver.so.11",
        "libcusparse.so.11",
        "libcupti.so.11.8",
    ),
    12: (
        "libcudart.so.12",
        "libcublas.so.12",
        "libcublasLt.so.12",
        "libcufft.so.11",
        "libcusolver.so.11",
        "libcusparse.so.12",
        "libcupti.so.12",
    ),
    13: (
        "libcudart.so.13",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcufft.so.12",
        "libcusolver.so.12",
        "libcusparse.so.12",
        "libcupti.so.13",
    ),
}
NCCL = "libnccl.so.2"
DRIVER = "libcuda.so.1"  # part of the driver, not of the toolkit
COMPILER = ("nvvm/libdevice/libdevice.10.bc", "bin/ptxas")  # the files of the toolkit that XLA needs
TOOLKITS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")

Report = dict[str, Any]


def emit(report: Report) -> None:
    """Print a report as one line of JSON."""
    print(json.dumps(report), flush=True)


def build_info(tensorflow: Path) -> Report:
    """Return what TensorFlow was built with, read from a file of the package without importing it."""
    return dict(runpy.run_path(str(tensorflow / "python/platform/build_info.py"))["build_info"])


def required_libraries(build: Report) -> list[str]:
    """Return the names of the libraries that a TensorFlow of this build loads."""
    major = int(str(build.get("cuda_version", "0")).split(".")[0])
    cudnn = str(build.get("cudnn_version", "")).split(".")[0]
    return [*CUDA_LIBRARIES.get(major, ()), *([f"libcudnn.so.{cudnn}"] if cudnn else []), NCCL]


def load(name: str, site: Path) -> Report:
    """Load a library as TensorFlow does: from pip packages in `site`, or else by the loader's search path."""
    packaged = sorted(site.glob(f"nvidia/*/lib/{name}"))
    try:
        library = ctypes.CDLL(str(packaged[0]) if packaged else name)
    except OSError as error:
        return {"error": str(error)}
    return {"path": str(packaged[0]) if packaged else _loaded_path(name), "version": _version(name, library)}


def _loaded_path(name: str) -> str:
    """Return the file from which the loader took a library."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return next((line.split(maxsplit=5)[5] for line in maps.splitlines() if f"/{name}" in line), name)


def _version(name: str, library: ctypes.CDLL) -> str:
    """Return a library's own version; empty if there is no call for it."""
    number = ctypes.c_int(0)
    if name == DRIVER:  # this call starts nothing on a GPU
        library.cuDriverGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"
    if name.startswith("libcudart."):
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"
    if name.startswith("libcudnn."):
        library.cudnnGetVersion.restype = ctypes.c_size_t
        cudnn = library.cudnnGetVersion()
        unit = 10_000 if cudnn >= 90_000 else 1000
        return f"{cudnn // unit}.{cudnn % unit // 100}.{cudnn % 100}"
    if name == NCCL:
        library.ncclGetVersion(ctypes.byref(number))
        unit = 10_000 if number.value >= 10_000 else 1000
        return f"{number.value // unit}.{number.value % unit // 100}.{number.value % 100}"
    return ""


def compiler(site: Path) -> Report:
    """Return the paths of libdevice and ptxas by file name, without those that do not exist, and `ptxas_version`.

    XLA looks for them in the folder of its flag, in pip's packages, in the usual places, and for ptxas on PATH.
    """
    named = re.findall(r"--xla_gpu_cuda_data_dir=(\S+)", os.environ.get("XLA_FLAGS", ""))[-1:]
    packaged = [*sorted(site.glob("nvidia/cuda_nvcc")), *sorted(site.glob("nvidia/cu*"))]
    roots = [*map(Path, named), *packaged, *map(Path, TOOLKITS)]
    paths = {}
    for part in COMPILER:
        path = next((root / part for root in roots if (root / part).exists()), None)
        if path:
            paths[path.name] = str(path)
    if "ptxas" not in paths and (found := shutil.which("ptxas")):
        paths["ptxas"] = found
    if "ptxas" in paths:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            said = subprocess.run([paths["ptxas"], "--version"], capture_output=True, text=True, timeout=10).stdout
            if version := re.search(r"\bV(\d+\.\d+\.\d+)\b", said):
                paths["ptxas_version"] = version[1]
    return paths


def libraries() -> None:
    """Print `build`, then `driver`, `compiler` and `libraries` (by name)."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        return
    package = Path(spec.origin).parent
    build = build_info(package)
    emit({"build": build})
    if build.get("is_cuda_build"):
        emit({"driver": load(DRIVER, package.parent)})
        emit({"compiler": compiler(package.parent)})
        emit({"libraries": {name: load(name, package.parent) for name in required_libraries(build)}})


def frameworks() -> None:
    """Print `tensorflow`, `gpus`, then `horovod`."""
    try:
        tf = importlib.import_module("tensorflow")
    except Exception as error:
        emit({"tensorflow": {"error": f"{type(error).__name__}: {error}"}})
        return
    emit({"tensorflow": {"version": tf.__version__, "build": dict(tf.sysconfig.get_build_info())}})
    emit({"gpus": [gpu.name for gpu in tf.config.list_physical_devices("GPU")]})
    try:
        hvd = importlib.import_module("horovod.tensorflow")
        built = {name: int(getattr(hvd, f"{name}_built")()) for name in ("nccl", "gloo", "mpi", "cuda")}
        emit({"horovod": {"version": importlib.metadata.version("horovod"), **built, "built_with": _built_with(hvd)}})
    except Exception as error:  # it may have been built for another TensorFlow
        emit({"horovod": {"error": f"{type(error).__name__}: {error}"}})


def _built_with(hvd: ModuleType) -> Report:
    """Return what `scripts/build_horovod.sh` recorded of the CUDA that Horovod was compiled with; empty if nothing."""
    record = Path(str(hvd.__file__)).parents[1] / "built_with.py"
    return dict(runpy.run_path(str(record))["BUILT_WITH"]) if record.exists() else {}


if __name__ == "__main__":
    MODES: dict[str, Callable[[], None]] = {"libraries": libraries, "frameworks": frameworks}
    MODES[sys.argv[1]]()
