"""The command: mistakes, the current folder as an argument, an import as initial weights, the model card's command."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert import pretrain, pretraining, recipes
from bert.convert import __main__ as convert
from bert.core import cli
from bert.core.config import ModelConfig
from bert.core.errors import InputError, Stopped, UsageError
from bert.plan import __main__ as plan
from bert.pretraining import PretrainingModel
from bert.training import step
from tests import finished
from tests.bert.training.imports import Bare, export_and_import, write_run
from tests.training import ROOT, TINY, checkpoints, errors, losses, measured, same_bits, sign, weights, write_dataset


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "no recipe 'nonsense'"),
        (["demo_phase1"], 2, "give --data.train"),
        (["demo_phase1", "--data.train", "/nowhere"], 3, "/nowhere: no such folder"),
        (["demo_phase1", "--batch.per_devise", "3"], 2, "did you mean --batch.per_device"),
        (["demo_phase1", "--data.train", "DATASET", "--batch.total", "7"], 2, "not a multiple of 32"),
        (["demo_phase1", "--data.train", "DATASET", "--model.max_position_embeddings", "5"], 2, "of 13 tokens"),
        (["demo_phase1", "--data.train", "DATASET", "--model.vocab_size", "5"], 2, "made with 99 entries"),
        (["demo_phase2", "--data.train", "DATASET"], 2, "demo_phase2 needs trained weights"),
        (["demo_phase1", "--data.train", "DATASET", "--init.checkpoint", "/nowhere"], 3, "/nowhere: no such folder"),
        (["gpt2_smoke"], 2, "a folder made by python -m data.tokens"),
        (["gpt2_smoke", "--data.train", "DATASET"], 3, "make them with python -m data.tokens"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--batch.pack", "true"], 2, "batch.pack has no effect"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--batch.bucket_by_length", "2"], 2, "batch.bucket_by_length needs"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--data.skip_bad", "1"], 2, "data.skip_bad has no effect"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--data.length", "65"], 2, "sequences of 65 tokens"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--data.length", "500"], 3, "a sample needs 501"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--model.vocab_size", "99"], 2, "made with 257 entries"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--optimizer.minimum_rate", "1"], 2, "is more than optimizer.learn"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--optimizer.decay_steps", "7"], 2, "within optimizer.warmup_steps"),
        (["gpt2_smoke", "--data.train", "TOKENS", "--optimizer.decay_power", "0.5"], 2, "with optimizer.schedule cos"),
    ],
)
def test_mistakes_end_in_one_line_and_their_code(
    arguments: list[str],
    code: int,
    message: str,
    dataset: Path,
    tokens: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path / "work"))
    places = {"DATASET": str(dataset), "TOKENS": str(tokens)}
    monkeypatch.setattr(sys, "argv", ["pretrain", *(places.get(word, word) for word in arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main(pretrain.main)
    lines = errors(capfd.readouterr().err)
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
def test_a_run_on_data_of_which_nothing_is_held_out_says_so_and_has_no_held_out_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_dataset(tmp_path / "data")
    described = json.loads((folder / "manifest.json").read_text())["files"]
    finished.sign(folder, files={name: facts for name, facts in described.items() if "heldout" not in name})
    flags = [*TINY, "--batch.per_device", "3", "--run.steps", "4", "--data.train", str(folder)]
    pretrain.main(["demo_phase1", *flags, "--run.directory", str(tmp_path / "run")])
    assert "nothing is held out, so there are no held-out figures" in capsys.readouterr().err
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert {line["split"] for line in lines} == {"train", "fed"}


@pytest.mark.slow
def test_the_model_card_has_the_command_of_the_run(dataset: Path, tmp_path: Path) -> None:
    flags = [*TINY, "--data.train", str(dataset), "--batch.per_device", "3", "--run.steps", "1"]
    pretrain.main(["demo_phase1", "--smoke", *flags, "--run.directory", str(tmp_path / "ours")])
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


SHORT = [*TINY, "--batch.per_device", "3", "--run.save_every", "1"]
SHORT += ["--phase1.run.steps", "3", "--phase2.run.steps", "3"]


@pytest.fixture(scope="module")
def two_phases(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Runs of both phases by a command for each, in the folders of `make pretrain`; the command for both."""
    work, other = tmp_path_factory.mktemp("phases"), write_dataset(tmp_path_factory.mktemp("second") / "data", seed=8)
    small = [*TINY, "--batch.per_device", "3", "--run.save_every", "1", "--run.steps"]
    first, second = work / "pretrain/demo_phase1", work / "pretrain/demo_phase2"
    pretrain.main(["demo_phase1", *small, "3", "--data.train", str(dataset), "--run.directory", str(first)])
    begun = ["--init.checkpoint", str(first), "--run.directory", str(second)]
    pretrain.main(["demo_phase2", *small, "3", "--data.train", str(other), *begun])
    return work, ["demo", *SHORT, "--data.train", str(dataset), str(other)]


