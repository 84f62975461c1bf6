"""Configuration files: what a value means, what a run's config.json gives, and which mistakes are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bert import pretrain, recipes
from bert.core import cli, config_file
from bert.core.config import RUN_SETTINGS, PretrainConfig, RunConfig, TrainConfig, flatten
from bert.core.errors import InputError, UserError
from bert.plan import __main__ as plan
from squad.config import SquadConfig
from squad.recipes import RECIPES as SQUAD
from tasks.config import TaskConfig
from tasks.recipes import RECIPES as TASKS

PROG = "python -m bert.pretrain"


def chosen(*argv: str) -> list[recipes.Phase]:
    return recipes.choose(argv, prog=PROG, description="")


def write(folder: Path, text: str, name: str = "run.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("optimizer.learning_rate: 1e-4", ["--optimizer.learning_rate", "1e-4"]),  # of YAML 1.1 this is a text
        ("optimizer: {learning_rate: 5E-5, beta_2: .98}", ["--optimizer.learning_rate=5E-5", "--optimizer.beta_2=.98"]),
        (
            "batch:\n  total: 64\n  fit: below\nrun.seed: 07",
            ["--batch.total", "64", "--batch.fit", "below", "--run.seed", "07"],
        ),
        ("batch: {pack: true}\nprecision.xla: null", ["--batch.pack", "true", "--precision.xla", "none"]),
        ("precision.xla: ~", ["--precision.xla", "none"]),
        ("init.checkpoint: none", ["--init.checkpoint", "none"]),
        ("init.checkpoint: 'null'", ["--init.checkpoint", "null"]),  # a folder of that name
        ("run.directory: 1_000", ["--run.directory", "1_000"]),  # of YAML 1.1 this is the number 1000
        ("data.mask_shares: [0.5, 0.25, 0.25]", ["--data.mask_shares", "0.5", "0.25", "0.25"]),
        ("data.train: --strange", ["--data.train=--strange"]),
        ("max_steps: 5\nfp16: true", ["--run.steps", "5", "--precision.compute", "float16"]),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_value_means_what_it_means_on_the_command_line(
    text: str, flags: list[str], before: bool, tmp_path: Path
) -> None:
    file = ["--config", write(tmp_path, text)]
    words = [*file, "demo_phase1"] if before else ["demo_phase1", *file]
    assert chosen(*words) == chosen("demo_phase1", *flags)
    if not before:
        named = write(tmp_path, f"recipe: demo_phase1\n{text}\n")
        assert chosen(f"--config={named}") == chosen("demo_phase1", *flags)


def test_json_is_read_as_yaml_is(tmp_path: Path) -> None:
    values = {"recipe": "demo_phase1", "batch": {"pack": True}, "precision.xla": None, "optimizer.epsilon": 1e-05}
    words = ["--batch.pack", "true", "--precision.xla", "none", "--optimizer.epsilon", "1e-05", "--run.seed", "3"]
    path = write(tmp_path, json.dumps(values), "run.json")
    assert chosen("--config", path, "--run.seed", "3") == chosen("demo_phase1", *words)


def test_flags_override_the_file_and_those_of_one_phase_the_others(tmp_path: Path) -> None:
    text = "data.train: [a, b]\nphase2: {run.steps: 5}\nrun: {steps: 7, seed: 3}\nrun.directory: out\n"
    file = ["--config", write(tmp_path, text)]
    first, second = (phase.config for phase in chosen("demo", *file))
    assert (first.run.steps, second.run.steps, first.run.seed) == (7, 5, 3)
    assert [config.data.train for config in (first, second)] == [Path("a"), Path("b")]
    assert [config.run.directory for config in (first, second)] == [Path("out/phase1"), Path("out/phase2")]
    first, second = (phase.config for phase in chosen("demo", *file, "--run.steps", "9", "--data.train", "c", "d"))
    assert (first.run.steps, second.run.steps, second.data.train) == (9, 9, Path("d"))


def test_a_name_of_another_program_is_reported_with_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "recipe: demo\ndata.train: [a, b]\nmax_steps: 7\nphase2.max_steps: 5\n")
    assert [phase.config.run.steps for phase in chosen("--config", path)] == [7, 5]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"note: {path}: max_steps is run.steps here",
        f"note: {path}: phase2.max_steps is phase2.run.steps here",
    ]
    words = ["--max_steps", "9", "--phase2.num_train_steps=4"]  # both override the file
    assert [phase.config.run.steps for phase in chosen("--config", path, *words)] == [9, 4]


def configurations() -> list[tuple[str, TrainConfig]]:
    """Return a recipe of each kind of option."""
    found: list[tuple[str, TrainConfig]] = [(phase.name, phase.config) for phase in recipes.RECIPES["bert_base"].phases]
    found += [
        (name, recipes.RECIPES[name].phases[0].config) for name in ("bert_large_dgxa100", "gpt2_345m", "bert_3b9")
    ]
    return [*found, *((name, TASKS[name]()) for name in TASKS), *((name, SQUAD[name]()) for name in SQUAD)]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "config"), [pytest.param(*each, id=each[0]) for each in configurations()])
def test_the_record_of_a_run_gives_its_configuration(recipe: str, config: TrainConfig, tmp_path: Path) -> None:
    changed = replace(config, run=replace(config.run, directory=Path("some where/run"), seed=7, stop_at=3))
    recorded = {"recipe": recipe, "labels": ["no", "yes"], "version": 2, "versions": {"numpy": "2"}, "rules": 3}
    path = write(tmp_path, json.dumps(recorded | {"config": flatten(changed), "data": "0f"}), "config.json")
    given = config_file.given(["--config", path], type(config), prog="tool")
    assert given.words[0] == recipe
    made = cli.override(config, given.words[1:], prog="tool", description=None)
    assert flatten(made) == flatten(changed)
    assert given.model_flags(given.words) == RUN_SETTINGS  # the architecture is that of the weights
    more = ["--config", path, "--model.hidden_size", "64"]
    given = config_file.given(more, type(config), prog="tool")
    assert given.model_flags(given.words) == RUN_SETTINGS | {"hidden_size"}


def test_a_miniature_is_recorded_with_its_recipe(tmp_path: Path) -> None:
    config = recipes.RECIPES["demo_phase1"].miniature().phases[0].config
    text = json.dumps({"recipe": "demo_phase1 --smoke", "config": flatten(config), "versions": {}})
    (phase,) = chosen("--config", write(tmp_path, text, "config.json"))
    assert (phase.name, phase.config) == ("demo_phase1", config)


def test_values_that_change_nothing_are_no_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Defaults of TrainingArguments of transformers, as people have them in a file."""
    nothing = "fp16: false\nmax_steps: -1\ndo_train: true\nno_cuda: false\nreport_to: none\nlocal_rank: -1\n"
    nothing += "gradient_accumulation_steps: 1\nresume_from_checkpoint: null\n"
    flags = cli.flags_of(TaskConfig)
    file = config_file.read(Path(write(tmp_path, f"{nothing}warmup_steps: 0.1\nrun.seed: 3")), flags)
    assert file.values == {"length.warmup": "0.1", "run.seed": "3"}
    notes = capsys.readouterr().err
    assert notes.count("changes nothing here") == 8 and "warmup_steps is length.warmup here" in notes
    assert config_file.read(Path(write(tmp_path, "report_to: []\nrun.seed: 3")), flags).values == {"run.seed": "3"}
    assert config_file.read(Path(write(tmp_path, "warmup_steps: 100.0")), flags).values == {
        "optimizer.warmup_steps": "100"
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch: {totl: 4}", "batch.totl: no such key; did you mean batch.total"),
        ("bacth.total: 4", "bacth.total: no such key; did you mean batch.total"),
        ("num_train_epochs: 3", "num_train_epochs is no flag here; give --run.steps"),
        ("max_steps: 3\nrun.steps: 3", "run.steps is given twice; leave one out"),
        ("fp16: half", "fp16 half: only true is taken, for --precision.compute float16; leave it out"),
        (
            "optim: x\nfp16: half\nbacth: 1\nseed:",
            r"yaml: optim is .*\. fp16 half: .*\. bacth: no .*\. run.seed: has no",
        ),
        (
            "a: 1\nb: 2\nc: 3\ndo_train: 0\nd: 4",
            r"yaml: do_train is no .* out\. a, b, c, d: no such keys; the keys are",
        ),
        ("do_train: 0\ndo_eval: 0", "yaml: do_train, do_eval is no flag here; leave it out"),
        ("save_steps: 0.1", "save_steps below 1 is a share of the updates in transformers: give --run.save_every, a"),
        ("warmup_steps: 0.1", "warmup_steps is no flag here; give --optimizer.warmup_steps, a number"),
        ("gradient_accumulation_steps: 4", "gradient_accumulation_steps is no flag here; give --batch.total"),
        ("batch.total: 4x", "argument --batch.total: invalid int value: '4x'"),
        ("batch.total: 4.0", "argument --batch.total: invalid int value: '4.0'"),
        ("batch.total: 0", r"--batch.total 0: must be from 1 to 10000000 \(with the settings of"),
        ("batch.pack: yes", "argument --batch.pack: 'yes' is not true or false"),
        ("batch.pack: True", "argument --batch.pack: 'True' is not true or false"),
        ("batch.fit: closest", r"argument --batch.fit: invalid choice: 'closest'"),
        ("batch.total:", "batch.total: has no value"),
        ("data.mask_shares: []", "data.mask_shares: has no value"),
        ("data.mask_shares: [[1]]", "data.mask_shares: a list holds values only"),
        ("data.train: [--a, b]", "data.train: '--a' begins with --"),
        ("batch: {total: 4}\nbatch.total: 5", "batch.total is given twice"),
        ("batch.total: 4\nbatch.total: 5", "line 2: batch.total is given twice"),
        ("batch.total: !!int 4", r"line 1: a tag \(int\)"),
        ("run.directory: !!python/object/apply:os.system [ls]", r"line 1: a tag \(python/object/apply:os.system\)"),
        ("run.directory: !mine x", r"line 1: a tag \(!mine\)"),
        ("a: &x 1\nb: *x", r"line 2: \*x: write the value itself"),
        ("a: [", "line 1: not YAML"),
        ("a: \x07", "not YAML"),
        ("- a", "not a mapping"),
        ("", "not a mapping"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("[1, 2]: 3", "line 1: a key is not a name"),
        ("recipe: [demo]", "recipe: not a name"),
        ("recipe: dmo", "no recipe 'dmo'; did you mean demo"),
        ("phase2.run.steps: 4\nrecipe: bert_domain", "unknown argument '--phase2.run.steps=4'"),
        ("phase3.run.steps: 4\nrecipe: demo", "demo has 2 phases"),
        ("run.steps: [1, 2]\nrecipe: demo", r"unknown argument '2'.*\(with the settings of"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_mistakes_name_the_file_the_key_and_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    words = ["--config", path] if "recipe" in text else ["demo_phase1", "--config", path]
    with pytest.raises(UserError, match=message) as refused:
        chosen(*words)
    assert path in str(refused.value) and "\n" not in str(refused.value) and refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "argv", "message"),
    [
        ("run.toml", "a = 1", ["demo"], "give a file .yaml, .yml or .json"),
        ("run.json", '{"a": 1, "a": 2}', ["demo"], "not JSON .the name 'a' is repeated"),
        ("run.json", '{"run.seed": NaN}', ["demo"], "not JSON .the number NaN is not finite"),
        ("run.json", "[" * 100_000, ["demo"], "nested too deeply"),
        ("run.yaml", "recipe: demo", ["demo_phase1"], "for the recipe demo, but the command names demo_phase1"),
        ("run.yaml", "run.seed: 3", [], "no recipe given"),
        ("run.yaml", "run.seed: 3", ["demo", "--config", "x"], "--config is given 2 times"),
        ("config.json", '{"config": {}, "versions": {}, "imported": {}}', ["demo"], "the record of an import"),
        ("config.json", '{"hidden_size": 768}', ["demo"], "hidden_size: no such key; did you mean"),
        (
            "config.json",
            '{"config": {"run.sed": 1}, "versions": {}}',
            ["demo"],
            "run.sed: no such key; did you mean run",
        ),
    ],
)
def test_other_files_are_refused(name: str, text: str, argv: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as refused:
        chosen(*argv, "--config", write(tmp_path, text, name))
    assert refused.value.exit_code == 2


def test_a_file_that_is_too_large_or_missing_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"more than 65,536 characters"):
        chosen("demo", "--config", write(tmp_path, "# " + "x" * 2**16))
    with pytest.raises(InputError, match=r"run\.yml: no such file"):
        chosen("demo", "--config", str(tmp_path / "run.yml"))
    for words in (["--config"], ["--config", "--run.seed", "3"], ["--config="]):
        with pytest.raises(UserError, match="--config needs a file"):
            chosen("demo", *words)


def test_epochs_have_no_effect_beside_the_updates_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "recipe: sst2\nrun.steps: 300\noptimizer.warmup_steps: 30\n")
    for flag, other in (("length.epochs", "run.steps"), ("length.warmup", "optimizer.warmup_steps")):
        words = ["--config", path, f"--{flag}", "0.5"]
        with pytest.raises(UserError, match=f"--{flag} has no effect beside {other} .*; give --{other} 0 as well"):
            config_file.given(words, TaskConfig, prog="tool")
        config_file.given([*words, f"--{other}", "0"], TaskConfig, prog="tool")


