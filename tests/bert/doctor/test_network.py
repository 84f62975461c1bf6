"""InfiniBand and RDMA: what is missing is reported with its remedy."""

import resource
import shutil

from tests.bert.doctor.fake_machine import FakeMachine, about, problems


def test_an_infiniband_port_that_is_down(dgx: FakeMachine) -> None:
    dgx.port("mlx5_1", state="1: DOWN", physical="3: Disabled")
    findings = [finding for finding in dgx.findings() if finding.subject == "InfiniBand"]
    assert [finding.level for finding in findings] == ["ok", "warning"]
    assert "mlx5_1 port 1 is DOWN, physically Disabled" in findings[1].message and "mlx5_1" not in findings[0].message


def test_limited_locked_memory_matters_where_infiniband_is(dgx: FakeMachine) -> None:
    dgx.limits[resource.RLIMIT_MEMLOCK] = 8 << 20
    finding = about(dgx.findings(), "locked memory")
    assert finding.level == "warning" and "8 MiB" in finding.message and "--ulimit memlock=-1" in finding.remedy
    shutil.rmtree(dgx.sysfs / "class")
    assert problems(dgx.findings()) == []


def test_what_rdma_needs_beside_the_ports(dgx: FakeMachine) -> None:
    (dgx.dev / "infiniband/uverbs0").unlink()
    (dgx.sysfs / "module/nvidia_peermem").rmdir()
    findings = dgx.findings()
    assert problems(findings) == [("RDMA devices", "warning")] and about(findings, "GPUDirect RDMA").level == "note"
