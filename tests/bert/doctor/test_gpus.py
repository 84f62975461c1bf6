"""Driver and GPUs: what is wrong is reported with its remedy."""

import pytest

from bert.doctor import gpus
from bert.hardware import nvidia
from tests.bert.doctor.fake_machine import FakeMachine, about, problems


@pytest.mark.parametrize(("version", "fits"), [("525.60.11", False), ("525.60.13", True)])
def test_a_driver_too_old_for_cuda_12(dgx: FakeMachine, version: str, fits: bool) -> None:
    dgx.driver(version)
    finding = about(dgx.findings(), "driver")
    assert finding.level == ("ok" if fits else "error")
    assert fits or ("525.60.13" in finding.remedy and version in finding.message)


def test_the_driver_of_open_kernel_modules_is_read(dgx: FakeMachine) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\nGCC 13\n"
    dgx.write(dgx.proc / "driver/nvidia/version", text)
    assert "580.95.05" in about(dgx.findings(), "driver").message


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sleep 60", "did not answer within 0.5 s"),
        ("echo garbage", "printed no list of GPUs"),
        ("printf '\\377\\376, \\n'", "printed no list of GPUs"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "code 18: Failed to initialize"),
    ],
)
def test_an_nvidia_smi_that_hangs_fails_or_prints_garbage(
    dgx: FakeMachine, script: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(nvidia, "NVIDIA_SMI_SECONDS", 0.5)
    dgx.program("nvidia-smi", f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    findings = dgx.findings()
    assert problems(findings) == [("nvidia-smi", "error")]
    assert expected in about(findings, "nvidia-smi").message and "dmesg" in about(findings, "nvidia-smi").remedy


def test_device_files_without_an_nvidia_smi(dgx: FakeMachine) -> None:
    (dgx.folder / "bin/nvidia-smi").unlink()
    findings = dgx.findings()
    assert problems(findings) == [("nvidia-smi", "warning")] and about(findings, "driver").level == "ok"


def test_an_older_nvidia_smi_that_lacks_fields_still_lists_the_gpus(dgx: FakeMachine) -> None:
    for row in dgx.rows:
        del row["clocks_throttle_reasons.active"], row["compute_cap"]
    findings = dgx.findings()
    assert problems(findings) == [] and about(findings, "GPUs").message == "8 x NVIDIA H100 80GB HBM3, 80 GiB"


def test_a_gpu_on_the_bus_without_a_driver(laptop: FakeMachine) -> None:
    for name, vendor, kind in (("0000:0f:00.0", "0x10de", "0x030200"), ("0000:00:02.0", "0x8086", "0x030000")):
        laptop.write(laptop.sysfs / "bus/pci/devices" / name / "vendor", vendor)
        laptop.write(laptop.sysfs / "bus/pci/devices" / name / "class", kind)
    finding = about(laptop.findings(), "GPUs")
    assert finding.level == "warning" and finding.message.startswith("1 on the PCI bus") and "driver" in finding.remedy


@pytest.mark.parametrize(
    ("field", "value", "level", "expected"),
    [
        ("mig.mode.current", "Enabled", "error", "MIG is enabled and there are no slices"),
        ("persistence_mode", "Disabled", "warning", "persistence mode is off"),
        ("compute_mode", "Prohibited", "error", "compute mode"),
        ("ecc.errors.uncorrected.volatile.total", "3", "error", "3 uncorrectable memory errors"),
        ("clocks_throttle_reasons.active", "0x0000000000000048", "warning", "hardware slowdown, temperature"),
        ("memory.used", "60321", "warning", "60,321 MiB used"),
        ("compute_cap", "5.2", "error", "needs 6.0 or higher"),
        ("ecc.errors.uncorrected.volatile.total", "[N/A]", "ok", ""),
        ("clocks_throttle_reasons.active", "[Not Supported]", "ok", ""),
    ],
)
def test_what_is_wrong_with_one_gpu(dgx: FakeMachine, field: str, value: str, level: str, expected: str) -> None:
    graphics = gpus.GpuInfo(["/dev/nvidia0"], driver="560.35.03", rows=[dgx.rows[0] | {"index": "5", field: value}])
    findings = [
        finding for finding in gpus.check(graphics, "12.5.1", ["sm_60", "compute_90"]) if finding.subject == "GPU 5"
    ]
    assert [finding.level for finding in findings] == ([] if level == "ok" else [level])
    assert all(expected in finding.message and finding.remedy for finding in findings)


# What nvidia-smi -L printed on an A100 (driver 535), from a public report; the last card is not divided.
LISTED = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16)
  MIG 1g.10gb     Device  0: (UUID: MIG-feb88891-0321-5fef-9c87-d4af3b54259e)
  MIG 1g.10gb     Device  1: (UUID: MIG-a25704ba-3a06-5299-a795-fd7cf4d13973)
  MIG 1c.3g.40gb  Device 10: (UUID: MIG-a45882f0-9215-5733-a0c1-49286ab31cb5)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95)
