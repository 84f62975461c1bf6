"""The command converts there and back with the same bits, once."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bert.convert import __main__ as convert
from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from tests.bert.convert.folders import DEEP, SMALL, RunModule, a_run, models, same_bits, their_folder, weights

NEW = ("BertForMultipleChoice", "BertForTokenClassification")  # Google's format has no names for their heads
PRE = dataclasses.replace(SMALL, norm_placement="pre")  # Megatron's there
CASES = [("huggingface", kind, SMALL) for kind in models(SMALL)]
CASES += [("google", kind, SMALL) for kind in models(SMALL) if kind not in NEW]
CASES += [(form, "BertForPreTraining", DEEP) for form in ("huggingface", "google")]
CASES += [("huggingface", "BertForPreTraining", PRE)]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kind", "config"), CASES)
def test_there_and_back_is_bit_equal(form: str, kind: str, config: ModelConfig, tmp_path: Path) -> None:
    before = a_run(tmp_path / "run", config, models(config)[kind])
    convert.main(["export", form, str(tmp_path / "run"), str(tmp_path / "theirs")])
    convert.main(["import", form, str(tmp_path / "theirs"), str(tmp_path / "back")])
    same_bits(before, weights(tmp_path / "back"))
    assert ModelConfig.load(tmp_path / "back" / "bert_config.json") == config
    for name in ("vocab.txt", "bert_config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    if form == "huggingface":
        described = json.loads((tmp_path / "theirs/config.json").read_text())
        architecture, family = ("Megatron" + kind, "megatron-bert") if config is PRE else (kind, "bert")
        assert (described["architectures"], described["model_type"]) == ([architecture], family)


@pytest.mark.slow
def test_a_failure_is_one_line_and_its_exit_code(run_module: RunModule, tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs")
    (tmp_path / "theirs/model.safetensors").rename(tmp_path / "theirs/pytorch_model.bin")
    done = run_module("bert.convert", "import", "huggingface", tmp_path / "theirs", tmp_path / "run")
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 3 and done.stdout == ""
    assert len(said) == 1 and "pytorch_model.bin" in said[0] and "save_pretrained" in said[0]


def test_the_same_again_is_not_made_again_and_other_weights_are(tmp_path: Path) -> None:
    tensors = their_folder(tmp_path / "theirs")
    command = ["import", "huggingface", str(tmp_path / "theirs"), str(tmp_path / "run")]
    convert.main(command)
    made = (tmp_path / "run/manifest.json").stat().st_ino
    convert.main(command)
    assert (tmp_path / "run/manifest.json").stat().st_ino == made
    their_folder(tmp_path / "theirs", tensors=tensors | {"pooler.dense.bias": np.ones(20, np.float32)})
    convert.main(command)
    np.testing.assert_array_equal(weights(tmp_path / "run")["pooler/bias"], np.ones(20))


@pytest.mark.parametrize("argv", [["import", "keras", "a", "b"], ["import", "google", "a"], ["to", "google", "a", "b"]])
def test_a_wrong_command_line_is_said_to_be_one(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="see --help"):
        convert.main(argv)
