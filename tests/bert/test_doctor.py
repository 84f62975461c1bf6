"""The doctor on machines that do not exist: what is wrong is named, with its remedy, and nothing else is."""

import ctypes.util
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.doctor import gpus, probe, resources, software
from bert.doctor.__main__ import examine, main, report
from bert.doctor.machine import ROOT, Finding, careful
from bert.errors import ResourceError
from bert.hardware import nvidia
from tests.bert.fake_machine import GIB, FakeMachine, about, worse

RunModule = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def dgx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Eight GPUs, all fine."""
    return FakeMachine(tmp_path, monkeypatch)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """No GPU; TensorFlow finds no CUDA, which it does not need."""
    machine = FakeMachine(tmp_path, monkeypatch, gpus=0)
    lacking = {name: {"error": f"{name}: cannot open shared object file"} for name in machine.packages}
    machine.facts["libraries"] |= {"libraries": lacking, "compiler": {}}
    machine.facts["frameworks"]["horovod"]["nccl"] = 0
    return machine


def test_eight_gpus_that_are_all_fine(dgx: FakeMachine) -> None:
    found = dgx.found()
    assert worse(found) == []
    assert about(found, "GPUs").found == "8 x NVIDIA H100 80GB HBM3, 80 GiB, compute capability 9.0"
    assert "560.35.03, fit for CUDA 12.5.1" in about(found, "driver").found
    assert "mlx5_0 port 1 400 Gb/sec" in about(found, "InfiniBand").found
    assert "2.25.1" in about(found, "NCCL").found and "9.3.0" in about(found, "cuDNN").found


def test_a_machine_without_a_gpu_trains_on_its_cpu(laptop: FakeMachine) -> None:
    found = laptop.found()
    assert worse(found) == []
    assert about(found, "GPUs") == Finding("GPUs", "note", "none; training runs on the CPU")
    assert about(found, "NCCL").level == about(found, "cuDNN").level == "note"


def test_a_gpu_that_tensorflow_does_not_see_is_an_error_with_its_remedy(dgx: FakeMachine) -> None:
    dgx.facts["frameworks"]["gpus"] = []
    seen = about(dgx.found(), "TensorFlow's GPUs")
    assert seen.level == "error" and "0 of 8" in seen.found and seen.remedy == "run make setup DEVICE=gpu"
    for mode in dgx.facts.values():
        for facts in (mode, mode.get("tensorflow", {})):
            if "build" in facts:
                facts["build"] = {"is_cuda_build": False}
    assert "built without CUDA" in about(dgx.found(), "TensorFlow's GPUs").found


def test_gpus_that_the_user_hides_are_no_error(dgx: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    dgx.facts["frameworks"]["gpus"] = ["GPU:0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert worse(dgx.found()) == [("TensorFlow's GPUs", "warning")]


@pytest.mark.parametrize(("version", "fits"), [("470.256.02", False), ("525.60.11", False), ("525.60.13", True)])
def test_a_driver_too_old_for_cuda_12(dgx: FakeMachine, version: str, fits: bool) -> None:
    dgx.driver(version)
    found = about(dgx.found(), "driver")
    assert found.level == ("ok" if fits else "error")
    assert fits or ("525.60.13" in found.remedy and version in found.found)


def test_the_driver_of_open_kernel_modules_is_read(dgx: FakeMachine) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\nGCC 13\n"
    dgx.write(dgx.proc / "driver/nvidia/version", text)
    assert "580.95.05" in about(dgx.found(), "driver").found


def test_libraries_that_are_missing_or_too_old(dgx: FakeMachine) -> None:
    libraries = dgx.facts["libraries"]["libraries"]
    libraries["libcudnn.so.9"] = {"error": "libcudnn.so.9: cannot open shared object file: No such file or directory"}
    libraries["libnccl.so.2"] = {"error": "libnccl.so.2: cannot open shared object file: No such file or directory"}
    libraries["libcudart.so.12"]["version"] = "12.3"
    dgx.facts["libraries"]["compiler"] = {"ptxas": "/usr/bin/ptxas"}
    found = dgx.found()
    assert worse(found) == [(name, "error") for name in ("CUDA libraries", "cuDNN", "NCCL", "XLA's compiler")]
    assert "12.3, older than" in about(found, "CUDA libraries").found
    assert {finding.remedy[:25] for finding in found if finding.level == "error"} == {"run make setup DEVICE=gpu"}


def test_a_container_without_the_driver_s_library(dgx: FakeMachine) -> None:
    dgx.facts["libraries"]["driver"] = {"error": "libcuda.so.1: cannot open shared object file"}
    dgx.facts["frameworks"]["gpus"] = []
    found = dgx.found()
    assert worse(found) == [("TensorFlow's GPUs", "error"), ("driver's library", "error")]
    assert about(found, "TensorFlow's GPUs").remedy == "see the driver's library"
    assert "--gpus all" in about(found, "driver's library").remedy


def test_one_gpu_needs_no_nccl_and_eight_do(dgx: FakeMachine) -> None:
    dgx.facts["libraries"]["libraries"]["libnccl.so.2"] = {"error": "libnccl.so.2: no such file"}
    dgx.facts["frameworks"]["horovod"]["nccl"] = 0
    assert worse(dgx.found()) == [("NCCL", "error"), ("Horovod", "error")]
    for number in range(1, 8):
        (dgx.dev / f"nvidia{number}").unlink()
    dgx.rows = dgx.rows[:1]
    assert worse(dgx.found()) == []


def test_a_horovod_built_for_another_tensorflow(dgx: FakeMachine) -> None:
    dgx.facts["frameworks"]["horovod"] = {"error": "NotFoundError: undefined symbol: _ZN10tensorflow\nand so on"}
    found = about(dgx.found(), "Horovod")
    assert found.level == "error" and "undefined symbol" in found.found and "and so on" not in found.found


def test_a_tensorflow_that_crashes_hangs_or_is_missing(dgx: FakeMachine) -> None:
    ends = {"import os; os.abort()": "ended with code -6", "import time; time.sleep(60)": "did not answer"}
    for code, said in ends.items():
        begun = time.monotonic()
        found = dgx.found(probe=(sys.executable, "-S", "-c", code), patience=1.0)
        assert about(found, "TensorFlow").level == "error" and said in about(found, "TensorFlow").found
        assert time.monotonic() - begun < 15
    dgx.facts["frameworks"] = {"tensorflow": {"error": "ModuleNotFoundError: No module named 'tensorflow'"}}
    assert "does not import" in about(dgx.found(), "TensorFlow").found


def test_a_crash_of_horovod_leaves_what_tensorflow_told(dgx: FakeMachine) -> None:
    del dgx.facts["frameworks"]["horovod"]
    dgx.machine()
    at = str(dgx.folder)
    code = f"import os, pathlib, sys\nprint(pathlib.Path({at!r}, sys.argv[1]).read_text(), flush=True)\nos.abort()"
    found = examine(dgx.machine(probe=code))
    assert about(found, "TensorFlow's GPUs").level == "ok"
    assert "ended with code -6" in about(found, "Horovod").found


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 60", "did not answer within 0.5 s"),
        ("echo garbage", "printed no list of GPUs"),
        ("printf '\\377\\376, \\n'", "printed no list of GPUs"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "code 18: Failed to initialize"),
    ],
)
def test_an_nvidia_smi_that_hangs_fails_or_prints_garbage(
    dgx: FakeMachine, script: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvidia, "NVIDIA_SMI_SECONDS", 0.5)
    dgx.program("nvidia-smi", f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    found = dgx.found()
    assert worse(found) == [("nvidia-smi", "error")]
    assert said in about(found, "nvidia-smi").found and "dmesg" in about(found, "nvidia-smi").remedy


def test_device_files_without_an_nvidia_smi(dgx: FakeMachine) -> None:
    (dgx.folder / "bin/nvidia-smi").unlink()
    found = dgx.found()
    assert worse(found) == [("nvidia-smi", "warning")] and about(found, "driver").level == "ok"


def test_an_older_nvidia_smi_that_lacks_fields_still_lists_the_gpus(dgx: FakeMachine) -> None:
    for row in dgx.rows:
        del row["clocks_throttle_reasons.active"], row["compute_cap"]
    found = dgx.found()
    assert worse(found) == [] and about(found, "GPUs").found == "8 x NVIDIA H100 80GB HBM3, 80 GiB"


def test_a_gpu_on_the_bus_without_a_driver(laptop: FakeMachine) -> None:
    for name, vendor, kind in (("0000:0f:00.0", "0x10de", "0x030200"), ("0000:00:02.0", "0x8086", "0x030000")):
        laptop.write(laptop.sysfs / "bus/pci/devices" / name / "vendor", vendor)
        laptop.write(laptop.sysfs / "bus/pci/devices" / name / "class", kind)
    found = about(laptop.found(), "GPUs")
    assert found.level == "warning" and found.found.startswith("1 on the PCI bus") and "driver" in found.remedy


@pytest.mark.parametrize(
    ("field", "value", "level", "said"),
    [
        ("mig.mode.current", "Enabled", "warning", "MIG is on"),
        ("persistence_mode", "Disabled", "warning", "persistence mode is off"),
        ("compute_mode", "Prohibited", "error", "compute mode"),
        ("ecc.errors.uncorrected.volatile.total", "3", "error", "3 memory errors"),
        ("clocks_throttle_reasons.active", "0x0000000000000048", "warning", "hardware slowdown, temperature"),
        ("memory.used", "60321", "warning", "60,321 MiB taken"),
        ("compute_cap", "5.2", "error", "needs 6.0 or more"),
        ("ecc.errors.uncorrected.volatile.total", "[N/A]", "ok", ""),
        ("clocks_throttle_reasons.active", "[Not Supported]", "ok", ""),
    ],
)
def test_what_is_wrong_with_one_gpu(dgx: FakeMachine, field: str, value: str, level: str, said: str) -> None:
    graphics = gpus.Graphics(["/dev/nvidia0"], driver="560.35.03", rows=[dgx.rows[0] | {"index": "5", field: value}])
    found = [one for one in gpus.check(graphics, "12.5.1", ["sm_60", "compute_90"]) if one.subject == "GPU 5"]
    assert [one.level for one in found] == ([] if level == "ok" else [level])
    assert all(said in one.found and one.remedy for one in found)


def test_gpus_older_and_newer_than_tensorflow_was_built_for(dgx: FakeMachine) -> None:
    for capability, said in (("10.0", "may take minutes"), ("7.0", "no bfloat16"), ("9.0", "")):
        row = dgx.rows[0] | {"index": "0", "compute_cap": capability}
        graphics = gpus.Graphics(["/dev/nvidia0"], driver="560.35.03", rows=[row])
        found = [one for one in gpus.check(graphics, "12.5.1", ["sm_60", "compute_90"]) if one.subject == "GPU 0"]
        assert [said in one.found and one.level == "note" for one in found] == ([True] if said else [])


def test_gpus_of_two_kinds_and_one_that_fell_off_the_bus(dgx: FakeMachine) -> None:
    dgx.rows[3] |= {"name": "NVIDIA A100-SXM4-80GB", "compute_cap": "8.0"}
    assert "7 x NVIDIA H100" in about(dgx.found(), "GPUs").found and worse(dgx.found()) == [("GPUs", "warning")]
    dgx.rows = dgx.rows[4:]
    assert "4 x" in about(dgx.found(), "GPUs").found and "8 device files" in about(dgx.found(), "GPUs").found


def test_an_infiniband_port_that_is_down(dgx: FakeMachine) -> None:
    dgx.port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    found = [one for one in dgx.found() if one.subject == "InfiniBand"]
    assert [one.level for one in found] == ["ok", "warning"]
    assert "mlx5_1 port 1 is DOWN, physically Disabled" in found[1].found and "mlx5_1" not in found[0].found


def test_limited_locked_memory_matters_where_infiniband_is(dgx: FakeMachine) -> None:
    dgx.limits[resource.RLIMIT_MEMLOCK] = 8 << 20
    found = about(dgx.found(), "locked memory")
    assert found.level == "warning" and "8 MiB" in found.found and "--ulimit memlock=-1" in found.remedy
    shutil.rmtree(dgx.sysfs / "class")
    assert worse(dgx.found()) == []


def test_what_rdma_needs_beside_the_ports(dgx: FakeMachine) -> None:
    (dgx.dev / "infiniband/uverbs0").unlink()
    (dgx.sysfs / "module/nvidia_peermem").rmdir()
    found = dgx.found()
    assert worse(found) == [("RDMA devices", "warning")] and about(found, "GPUDirect RDMA").level == "note"


def test_a_container_with_docker_s_64_mb_of_shared_memory(dgx: FakeMachine) -> None:
    dgx.shared = 64 << 20
    found = about(dgx.found(), "shared memory")
    assert found.level == "warning" and "64 of 64 MiB" in found.found and "--shm-size" in found.remedy


def test_one_gpu_has_enough_of_64_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(tmp_path, monkeypatch, gpus=1)
    machine.shared = 64 << 20
    assert worse(machine.found()) == []


def test_control_groups_limit_cores_and_memory(dgx: FakeMachine) -> None:
    dgx.write(dgx.sysfs / "fs/cgroup/cpu.max", "800000 100000\n")  # of the group above ours
    dgx.write(dgx.sysfs / "fs/cgroup/job/memory.max", f"{32 * GIB}\n")
    found = dgx.found()
    assert worse(found) == [("CPU", "warning"), ("memory", "warning")]
    assert "the time of 8" in about(found, "CPU").found and "limited to 32.0" in about(found, "memory").found


def test_control_groups_of_version_1(dgx: FakeMachine) -> None:
    dgx.write(dgx.proc / "self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n")
    dgx.write(dgx.sysfs / "fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n")
    dgx.write(dgx.sysfs / "fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    dgx.write(dgx.sysfs / "fs/cgroup/memory/job/memory.limit_in_bytes", f"{32 * GIB}\n")
    found = dgx.found()
    assert "the time of 4" in about(found, "CPU").found and "limited to 32.0" in about(found, "memory").found


def test_limits_of_files_and_stack(laptop: FakeMachine) -> None:
    laptop.limits |= {resource.RLIMIT_NOFILE: 256, resource.RLIMIT_STACK: 1 << 20}
    assert worse(laptop.found()) == [("open files", "warning"), ("stack", "warning")]


def test_a_full_disk_a_small_one_and_one_that_is_read_only(
    laptop: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, level in ((GIB // 2, "error"), (10 * GIB, "warning"), (30 * GIB, "ok")):
        found = laptop.found(space=lambda folder, free=free: (900 * GIB, free))
        assert about(found, "disk").level == level
    monkeypatch.setattr(resources.os, "access", lambda folder, mode: False)
    assert "cannot be written" in about(laptop.found(), "disk").found
    assert not (laptop.folder / "not").exists()


def test_another_python_and_packages_that_are_missing(laptop: FakeMachine, tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("# a comment\nnumpy==0.1\nno-such-package==1.0  # why\n")
    found = list(software.check_python(laptop.machine(), version=(3, 10, 4)))
    assert found[0].level == "error" and "3.10.4" in found[0].found
    found = [one for one in laptop.found(requirements=pins) if one.subject == "packages"]
    assert [one.level for one in found] == ["warning", "note"]
    assert "no-such-package" in found[0].found and "(not 0.1)" in found[1].found


def test_a_check_that_fails_is_a_warning_and_the_others_go_on(
    dgx: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a machine that nobody has seen")

    for module, name in ((gpus, "check"), (resources, "_memory"), (software, "_mpi")):
        monkeypatch.setattr(module, name, fail)
    found = dgx.found()
    assert worse(found) == [("GPUs", "warning"), ("Horovod", "warning"), ("resources", "warning")]
    assert about(found, "CPU").level == "ok" and about(found, "disk").level == "ok"
    monkeypatch.setattr(gpus, "look", fail)
    assert "RuntimeError: a machine that nobody has seen" in report(dgx.found())
    assert [one.level for one in careful("x", lambda: [Finding("x", "ok", "")])] == ["ok"]


def test_nothing_of_a_strange_machine_makes_it_crash(laptop: FakeMachine) -> None:
    for path in ("self/cgroup", "meminfo", "driver/nvidia/version"):
        laptop.write(laptop.proc / path, "\x00 ::: what is this\n")
    (laptop.dev / "shm").rmdir()
    assert all(level == "warning" for _, level in worse(laptop.found()))


def test_the_exit_code_and_the_lines(
    dgx: FakeMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = dgx.machine()
    monkeypatch.setattr("bert.doctor.__main__.Machine", lambda patience: machine)
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in ("ok", "note") for line in lines) and len(lines) > 15
    dgx.driver("470.1.1")
    with pytest.raises(ResourceError, match="cannot train as it is: driver; the remedies") as caught:
        main(["--json"])
    assert caught.value.exit_code == 5
    shown = json.loads(capsys.readouterr().out)
    assert [one for one in shown if one["level"] == "error"] == [
        {
            "subject": "driver",
            "level": "error",
            "found": "470.1.1, too old for CUDA 12.5.1, which TensorFlow was built with",
            "remedy": "install driver 525.60.13 or newer",
        }
    ]


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


@pytest.mark.slow
def test_this_machine_is_looked_at_for_real(tmp_path: Path, run_module: RunModule) -> None:
    done = run_module("bert.doctor", "--json", "--patience", "110", BERT_WORKDIR=str(tmp_path))
    found = {one["subject"]: one for one in json.loads(done.stdout)}
    assert found["TensorFlow"]["level"] == "ok" and found["Python"]["level"] == "ok"
    assert "Gloo" in found["Horovod"]["found"] or found["Horovod"]["level"] != "ok"
    assert done.returncode == (5 if any(one["level"] == "error" for one in found.values()) else 0)
    assert not list(tmp_path.iterdir())


def test_the_probe_s_list_of_libraries_follows_tensorflow_s_own_build() -> None:
    names = probe.wanted({"cuda_version": "12.5.1", "cudnn_version": "9"})
    assert "libcudart.so.12" in names and "libcudnn.so.9" in names and "libnccl.so.2" in names
    assert probe.wanted({"cuda_version": "13.0", "cudnn_version": "9"})[0] == "libcudart.so.13"
    assert (ROOT / "bert/doctor/probe.py").is_file()
