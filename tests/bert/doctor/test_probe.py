"""The probe loads libraries as TensorFlow does."""

import ctypes.util
import subprocess
from pathlib import Path

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


def test_the_probe_s_list_of_libraries_follows_tensorflow_s_own_build() -> None:
    names = probe.required_libraries({"cuda_version": "12.5.1", "cudnn_version": "9"})
    assert "libcudart.so.12" in names and "libcudnn.so.9" in names and "libnccl.so.2" in names
    assert probe.required_libraries({"cuda_version": "13.0", "cudnn_version": "9"})[0] == "libcudart.so.13"
