"""Cores, memory, limits and disk: what is scarce is reported with its remedy."""

import resource
from pathlib import Path

import pytest

from bert.doctor import resources
from tests.bert.doctor.fake_machine import GIB, FakeMachine, about, problems


def test_a_container_with_docker_s_64_mb_of_shared_memory(dgx: FakeMachine) -> None:
    dgx.shared = 64 << 20
    finding = about(dgx.findings(), "shared memory")
    assert finding.level == "warning" and "64 of 64 MiB" in finding.message and "--shm-size" in finding.remedy


def test_one_gpu_has_enough_of_64_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeMachine(tmp_path, monkeypatch, gpus=1)
    machine.shared = 64 << 20
    assert problems(machine.findings()) == []


def test_control_groups_limit_cores_and_memory(dgx: FakeMachine) -> None:
    dgx.write(dgx.sysfs / "fs/cgroup/cpu.max", "800000 100000\n")  # of the group above ours
    dgx.write(dgx.sysfs / "fs/cgroup/job/memory.max", f"{32 * GIB}\n")
    findings = dgx.findings()
    assert problems(findings) == [("CPU", "warning"), ("memory", "warning")]
    assert "the time of 8" in about(findings, "CPU").message and "limited to 32.0" in about(findings, "memory").message


def test_control_groups_of_version_1(dgx: FakeMachine) -> None:
    dgx.write(dgx.proc / "self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n")
    dgx.write(dgx.sysfs / "fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n")
    dgx.write(dgx.sysfs / "fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    dgx.write(dgx.sysfs / "fs/cgroup/memory/job/memory.limit_in_bytes", f"{32 * GIB}\n")
    findings = dgx.findings()
    assert "the time of 4" in about(findings, "CPU").message and "limited to 32.0" in about(findings, "memory").message


def test_limits_of_files_and_stack(laptop: FakeMachine) -> None:
    laptop.limits |= {resource.RLIMIT_NOFILE: 256, resource.RLIMIT_STACK: 1 << 20}
    assert problems(laptop.findings()) == [("open files", "warning"), ("stack", "warning")]


def test_a_full_disk_a_small_one_and_one_that_is_read_only(
    laptop: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, level in ((GIB // 2, "error"), (10 * GIB, "warning"), (30 * GIB, "ok")):
        findings = laptop.findings(space=lambda folder, free=free: (900 * GIB, free))
        assert about(findings, "disk").level == level
    monkeypatch.setattr(resources.os, "access", lambda folder, mode: False)
    assert "not writable" in about(laptop.findings(), "disk").message
    assert not (laptop.folder / "not").exists()
