"""The command: mistakes, the current folder as an argument, an import as initial weights, the model card's command."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from bert import cli, pretrain
from bert.config import ModelConfig
from bert.convert import __main__ as convert
from bert.errors import InputError, UsageError
from bert.pretrain import PretrainingModel
from tests import finished
from tests.bert.training.imports import Bare, export_and_import, write_run
from tests.training import TINY, same_bits, sign, weights, write_dataset


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "no recipe 'nonsense'"),
        (["demo_phase1"], 2, "give --data.train"),
        (["demo_phase1", "--data.train", "/nowhere"], 3, "/nowhere: no such folder"),
        (["demo_phase1", "--batch.per_devise", "3"], 2, "did you mean --batch.per_device"),
        (["demo_phase1", "--data.train", "DATASET", "--batch.total", "7"], 2, "not a multiple of 32"),
        (
            ["demo_phase1", "--data.train", "DATASET", "--model.max_position_embeddings", "5"],
            2,
            "sequences of 13 tokens",
        ),
        (["demo_phase1", "--data.train", "DATASET", "--model.vocab_size", "5"], 2, "made with 99 entries"),
        (["demo_phase2", "--data.train", "DATASET"], 2, "demo_phase2 needs trained weights"),
        (["demo_phase1", "--data.train", "DATASET", "--init.checkpoint", "/nowhere"], 3, "/nowhere: no such folder"),
    ],
)
def test_mistakes_end_in_one_line_and_their_code(
    arguments: list[str],
    code: int,
    message: str,
    dataset: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    monkeypatch.setattr(sys, "argv", ["pretrain", *(str(dataset) if a == "DATASET" else a for a in arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main(pretrain.main)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith(("error:", "Traceback"))]
    assert stopped.value.code == code and len(lines) == 1 and message in lines[0], lines
    assert not (tmp_path / "work").exists() or not list((tmp_path / "work").rglob("checkpoints"))


def test_the_current_folder_can_hold_the_data_and_the_initial_weights(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(dataset)
    pretrain.main(["demo_phase1", "--data.train", ".", "--print", "2"])
    assert "ranks" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"no data: give --data\.train"):
        pretrain.main(["demo_phase1", "--print", "2"])
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    phase2 = ["demo_phase2", *TINY, "--batch.per_device", "3", "--data.train", str(dataset)]
    with pytest.raises(InputError, match=r"^\.: has no checkpoint"):
        pretrain.main([*phase2, "--run.directory", str(tmp_path / "run"), "--init.checkpoint", "."])
    with pytest.raises(UsageError, match="demo_phase2 needs trained weights"):
        pretrain.main(phase2)


@pytest.mark.parametrize(("ones", "refused"), [(0, True), (41, True), (1, False), (None, False)])
def test_training_pairs_of_one_label_are_refused(tmp_path: Path, ones: int | None, refused: bool) -> None:
    folder = write_dataset(tmp_path / "data")
    counts = {"instances": 41} | ({} if ones is None else {"pairs_of_label_1": ones})
    finished.sign(folder, counts={"train": counts, "heldout": {"instances": 11, "pairs_of_label_1": 0}})
    command = ["demo_phase1", "--data.train", str(folder), "--print", "2"]
    if not refused:
        return pretrain.main(command)
    with pytest.raises(InputError, match=rf"data: all training pairs have label {int(ones == 41)}, .* --pairs sop"):
        pretrain.main(command)


@pytest.mark.slow
def test_the_current_folder_can_be_the_run_directory(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    length = ["--batch.per_device", "3", "--run.steps", "1", "--data.train", str(dataset)]
    pretrain.main(["demo_phase2", *TINY, *length, "--run.directory", ".", "--init.checkpoint", "none"])
    assert (tmp_path / "checkpoints/step-00000001").is_dir()
    assert json.loads((tmp_path / "config.json").read_text())["config"]["init.checkpoint"] is None


@pytest.mark.parametrize("small", [[], ["--smoke"]])
@pytest.mark.slow
def test_the_model_card_has_the_command_of_the_run(small: list[str], dataset: Path, tmp_path: Path) -> None:
    flags = [*TINY, "--data.train", str(dataset), "--batch.per_device", "3", "--run.steps", "1"]
    pretrain.main(["demo_phase1", *small, *flags, "--run.directory", str(tmp_path / "ours")])
    convert.main(["export", "huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs")])
    command = shlex.split((tmp_path / "theirs/README.md").read_text().split("```")[1].replace("\\\n", " "))
    assert command[:4] == ["python", "-m", "bert.pretrain", "demo_phase1"]
    pretrain.main([*command[3:], "--run.directory", str(tmp_path / "again")])
    same_bits(weights(tmp_path / "ours", 1), weights(tmp_path / "again", 1))


@pytest.mark.slow
def test_a_run_without_a_recorded_recipe_is_resumed(dataset: Path, tmp_path: Path) -> None:
    flags = [*TINY, "--data.train", str(dataset), "--batch.per_device", "3", "--run.steps", "3"]
    command = ["demo_phase1", *flags, "--run.save_every", "2", "--run.directory", str(tmp_path / "ours")]
    pretrain.main(command)
    path = tmp_path / "ours/config.json"
    facts = json.loads(path.read_text())
    assert facts.pop("recipe") == "demo_phase1"
    path.write_text(json.dumps(facts))
    sign(tmp_path / "ours")
    shutil.rmtree(tmp_path / "ours/checkpoints/step-00000003")
    pretrain.main(command)
    convert.main(["export", "huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs")])
    assert "python -m bert.pretrain RECIPE" in (tmp_path / "theirs/README.md").read_text()


@pytest.mark.parametrize("module", [Bare, lambda config: PretrainingModel(config, 1)], ids=["bare", "all heads"])
@pytest.mark.slow
def test_pretraining_continues_from_an_import(
    module: type[Bare], model_config: ModelConfig, dataset: Path, tmp_path: Path
) -> None:
    before = write_run(tmp_path / "ours", module(model_config), model_config, dataset)
    flags = f"""--data.train {dataset} --init.checkpoint {export_and_import(tmp_path / "ours")} --batch.per_device 3
        --run.directory {tmp_path}/more --run.steps 1"""
    pretrain.main(["demo_phase1", *TINY, "--model.num_hidden_layers", "2", *flags.split()])  # update 1 has rate 0
    after = weights(tmp_path / "more", 1)
    same_bits(before, {name: after[name] for name in before})
    assert after["masked_lm/transform/kernel"].std() > 0