def test_files_of_questions_have_the_names_of_other_tasks_as_well(tmp_path: Path) -> None:
    path = write(tmp_path, "recipe: squad_base\ndata: {train: a.json, dev: b.json}\n")
    for argv in (["--config", path], ["squad_base", "--data.train", "a.json", "--data.dev=b.json"]):
        words = config_file.given(argv, SquadConfig, prog="tool").words
        _, config = cli.choose(words, SQUAD, prog="tool", description=None)
        assert (config.data.train_file, config.data.dev_file) == (Path("a.json"), Path("b.json"))


def test_commands_take_a_file(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, f"recipe: demo_phase1\ndata.train: {dataset}\nbatch: {{total: 12, per_device: 3}}\n")
    pretrain.main(["--print", "2", "--config", path])
    assert "12 sequences" in capsys.readouterr().out
    plan.main(["--config", path, "--gpu", "l4", "--gpus_per_node", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["phases"][0]["batch"] == 12


def test_a_configuration_of_defaults_is_a_file(tmp_path: Path) -> None:
    values: dict[str, Any] = {"run": {name: value for name, value in flatten(RunConfig()).items() if value is not None}}
    (phase,) = chosen("demo_phase1", "--config", write(tmp_path, json.dumps(values), "run.json"))
    assert isinstance(phase.config, PretrainConfig) and phase.config.run == RunConfig()
