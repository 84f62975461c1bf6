"""Training goes on from an import without heads, which start fresh; of a run of ours no weight may be missing."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert import pretrain
from bert.config import ModelConfig, PretrainConfig
from bert.convert import __main__ as convert
from bert.errors import InputError, IntegrityError
from bert.model.encoder import Encoder, variables
from bert.model.heads import Pooler
from bert.pretrain import PretrainingModel
from bert.storage import manifest
from bert.training import checkpoint, resume
from bert.training.distributed import Communicator
from squad.model import QuestionAnswering
from tests.training import TINY, same_bits, weights

Values = dict[str, np.ndarray]


class Bare(tf.Module):
    """An encoder with a pooler, as MiniLM is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.encoder, self.pooler = Encoder(config, 1), Pooler(config, 1)


def a_run(folder: Path, module: tf.Module, config: ModelConfig, dataset: Path) -> Values:
    """A run directory with random weights; returns them."""
    random = np.random.default_rng(1)
    values = {name: random.normal(0, 0.1, v.shape).astype(np.float32) for name, v in variables(module).items()}
    folder.mkdir()
    config.save(folder / "bert_config.json")
    shutil.copy(dataset / "vocab.txt", folder)
    (folder / "config.json").write_text(json.dumps({"config": {}}))
    checkpoint.save(folder, 7, values, keep=1)
    return values


def came_in(run: Path) -> Path:
    """The run, exported and imported."""
    theirs, back = run.with_name("theirs"), run.with_name("back")
    convert.main(["export", "huggingface", str(run), str(theirs)])
    convert.main(["import", "huggingface", str(theirs), str(back)])
    return back


