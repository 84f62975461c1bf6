"""The probe loads libraries as TensorFlow does."""

import ctypes.util
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert.doctor import probe


def test_libraries_are_loaded_and_say_their_version(tmp_path: Path) -> None:
    source = "int cudaRuntimeGetVersion(int *v){*v=12050;return 0;}"
    lib = tmp_path / "nvidia/cuda_runtime/lib/libcudart.so.12"
    lib.parent.mkdir(parents=True)
    made = subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", str(lib), "-"], input=source, text=True)
    assert made.returncode == 0
    assert probe.load("libcudart.so.12", tmp_path) == {"path": str(lib), "version": "12.5"}
    assert "cannot open shared object" in probe.load("libcudnn.so.9", tmp_path)["error"]
    libm = ctypes.util.find_library("m")
    assert libm and probe.load(libm, tmp_path)["path"].startswith("/")


def test_xlas_ptxas_is_found_and_says_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def toolkit(folder: Path, version: str) -> str:
        for name in ("nvvm/libdevice/libdevice.10.bc", "bin/ptxas"):
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version[:4]}, V{version}'\n")
            (folder / name).chmod(0o755)
        return str(folder / "bin/ptxas")

    monkeypatch.setattr(probe, "TOOLKITS", ())
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("PATH", str(tmp_path / "on_path/bin"))
    assert probe.compiler(tmp_path) == {}
    on_path = toolkit(tmp_path / "on_path", "11.8.89")
    assert probe.compiler(tmp_path) == {"ptxas": on_path, "ptxas_version": "11.8.89"}
    packaged = toolkit(tmp_path / "nvidia/cuda_nvcc", "12.9.86")
    found = probe.compiler(tmp_path)
    assert (found["ptxas"], found["ptxas_version"]) == (packaged, "12.9.86") and "libdevice.10.bc" in found
    monkeypatch.setenv("XLA_FLAGS", f"--xla_x=1 --xla_gpu_cuda_data_dir={tmp_path / 'named'}")
    assert toolkit(tmp_path / "named", "13.0.88") == probe.compiler(tmp_path)["ptxas"]


def test_what_horovods_build_recorded_is_read(tmp_path: Path) -> None:
    package = SimpleNamespace(__file__=str(tmp_path / "horovod/tensorflow/__init__.py"))
    assert probe._built_with(package) == {}  # type: ignore[arg-type]
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod/built_with.py").write_text("BUILT_WITH = {'cuda': '12.9.86', 'capabilities': [75, 80]}\n")
    assert probe._built_with(package) == {"cuda": "12.9.86", "capabilities": [75, 80]}  # type: ignore[arg-type]


def test_the_probe_s_list_of_libraries_follows_tensorflow_s_own_build() -> None:
    names = probe.required_libraries({"cuda_version": "12.5.1", "cudnn_version": "9"})
    assert "libcudart.so.12" in names and "libcudnn.so.9" in names and "libnccl.so.2" in names
    assert probe.required_libraries({"cuda_version": "13.0", "cudnn_version": "9"})[0] == "libcudart.so.13"
