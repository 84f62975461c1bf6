"""The process that imports TensorFlow and Horovod and loads CUDA's libraries, so that the doctor survives them.

    python -m bert.doctor.probe libraries | frameworks

It prints one JSON object a line and flushes each, so that a crash in one does not hide the others. It makes no tensor:
TensorFlow lists the GPUs, and takes no memory of them.
"""

import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What TensorFlow opens, by the major version of CUDA that it was built with. NCCL and cuDNN have versions of their own.
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
DRIVER = "libcuda.so.1"  # comes with the driver, not with the toolkit
COMPILER = ("nvvm/libdevice/libdevice.10.bc", "bin/ptxas")  # what XLA needs of the toolkit
TOOLKITS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")

Facts = dict[str, Any]


def tell(facts: Facts) -> None:
    """Prints a line."""
    print(json.dumps(facts), flush=True)


def build_info(tensorflow: Path) -> Facts:
    """What TensorFlow was built with, from a file of the package; its import is not needed."""
    return dict(runpy.run_path(str(tensorflow / "python/platform/build_info.py"))["build_info"])


def wanted(build: Facts) -> list[str]:
    """Names of the libraries that a TensorFlow of that build opens."""
    major = int(str(build.get("cuda_version", "0")).split(".")[0])
    cudnn = str(build.get("cudnn_version", "")).split(".")[0]
    return [*CUDA_LIBRARIES.get(major, ()), *([f"libcudnn.so.{cudnn}"] if cudnn else []), NCCL]


def load(name: str, site: Path) -> Facts:
    """Opens a library as TensorFlow does: among pip's packages first, then wherever the loader looks."""
    placed = sorted(site.glob(f"nvidia/*/lib/{name}"))
    try:
        library = ctypes.CDLL(str(placed[0]) if placed else name)
    except OSError as error:
        return {"error": str(error)}
    return {"path": str(placed[0]) if placed else _where(name), "version": _version(name, library)}


def _where(name: str) -> str:
    """The file from which the loader took a library."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return next((line.split(maxsplit=5)[5] for line in maps.splitlines() if f"/{name}" in line), name)


def _version(name: str, library: ctypes.CDLL) -> str:
    """What a library says of itself; empty if it is not one of those that are asked."""
    number = ctypes.c_int(0)
    if name == DRIVER:  # which starts nothing on a GPU
        library.cuDriverGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"
    if name.startswith("libcudart."):
        library.cudaRuntimeGetVersion(ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"
    if name.startswith("libcudnn."):
        library.cudnnGetVersion.restype = ctypes.c_size_t
        found = library.cudnnGetVersion()
        unit = 10_000 if found >= 90_000 else 1000
        return f"{found // unit}.{found % unit // 100}.{found % 100}"
    if name == NCCL:
        library.ncclGetVersion(ctypes.byref(number))
        unit = 10_000 if number.value >= 10_000 else 1000
        return f"{number.value // unit}.{number.value % unit // 100}.{number.value % 100}"
    return ""


def compiler(site: Path) -> Facts:
    """Where libdevice and ptxas are, by name; those that are nowhere are not there."""
    roots = [*sorted(site.glob("nvidia/cuda_nvcc")), *sorted(site.glob("nvidia/cu*")), *map(Path, TOOLKITS)]
    found = {}
    for part in COMPILER:
        at = next((root / part for root in roots if (root / part).exists()), None)
        if at:
            found[Path(part).name] = str(at)
    return found


def libraries() -> None:
    """Tells `build`, then `driver`, `compiler` and, by name, `libraries`."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        return
    package = Path(spec.origin).parent
    build = build_info(package)
    tell({"build": build})
    if build.get("is_cuda_build"):
        tell({"driver": load(DRIVER, package.parent)})
        tell({"compiler": compiler(package.parent)})
        tell({"libraries": {name: load(name, package.parent) for name in wanted(build)}})


def frameworks() -> None:
    """Tells `tensorflow`, then `horovod`."""
    try:
        tf = importlib.import_module("tensorflow")
    except Exception as error:
        tell({"tensorflow": {"error": f"{type(error).__name__}: {error}"}})
        return
    tell({"tensorflow": {"version": tf.__version__, "build": dict(tf.sysconfig.get_build_info())}})
    tell({"gpus": [gpu.name for gpu in tf.config.list_physical_devices("GPU")]})
    try:
        hvd = importlib.import_module("horovod.tensorflow")
        built = {name: int(getattr(hvd, f"{name}_built")()) for name in ("nccl", "gloo", "mpi", "cuda")}
        tell({"horovod": {"version": importlib.metadata.version("horovod"), **built}})
    except Exception as error:  # it may have been built for another TensorFlow
        tell({"horovod": {"error": f"{type(error).__name__}: {error}"}})


if __name__ == "__main__":
    MODES: dict[str, Callable[[], None]] = {"libraries": libraries, "frameworks": frameworks}
    MODES[sys.argv[1]]()