def begun(config: PretrainConfig, dataset: Path, start_from: Path) -> Values:
    """The first weights of a run that starts from another."""
    module = variables(PretrainingModel(config.model, config.run.seed))
    data = manifest.load(dataset)
    resume.begin(config, Communicator(), module, data, dataset / "vocab.txt", start_from, new_heads=())
    return {name: variable.numpy() for name, variable in module.items()}


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        (Bare, ["masked_lm", "next_sentence"]),
        (lambda config: QuestionAnswering(config, 1), ["pooler", "masked_lm", "next_sentence"]),
        (lambda config: PretrainingModel(config, 1, "none"), ["pooler", "next_sentence"]),
        (lambda config: PretrainingModel(config, 1), []),
    ],
    ids=["encoder and pooler", "questions", "masked words", "all"],
)
def test_heads_that_an_import_lacks_are_named_and_start_fresh(
    module: type[Bare],
    missing: list[str],
    config: PretrainConfig,
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = a_run(tmp_path / "ours", module(config.model), config.model, dataset)
    back = came_in(tmp_path / "ours")
    capsys.readouterr()
    after = begun(config, dataset, back)
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == bool(missing)
    for line in notes:
        assert re.findall(r"has no ([a-z_, ]+);", line) == [", ".join(missing)]
    random = {name: v.numpy() for name, v in variables(PretrainingModel(config.model, config.run.seed)).items()}
    for name, value in after.items():
        expected = random if name.split("/")[0] in missing else before
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_a_run_of_ours_that_lacks_a_head_is_refused_by_name(
    config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    a_run(tmp_path / "ours", Bare(config.model), config.model, dataset)
    with pytest.raises(InputError, match="no variable masked_lm/bias"):
        begun(config, dataset, tmp_path / "ours")
    (tmp_path / "ours/config.json").unlink()
    with pytest.raises(InputError, match="no variable masked_lm/bias"):
        begun(config, dataset, tmp_path / "ours")


@pytest.mark.parametrize("gone", ["layer_1/mlp/inner/bias", "pooler/kernel", "masked_lm/transform/kernel"])
def test_an_import_of_which_a_part_is_gone_is_refused_by_name(
    gone: str, config: PretrainConfig, dataset: Path, tmp_path: Path
) -> None:
    a_run(tmp_path / "ours", PretrainingModel(config.model, 1), config.model, dataset)
    back = came_in(tmp_path / "ours")
    settings = json.loads((back / "config.json").read_text())
    settings["imported"]["missing_heads"] = ["masked_lm", "next_sentence"]  # as if it had come in without them
    (back / "config.json").write_text(json.dumps(settings))
    values = weights(back, 0)
    del values[gone]
    checkpoint.save(back, 0, values, keep=1)
    with pytest.raises(InputError, match=f"no variable {gone}"):
        begun(config, dataset, back)


@pytest.mark.parametrize("text", ["{", "[]", '{"imported": 3}', '{"imported": {"missing_heads": 3}}'])
def test_a_damaged_description_is_named(text: str, config: PretrainConfig, dataset: Path, tmp_path: Path) -> None:
    a_run(tmp_path / "ours", PretrainingModel(config.model, 1), config.model, dataset)
    (tmp_path / "ours/config.json").write_text(text)
    with pytest.raises(IntegrityError, match=r"ours/config\.json: damaged"):
        begun(config, dataset, tmp_path / "ours")
    assert not config.run.path.exists()


@pytest.mark.parametrize("small", [[], ["--smoke"]])
@pytest.mark.slow
def test_the_card_of_a_run_has_its_command(small: list[str], dataset: Path, tmp_path: Path) -> None:
    flags = [*TINY, "--data.train", str(dataset), "--batch.per_device", "3", "--run.steps", "1"]
    pretrain.main(["demo_phase1", *small, *flags, "--run.directory", str(tmp_path / "ours")])
    convert.main(["export", "huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs")])
    command = shlex.split((tmp_path / "theirs/README.md").read_text().split("```")[1].replace("\\\n", " "))
    assert command[:4] == ["python", "-m", "bert.pretrain", "demo_phase1"]
    pretrain.main([*command[3:], "--run.directory", str(tmp_path / "again")])
    same_bits(weights(tmp_path / "ours", 1), weights(tmp_path / "again", 1))


@pytest.mark.slow
def test_a_run_whose_recipe_was_not_kept_is_resumed(dataset: Path, tmp_path: Path) -> None:
    flags = [*TINY, "--data.train", str(dataset), "--batch.per_device", "3", "--run.steps", "3"]
    command = ["demo_phase1", *flags, "--run.save_every", "2", "--run.directory", str(tmp_path / "ours")]
    pretrain.main(command)
    path = tmp_path / "ours/config.json"
    facts = json.loads(path.read_text())
    assert facts.pop("recipe") == "demo_phase1"
    path.write_text(json.dumps(facts))
    shutil.rmtree(tmp_path / "ours/checkpoints/step-00000003")
    pretrain.main(command)
    convert.main(["export", "huggingface", str(tmp_path / "ours"), str(tmp_path / "theirs")])
    assert "python -m bert.pretrain RECIPE" in (tmp_path / "theirs/README.md").read_text()


@pytest.mark.parametrize("module", [Bare, lambda config: PretrainingModel(config, 1)], ids=["bare", "all heads"])
@pytest.mark.slow
def test_pretraining_goes_on_from_an_import(
    module: type[Bare], model_config: ModelConfig, dataset: Path, tmp_path: Path
) -> None:
    before = a_run(tmp_path / "ours", module(model_config), model_config, dataset)
    flags = f"""--data.train {dataset} --init.checkpoint {came_in(tmp_path / "ours")} --batch.per_device 3
        --run.directory {tmp_path}/more --run.steps 1"""
    pretrain.main(["demo_phase1", *TINY, "--model.num_hidden_layers", "2", *flags.split()])  # update 1 has rate 0
    after = weights(tmp_path / "more", 1)
    same_bits(before, {name: after[name] for name in before})
    assert after["masked_lm/transform/kernel"].std() > 0