"""


def test_the_slices_of_a_divided_card_are_listed(dgx: FakeMachine) -> None:
    assert gpus.slices_of(LISTED) == {"0": ["1g.10gb", "1g.10gb", "1c.3g.40gb"]}
    dgx.rows[2] |= {"mig.mode.current": "Enabled", "slices": ["3g.40gb", "1g.10gb", "1g.10gb"]}
    finding = about(dgx.findings(), "GPU 2")
    assert problems(dgx.findings()) == [("GPU 2", "warning")]
    assert "(1 x 3g.40gb, 2 x 1g.10gb)" in finding.message and "its memory" in finding.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capability", "cuda"), [("10.0", "12.8"), ("12.0", "12.8"), ("12.1", "12.9"), ("14.2", "13.0")]
)
def test_a_gpu_that_tensorflows_cuda_does_not_know_is_an_error(dgx: FakeMachine, capability: str, cuda: str) -> None:
    for row in dgx.rows:
        row["compute_cap"] = capability
    finding = about(dgx.findings(), "GPU 3")
    assert finding.level == "error" and "container" in finding.remedy and "Hopper" in finding.remedy
    assert f"{capability} needs CUDA {cuda}; this TensorFlow was built with 12.5.1" in finding.message
    assert "ptxas: 12.9.86 /site/ptxas" in finding.message  # new enough, which does not help
    info = gpus.GpuInfo(["/dev/nvidia0"], driver="580.95.05", rows=[dgx.rows[0] | {"index": "3"}])
    assert problems(list(gpus.check(info, cuda, ["sm_90a", "compute_143"]))) == []  # as NVIDIA's container 25.02


def test_gpus_older_and_newer_than_tensorflow_was_built_for(dgx: FakeMachine) -> None:
    for capability, expected in (("7.0", "no bfloat16"), ("9.0", "")):
        row = dgx.rows[0] | {"index": "0", "compute_cap": capability}
        graphics = gpus.GpuInfo(["/dev/nvidia0"], driver="560.35.03", rows=[row])
        findings = [
            finding for finding in gpus.check(graphics, "12.5.1", ["sm_60", "compute_90"]) if finding.subject == "GPU 0"
        ]
        assert [expected in finding.message and finding.level == "note" for finding in findings] == (
            [True] if expected else []
        )


@pytest.mark.slow
def test_gpus_of_two_kinds_and_one_that_fell_off_the_bus(dgx: FakeMachine) -> None:
    dgx.rows[3] |= {"name": "NVIDIA A100-SXM4-80GB", "compute_cap": "8.0"}
    assert "7 x NVIDIA H100" in about(dgx.findings(), "GPUs").message and problems(dgx.findings()) == [
        ("GPUs", "warning")
    ]
    dgx.rows = dgx.rows[4:]
    assert "4 x" in about(dgx.findings(), "GPUs").message and "8 device files" in about(dgx.findings(), "GPUs").message


def test_a_gpu_newer_than_the_kernels_but_not_than_cuda_has_them_compiled(dgx: FakeMachine) -> None:
    row = dgx.rows[0] | {"index": "0", "compute_cap": "9.0"}
    graphics = gpus.GpuInfo(["/dev/nvidia0"], driver="560.35.03", rows=[row])
    (finding,) = [one for one in gpus.check(graphics, "12.2", ["sm_80", "compute_80"]) if one.subject == "GPU 0"]
    assert finding.level == "note" and "may take minutes" in finding.message
