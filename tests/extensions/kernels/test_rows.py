"""The rows of the table of kernels are there, and only a model that asks for one has it."""

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from bert.core.model_config import KERNELS as PARTS
from bert.model.kernels import KERNELS, Kernel, asked, asked_by
from tests.conftest import ROOT

PLAIN = """
import sys
from bert.core.config import ModelConfig, PrecisionConfig
from bert.model.encoder import Encoder
from bert.training import preflight
config = ModelConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
Encoder(config, 1)
preflight.kernels(config, PrecisionConfig(), 16)
print(*(name for name in sys.modules if name.startswith("extensions.kernels")))
"""


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in PARTS.items() for name in names])
def test_a_row_is_a_kernel_that_a_setting_of_the_model_asks_for(part: str, name: str) -> None:
    assert isinstance(KERNELS[name], Kernel)
    assert asked(ModelConfig(), part) is None
    setting: dict[str, Any] = {name: True}
    asking = dataclasses.replace(ModelConfig(), **setting)
    assert asked(asking, part) is KERNELS[name]
    assert asked_by(asking) == [KERNELS[name]] and not asked_by(ModelConfig())


def test_two_kernels_for_one_part_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "norm", {"fused_norm": "", "fused_gelu": ""})
    with pytest.raises(UsageError, match=r"model.fused_norm and model.fused_gelu exclude each other"):
        ModelConfig(fused_norm=True, fused_gelu=True)


def test_a_run_names_the_kernels_that_it_has() -> None:
    model = ModelConfig(fused_attention=True, fused_norm=True, fused_gelu=True)
    assert [kernel.called(model) for kernel in asked_by(model)] == ["fused attention", "fused layer norm", "fused GELU"]
    plain = ModelConfig(fused_attention=True, attention_probs_dropout_prob=0.0)
    assert [kernel.called(plain) for kernel in asked_by(plain)] == ["attention by cuDNN"]


@pytest.mark.slow
def test_a_model_without_kernels_imports_none() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
