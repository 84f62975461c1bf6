"""The doctor on imaginary machines: problems are reported with their remedies, and nothing else is."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.core.errors import ResourceError
from bert.doctor import gpus, resources, software
from bert.doctor.__main__ import main, report
from bert.doctor.machine import Finding, guarded
from tests.bert.doctor.fake_machine import FakeMachine, about, problems

RunModule = Callable[..., "subprocess.CompletedProcess[str]"]


def test_eight_gpus_that_are_all_fine(dgx: FakeMachine) -> None:
    findings = dgx.findings()
    assert problems(findings) == []
    assert about(findings, "GPUs").message == "8 x NVIDIA H100 80GB HBM3, 80 GiB, compute capability 9.0"
    assert "560.35.03, supports CUDA 12.5.1" in about(findings, "driver").message
    assert "mlx5_0 port 1 400 Gb/sec" in about(findings, "InfiniBand").message
    assert "2.25.1" in about(findings, "NCCL").message and "9.3.0" in about(findings, "cuDNN").message


def test_a_machine_without_a_gpu_trains_on_its_cpu(laptop: FakeMachine) -> None:
    findings = laptop.findings()
    assert problems(findings) == []
    assert about(findings, "GPUs") == Finding("GPUs", "note", "none; training runs on the CPU")
    assert about(findings, "NCCL").level == about(findings, "cuDNN").level == "note"


def test_a_check_that_fails_is_a_warning_and_the_others_go_on(
    dgx: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a machine that nobody has seen")

    for module, name in ((gpus, "check"), (resources, "_memory"), (software, "_mpi")):
        monkeypatch.setattr(module, name, fail)
    findings = dgx.findings()
    assert problems(findings) == [("GPUs", "warning"), ("Horovod", "warning"), ("resources", "warning")]
    assert about(findings, "CPU").level == "ok" and about(findings, "disk").level == "ok"
    monkeypatch.setattr(gpus, "collect", fail)
    assert "RuntimeError: a machine that nobody has seen" in report(dgx.findings())
    assert [finding.level for finding in guarded("x", lambda: [Finding("x", "ok", "")])] == ["ok"]


def test_nothing_of_a_strange_machine_makes_it_crash(laptop: FakeMachine) -> None:
    for path in ("self/cgroup", "meminfo", "driver/nvidia/version"):
        laptop.write(laptop.proc / path, "\x00 ::: what is this\n")
    (laptop.dev / "shm").rmdir()
    assert all(level == "warning" for _, level in problems(laptop.findings()))


def test_the_exit_code_and_the_lines(
    dgx: FakeMachine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = dgx.machine()
    monkeypatch.setattr("bert.doctor.__main__.Machine", lambda patience: machine)
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in ("ok", "note") for line in lines) and len(lines) > 15
    dgx.driver("470.1.1")
    del dgx.facts["frameworks"]["horovod"]["built_with"]  # it would not suffice for that either
    machine = dgx.machine()
    with pytest.raises(ResourceError, match="not ready for training: driver; see the remedies") as caught:
        main(["--json"])
    assert caught.value.exit_code == 5
    shown = json.loads(capsys.readouterr().out)
    assert [finding for finding in shown if finding["level"] == "error"] == [
        {
            "subject": "driver",
            "level": "error",
            "message": "470.1.1 is too old for CUDA 12.5.1, which TensorFlow was built with",
            "remedy": "install driver 525.60.13 or newer",
        }
    ]


@pytest.mark.slow
def test_this_machine_is_looked_at_for_real(tmp_path: Path, run_module: RunModule) -> None:
    done = run_module("bert.doctor", "--json", "--patience", "110", BERT_WORKDIR=str(tmp_path))
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert findings["TensorFlow"]["level"] == "ok" and findings["Python"]["level"] == "ok"
    assert "Gloo" in findings["Horovod"]["message"] or findings["Horovod"]["level"] != "ok"
    assert done.returncode == (5 if any(finding["level"] == "error" for finding in findings.values()) else 0)
    assert not list(tmp_path.iterdir())
