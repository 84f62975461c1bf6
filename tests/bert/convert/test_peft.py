"""Adapters of peft go out and come in with the same bits; another function of the tensors is refused by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert.convert.__main__ import convert
from bert.core.config import LoraConfig
from bert.core.errors import InputError, UsageError
from bert.core.files import write_json
from bert.labels import Head
from bert.model.heads import TaskModel
from bert.runs import Run
from bert.training import checkpoint
from tests.bert.convert.folders import SMALL, Values, a_run, weights

TAGS = Head(kind="tags", labels=("O", "B-A", "I-A"))


def described(run: Path, values: Values) -> Values:
    """Write what the outputs mean, and a checkpoint that records it."""
    write_json(run / "config.json", TAGS.entries())
    checkpoint.save(run, 8, values, keep=1)
    return values


def test_an_adapter_comes_back_with_its_bits_and_a_variant_of_lora_is_refused(tmp_path: Path) -> None:
    model = TaskModel(SMALL, 0, TAGS)
    base, run = tmp_path / "base", tmp_path / "run"
    described(base, a_run(base, SMALL, model))
    model.encoder.adapt(LoraConfig(rank=3, alpha=12, targets=("query", "outer")), seed=1, first_layer=1)
    values = described(run, a_run(run, SMALL, model))
    with pytest.raises(InputError, match="several ranks or factors"):  # all are random
        convert("export", "peft", run, tmp_path / "none")
    values |= {name: np.array(4, np.float32) for name in values if name.endswith("lora_scale")}
    described(run, values)
    convert("export", "peft", run, tmp_path / "adapter")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    place = "base_model.model.bert.encoder.layer.1"
    assert {name.removeprefix(f"{place}.") for name in tensors} == {
        *(f"{module}.lora_{part}.weight" for module in ("attention.self.query", "output.dense") for part in "AB"),
        *(f"base_model.model.classifier.{part}" for part in ("weight", "bias")),
    }
    np.testing.assert_array_equal(tensors[f"{place}.output.dense.lora_A.weight"], values["layer_1/mlp/outer/lora_a"].T)
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["r"] == 3 and settings["lora_alpha"] == 12 and settings["task_type"] == "TOKEN_CLS"
    assert settings["target_modules"] == ["layer.1.attention.self.query", "layer.1.output.dense"]
    assert settings["modules_to_save"] == ["classifier"]

    convert("import", "peft", tmp_path / "adapter", tmp_path / "back", labels=TAGS.labels, base=base)
    found, of_base = weights(tmp_path / "back"), weights(base, 8)
    assert Run.open(tmp_path / "back").head == TAGS
    for name, value in found.items():
        source = values if name.startswith("tags/") or "/lora_" in name else of_base
        np.testing.assert_array_equal(value, source[name], err_msg=name)
    assert {name for name in found if "/lora_" in name} == {name for name in values if "/lora_" in name}

    def refused(changes: dict[str, object], reason: str, of: Path = base) -> None:
        write_json(tmp_path / "adapter" / "adapter_config.json", settings | changes)
        with pytest.raises((InputError, UsageError), match=reason):
            convert("import", "peft", tmp_path / "adapter", tmp_path / "none", base=of)

    refused({"use_dora": True}, "use_dora is True, which is not supported")
    refused({"corda_config": {"a": 1}}, "corda_config")
    refused({"init_lora_weights": "pissa"}, "init_lora_weights is pissa")
    refused({"bias": "all"}, "bias is all")
    refused({"peft_type": "IA3"}, "not the settings of LoRA")
    refused({"r": 4}, r"is not \[3, 20\]|is not \[4, 20\] finite")
    refused({}, "no such folder|no checkpoint", tmp_path / "nothing")
    with pytest.raises(InputError, match="no low-rank updates"):
        convert("export", "peft", base, tmp_path / "none")
    assert not (tmp_path / "none").exists()
