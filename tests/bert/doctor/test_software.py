"""Python, TensorFlow, CUDA libraries and Horovod: what is missing is reported with its remedy."""

import sys
import time
from pathlib import Path

import pytest

from bert.doctor import software
from bert.doctor.__main__ import examine
from tests.bert.doctor.fake_machine import FakeMachine, about, problems


def test_a_gpu_that_tensorflow_does_not_see_is_an_error_with_its_remedy(dgx: FakeMachine) -> None:
    dgx.facts["frameworks"]["gpus"] = []
    seen = about(dgx.findings(), "TensorFlow GPUs")
    assert seen.level == "error" and "0 of 8" in seen.message and seen.remedy == "run make setup DEVICE=gpu"
    for mode in dgx.facts.values():
        for facts in (mode, mode.get("tensorflow", {})):
            if "build" in facts:
                facts["build"] = {"is_cuda_build": False}
    assert "built without CUDA" in about(dgx.findings(), "TensorFlow GPUs").message


def test_gpus_that_the_user_hides_are_no_error(dgx: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    dgx.facts["frameworks"]["gpus"] = ["GPU:0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert problems(dgx.findings()) == [("TensorFlow GPUs", "warning")]


def test_libraries_that_are_missing_or_too_old(dgx: FakeMachine) -> None:
    libraries = dgx.facts["libraries"]["libraries"]
    libraries["libcudnn.so.9"] = {"error": "libcudnn.so.9: cannot open shared object file: No such file or directory"}
    libraries["libnccl.so.2"] = {"error": "libnccl.so.2: cannot open shared object file: No such file or directory"}
    libraries["libcudart.so.12"]["version"] = "12.3"
    dgx.facts["libraries"]["compiler"] = {"ptxas": "/usr/bin/ptxas"}
    findings = dgx.findings()
    assert problems(findings) == [(name, "error") for name in ("CUDA libraries", "cuDNN", "NCCL", "XLA compiler")]
    assert "12.3 is older than" in about(findings, "CUDA libraries").message
    assert {finding.remedy[:25] for finding in findings if finding.level == "error"} == {"run make setup DEVICE=gpu"}


def test_a_container_without_the_driver_s_library(dgx: FakeMachine) -> None:
    dgx.facts["libraries"]["driver"] = {"error": "libcuda.so.1: cannot open shared object file"}
    dgx.facts["frameworks"]["gpus"] = []
    findings = dgx.findings()
    assert problems(findings) == [("TensorFlow GPUs", "error"), ("driver library", "error")]
    assert about(findings, "TensorFlow GPUs").remedy == "see driver library"
    assert "--gpus all" in about(findings, "driver library").remedy


def test_one_gpu_needs_no_nccl_and_eight_do(dgx: FakeMachine) -> None:
    dgx.facts["libraries"]["libraries"]["libnccl.so.2"] = {"error": "libnccl.so.2: no such file"}
    dgx.facts["frameworks"]["horovod"]["nccl"] = 0
    assert problems(dgx.findings()) == [("NCCL", "error"), ("Horovod", "error")]
    for number in range(1, 8):
        (dgx.dev / f"nvidia{number}").unlink()
    dgx.rows = dgx.rows[:1]
    assert problems(dgx.findings()) == []


def test_without_horovod_ranks_need_the_other_communicator(dgx: FakeMachine) -> None:
    dgx.facts["frameworks"]["horovod"] = {"error": "ModuleNotFoundError: No module named 'horovod'"}
    finding = about(dgx.findings(), "Horovod")
    assert finding.level == "error" and "need --run.communicator tensorflow (ModuleNotFoundError" in finding.message


@pytest.mark.slow
def test_a_horovod_whose_kernels_cannot_run_here(dgx: FakeMachine) -> None:
    horovod = dgx.facts["frameworks"]["horovod"]
    horovod["built_with"]["cuda"] = "13.0.88"
    finding = about(dgx.findings(), "Horovod")
    assert (
        problems(dgx.findings()) == [("Horovod", "error")]
        and finding.remedy == "run make setup DEVICE=gpu on this machine"
    )
    assert finding.message == (
        "0.28.1 was compiled with CUDA 13.0.88, which needs driver 580.65.06 or newer; this one is 560.35.03"
    )
    dgx.driver("580.95.05")
    assert problems(dgx.findings()) == []
    dgx.rows[3] |= {"compute_cap": "7.0"}
    assert "compiled for compute capability 7.5 and newer; a GPU has 7.0" in about(dgx.findings(), "Horovod").message
    del horovod["built_with"]  # NVIDIA's container
    assert about(dgx.findings(), "Horovod").level == "ok"


def test_a_horovod_built_for_another_tensorflow(dgx: FakeMachine) -> None:
    dgx.facts["frameworks"]["horovod"] = {"error": "NotFoundError: undefined symbol: _ZN10tensorflow\nand so on"}
    finding = about(dgx.findings(), "Horovod")
    assert finding.level == "error" and "undefined symbol" in finding.message and "and so on" not in finding.message


@pytest.mark.slow
def test_a_tensorflow_that_crashes_hangs_or_is_missing(dgx: FakeMachine) -> None:
    ends = [
        ("import os; os.abort()", 60.0, "ended with code -6"),
        ("import time; time.sleep(60)", 1.0, "did not answer"),
    ]
    for code, patience, expected in ends:
        begun = time.monotonic()
        findings = dgx.findings(probe=(sys.executable, "-S", "-c", code), patience=patience)
        assert about(findings, "TensorFlow").level == "error" and expected in about(findings, "TensorFlow").message
        assert time.monotonic() - begun < 50
    dgx.facts["frameworks"] = {"tensorflow": {"error": "ModuleNotFoundError: No module named 'tensorflow'"}}
    assert "cannot be imported" in about(dgx.findings(), "TensorFlow").message


def test_a_crash_of_horovod_leaves_what_tensorflow_told(dgx: FakeMachine) -> None:
    del dgx.facts["frameworks"]["horovod"]
    dgx.machine()
    at = str(dgx.folder)
    code = f"import os, pathlib, sys\nprint(pathlib.Path({at!r}, sys.argv[1]).read_text(), flush=True)\nos.abort()"
    findings = examine(dgx.machine(probe=code))
    assert about(findings, "TensorFlow GPUs").level == "ok"
    assert "ended with code -6" in about(findings, "Horovod").message


def test_another_python_and_packages_that_are_missing(laptop: FakeMachine, tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("# a comment\nnumpy==0.1\nno-such-package==1.0  # why\n")
    findings = list(software.check_python(laptop.machine(), version=(3, 10, 4)))
    assert findings[0].level == "error" and "3.10.4" in findings[0].message
    findings = [finding for finding in laptop.findings(requirements=pins) if finding.subject == "packages"]
    assert [finding.level for finding in findings] == ["warning", "note"]
    assert "no-such-package" in findings[0].message and "(not 0.1)" in findings[1].message
