"""Two imaginary machines."""

from pathlib import Path

import pytest

from tests.bert.doctor.fake_machine import FakeMachine


@pytest.fixture
def dgx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Eight GPUs, all fine."""
    return FakeMachine(tmp_path, monkeypatch)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """No GPU; TensorFlow finds no CUDA, which it does not need."""
    machine = FakeMachine(tmp_path, monkeypatch, gpus=0)
    missing = {name: {"error": f"{name}: cannot open shared object file"} for name in machine.packages}
    machine.facts["libraries"] |= {"libraries": missing, "compiler": {}}
    machine.facts["frameworks"]["horovod"]["nccl"] = 0
    return machine
