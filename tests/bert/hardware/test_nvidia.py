"""GPUs are found by their device files, or by nvidia-smi, whatever state that is in."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from bert.hardware import nvidia


def program(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts an nvidia-smi of that script in front of the path."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_device_files_are_counted_and_others_of_the_driver_are_not(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    assert nvidia.gpus_in_machine(tmp_path) == [str(tmp_path / "nvidia0"), str(tmp_path / "nvidia11")]


def test_without_device_files_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "echo 'GPU 0: NVIDIA A100 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA A100 (UUID: GPU-2)'", monkeypatch)
    assert len(nvidia.gpus_in_machine(tmp_path)) == 2


@pytest.mark.parametrize("script", ["exit 9", "echo garbage", "sleep 60", "printf '\\377\\376'"])
def test_a_broken_nvidia_smi_means_none(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "NVIDIA_SMI_SECONDS", 0.5)
    program(tmp_path, script, monkeypatch)
    assert nvidia.gpus_in_machine(tmp_path) == []


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "hangs").write_text("#!/bin/sh\necho begun\nsleep 60 & sleep 60\n")
    (tmp_path / "hangs").chmod(0o755)
    begun = time.monotonic()
    with pytest.raises(nvidia.CommandError, match=r"hangs did not answer within 2\.5 s") as caught:
        nvidia.run_command([str(tmp_path / "hangs")], seconds=2.5)
    assert caught.value.output == "begun\n"
    assert time.monotonic() - begun < 50


def test_a_command_that_fails_gives_its_last_words() -> None:
    with pytest.raises(nvidia.CommandError, match="sh ended with code 18: version mismatch"):
        nvidia.run_command(["sh", "-c", "echo first; echo version mismatch >&2; exit 18"], seconds=10)
    with pytest.raises(nvidia.CommandError, match="absent: No such file"):
        nvidia.run_command(["absent"], seconds=10)


DRIVER = """
#include <cstring>
extern "C" {
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = 40 + ordinal; return ordinal > 1 ? 101 : 0; }
int cuDeviceGetUuid_v2(void* uuid, int device) { std::memset(uuid, device, 16); return 0; }
int cuDeviceTotalMem_v2(std::size_t* bytes, int device) { *bytes = (std::size_t)device << 30; return 0; }
}
"""


def test_the_driver_tells_a_gpu_from_others_and_its_memory(tmp_path: Path) -> None:
    assert (nvidia.gpu_uuid(0), nvidia.gpu_memory(0)) == (None, None) or Path("/dev/nvidiactl").exists()
    (tmp_path / "driver.cc").write_text(DRIVER)
    library = str(tmp_path / "libcuda.so.1")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, str(tmp_path / "driver.cc")], check=True)
    code = "from bert.hardware import nvidia as n; print(*map(n.gpu_uuid, range(3)), *map(n.gpu_memory, range(3)))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    uuids = [str(uuid.UUID(bytes=bytes([number]) * 16)) for number in (40, 41)]
    assert told.stdout.split() == [*uuids, "None", str(40 << 30), str(41 << 30), "None"]