@pytest.mark.slow
def test_a_recipe_trains_all_its_phases_as_a_command_for_each_does(
    two_phases: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, command = two_phases
    modules: list[weakref.ref[Any]] = []
    task_for = pretraining.task_for

    def remembered(*arguments: Any) -> Any:
        assert all(module() is None for module in modules), "the weights of the phase before are still in memory"
        task = task_for(*arguments)
        modules.append(weakref.ref(task.module))
        return task

    monkeypatch.setattr(pretraining, "task_for", remembered)
    pretrain.main([*command, "--run.directory", str(tmp_path / "run")])
    for number in (1, 2):
        one, ours = work / f"pretrain/demo_phase{number}", tmp_path / f"run/phase{number}"
        same_bits(weights(one, 3), weights(ours, 3))
        assert losses(one) == losses(ours)
        assert json.loads((ours / "config.json").read_text())["recipe"] == f"demo_phase{number}"
    assert len(modules) == 2


@pytest.mark.multiprocess
def test_two_ranks_train_all_phases_in_one_process_each(two_phases: tuple[Path, list[str]], tmp_path: Path) -> None:
    work, command = two_phases
    launch = [str(ROOT / "scripts" / "launch.sh"), "-np", "2", "--", sys.executable, "-m", "bert.pretrain", *command]
    flags = ["--parallel.shard_optimizer", "true", "--run.directory", str(tmp_path)]
    done = subprocess.run([*launch, *flags], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    for number in (1, 2):
        one, ours = losses(work / f"pretrain/demo_phase{number}"), losses(tmp_path / f"phase{number}")
        assert list(ours.values()) == pytest.approx(list(one.values()), rel=1e-5)


def checkpoint_times(run: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (run / "checkpoints").glob("*/*")}


@pytest.mark.slow
def test_a_finished_phase_is_not_run_again_and_make_s_folders_are_the_default(
    two_phases: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, command = two_phases
    shutil.copytree(work, tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "pretrain").glob("*/config.json"):
        path.write_text(path.read_text().replace(str(work), str(tmp_path)))
        sign(path.parent)
    monkeypatch.setenv("BERT_WORKDIR", str(tmp_path))
    shutil.rmtree(tmp_path / "pretrain/demo_phase2/checkpoints/step-00000003")
    lines, made = measured(tmp_path / "pretrain/demo_phase1"), checkpoint_times(tmp_path / "pretrain/demo_phase1")
    pretrain.main(command)
    assert measured(tmp_path / "pretrain/demo_phase1") == lines
    assert checkpoint_times(tmp_path / "pretrain/demo_phase1") == made
    same_bits(weights(work / "pretrain/demo_phase2", 3), weights(tmp_path / "pretrain/demo_phase2", 3))


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "update"), [(1, 3), pytest.param(2, 1, marks=pytest.mark.thorough)])
def test_a_stopped_recipe_goes_on_in_the_right_phase(
    phase: int,
    update: int,
    two_phases: tuple[Path, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    handlers: object,
) -> None:
    work, command = two_phases
    command = [*command, "--run.directory", str(tmp_path)]
    make_update, phases = step.Step.update, list[object]()

    def asking(self: step.Step, number: int, *arguments: Any, **named: Any) -> Any:
        if self not in phases:
            phases.append(self)
        if (len(phases), number) == (phase, update):
            os.kill(os.getpid(), signal.SIGTERM)
        return make_update(self, number, *arguments, **named)

    with monkeypatch.context() as patch, pytest.raises(Stopped, match="the same command"):
        patch.setattr(step.Step, "update", asking)
        pretrain.main(command)
    assert checkpoints(tmp_path / f"phase{phase}")[-1] == f"step-{min(update + 1, 3):08d}"
    assert (tmp_path / "phase2").exists() == (phase == 2)
    for number, handler in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        signal.signal(number, handler)
    pretrain.main(command)
    same_bits(weights(work / "pretrain/demo_phase2", 3), weights(tmp_path / "phase2", 3))


def test_all_phases_are_described(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain.main(["demo", *TINY[:12], "--data.train", str(dataset), str(dataset), "--print", "2"])
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("demo_phase1\n") and "900" in first
    assert second.startswith("demo_phase2\n") and "200" in second


@pytest.mark.parametrize(
    ("second", "said"), [("/nowhere", "/nowhere: no such folder"), ("OTHER", r"vocab\.txt differ; make the data with")]
)
def test_the_data_of_all_phases_are_checked_before_the_first_starts(
    second: str, said: str, dataset: Path, tmp_path: Path
) -> None:
    other = write_dataset(tmp_path / "other")
    words = (other / "vocab.txt").read_text()
    (other / "vocab.txt").write_text(words.replace("w7\n", "v7\n"))
    finished.sign(other)
    folders = ["--data.train", str(dataset), second.replace("OTHER", str(other))]
    with pytest.raises((InputError, UsageError), match=said):
        pretrain.main(["demo", *SHORT, *folders, "--run.directory", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def without_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("none") / "data", pairs="none")


REPLACED = ["--model.position_initializer", "normal", "--phase1.objective.name", "replaced_tokens"]


@pytest.mark.parametrize(
    ("first", "flags", "said"),
    [
        ("PAIRS", ["--phase2.batch.per_device", "5"], "batch.total 6 is not a multiple of 5"),
        ("PAIRS", ["--phase2.init.frozen_layers", "9"], "init.frozen_layers 9 is more than the 1 layers"),
        ("PAIRS", ["--phase2.run.directory", "PAIRS/run"], "is in the folder of the data"),
        ("PAIRS", ["--phase2.run.directory", "RUN/phase1"], "demo_phase1 and demo_phase2 have one run.directory"),
        ("PAIRS", ["--phase2.distill.teacher", "/nowhere"], "/nowhere: no such folder"),
        ("PAIRS", ["--phase2.model.fused_norm", "true"], "model.fused_norm needs --precision.xla true"),
        ("NONE", [], "made with --pairs nsp, but the data of demo_phase1 with --pairs none"),
        ("NONE", [*REPLACED, "--phase2.objective.name", "replaced_tokens"], "has no objective on pairs; make the data"),
        ("NONE", REPLACED, "demo_phase2 learns masked words, for which the weights of demo_phase1 have no head"),
    ],
)
def test_a_mistake_in_a_later_phase_is_reported_before_the_first_starts(
    first: str, flags: list[str], said: str, dataset: Path, without_pairs: Path, tmp_path: Path
) -> None:
    command = ["demo", *SHORT, "--data.train", first, "PAIRS", "--run.directory", "RUN", *flags]
    for place, path in {"PAIRS": dataset, "NONE": without_pairs, "RUN": tmp_path / "run"}.items():
        command = [word.replace(place, str(path)) for word in command]
    with pytest.raises((InputError, UsageError), match=re.escape(said)):
        pretrain.main(command)
    assert not list(tmp_path.rglob("checkpoints"))


@pytest.mark.slow
def test_a_phase_does_not_begin_anew_before_one_that_has_begun_from_its_weights(
    two_phases: tuple[Path, list[str]], tmp_path: Path
) -> None:
    work, command = two_phases
    shutil.copytree(work / "pretrain/demo_phase2", tmp_path / "phase2")
    with pytest.raises(UsageError, match=r"phase2: has begun, but .* would make now: \S*phase1 has no checkpoint"):
        pretrain.main([*command, "--run.directory", str(tmp_path)])
    assert not (tmp_path / "phase1").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("first_step", "told"), [("3", False), ("0", False), ("9", True)])
def test_a_phase_that_does_not_go_on_where_the_schedule_was_left_is_reported(
    first_step: str,
    told: bool,
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pretraining, "train", lambda *arguments: None)
    monkeypatch.setattr(pretraining, "_tell_end", lambda phase: None)
    command = ["demo", *SHORT, "--data.train", str(dataset), str(dataset), "--run.directory", str(tmp_path / "run")]
    pretrain.main([*command, "--phase2.optimizer.first_step", first_step])
    note = (
        "the learning rate of demo_phase2 goes on from update 9 of the schedule, but demo_phase1 ends after update 3; "
        "--phase2.optimizer.first_step 3 goes on there"
    )
    assert (note in capsys.readouterr().err) == told


@pytest.fixture(scope="module")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose architecture is that of no recipe."""
    config = ModelConfig(
        vocab_size=99,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=28,
        max_position_embeddings=17,
        layer_norm_epsilon=1e-5,
        hidden_act="gelu_tanh",
        hidden_dropout_prob=0.3,
        vocab_multiple=7,
    )
    run = tmp_path_factory.mktemp("trained") / "run"
    write_run(run, PretrainingModel(config, 1), config, dataset)
    return run


def test_initial_weights_give_the_architecture_and_the_recipe_the_rest(trained: Path) -> None:
    flags = ["--init.checkpoint", str(trained), "--model.hidden_dropout_prob", "0.2", "--model.num_hidden_layers", "3"]
    (phase,) = recipes.with_architectures(recipes.choose(["bert_domain", *flags], prog="p", description=""))
    theirs, recipe = ModelConfig.load(trained / "bert_config.json"), recipes.RECIPES["bert_domain"].phases[0].config
    own = dataclasses.replace(theirs, vocab_multiple=recipe.model.vocab_multiple, hidden_dropout_prob=0.2)
    assert phase.config.model == own


def test_what_is_described_and_planned_is_the_model_of_the_initial_weights(
    trained: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["--init.checkpoint", str(trained)]
    count = sum(int(np.prod(value.shape)) for value in PretrainingModel(
        ModelConfig.load(trained / "bert_config.json"), 1).trainable_variables)  # fmt: skip
    pretrain.main(["bert_domain", *start, "--data.train", str(dataset), "--print", "2"])
    assert f"{count:,}" in capsys.readouterr().out
    plan.main(["bert_domain", *start, "--gpu", "h100-sxm", "--sequence", "13", "--json"])
    assert json.loads(capsys.readouterr().out)["phases"][0]["parameters"] == count
    both = ["demo", "--phase1.init.checkpoint", str(trained), "--gpu", "h100-sxm", "--sequence", "13", "--json"]
    plan.main(both)
    assert [phase["parameters"] for phase in json.loads(capsys.readouterr().out)["phases"]] == [count, count]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--model.num_hidden_layers 12", "num_hidden_layers 12 contradicts the weights of RUN, whose model.* is 3"),
        ("--model.layer_norm_epsilon=1e-12", "layer_norm_epsilon 1e-12 contradicts the weights of RUN, .* is 1e-05"),
        ("--model.vocab_size 98", "vocab_size 98 contradicts the weights of RUN, .* is 99; leave it out"),
    ],
)
@pytest.mark.parametrize("shown", [[], ["--print", "2"]])
def test_a_flag_that_contradicts_the_initial_weights_is_refused(
    flags: str, said: str, shown: list[str], trained: Path, dataset: Path, tmp_path: Path
) -> None:
    words = ["--init.checkpoint", str(trained), "--data.train", str(dataset), "--run.directory", str(tmp_path / "run")]
    with pytest.raises(UsageError, match=said.replace("RUN", str(trained))):
        pretrain.main(["bert_domain", *words, *flags.split(), *shown])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_domain_is_trained_from_weights_of_any_depth_and_resumed_without_them(
    trained: Path, dataset: Path, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    shutil.copytree(trained, start)
    small = "--batch.total 6 --batch.per_device 3 --precision.compute float32 --precision.xla false --run.save_every 1"
    command = ["bert_domain", "--init.checkpoint", str(start), "--data.train", str(dataset), *small.split()]
    command += ["--run.directory", str(tmp_path / "run"), "--run.steps", "3"]
    pretrain.main(command)
    whole = weights(tmp_path / "run", 3)
    assert "layer_2/mlp/inner/kernel" in whole and "layer_3/mlp/inner/kernel" not in whole
    assert ModelConfig.load(tmp_path / "run/bert_config.json").hidden_act == "gelu_tanh"
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000003")
    shutil.rmtree(start)  # they are in the run's own checkpoints by now
    pretrain.main(command)
    same_bits(whole, weights(tmp_path / "run", 3))
    with pytest.raises(UsageError, match=r"model\.num_hidden_layers was 3, now 5"):
        pretrain.main([*command, "--model.num_hidden_layers", "5"])
