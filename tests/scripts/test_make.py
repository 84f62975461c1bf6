"""The Makefile with values that a shell or make could take for code, and with paths that are merely unusual."""

import json
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.test_setup import Machine

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", "")
VARIABLES = next(iter(re.findall(r"^VARIABLES := (.*)$", MAKEFILE, re.MULTILINE)), "").split()
SOURCES = ("WIKIPEDIA", "BOOKS", "TEXT", "PUBMED")
PATHS = (*SOURCES, "VOCAB", "SQUAD_TRAIN", "SQUAD_DEV", "SQUAD_RUN", "PRETRAINED", "BERT_WORKDIR")
STUBS = ("python", "horovodrun", "pytest", "ruff", "mypy", "lint-imports", "shellcheck")
# Each part would leave a file behind if a shell, or make, ever read it.
HOSTILE = (
    "a'b\"c`touch PWNED1`$(touch PWNED2)$(shell touch PWNED3)${shell touch PWNED4};touch PWNED5;"
    "' ; touch PWNED6 ; ' \" ; touch PWNED7 ; \" && touch PWNED8 | touch PWNED9 & $(eval $(shell touch PWNED10)) #"
)
ODD: list[Any] = ["""-a b$c$$d$(e)${HOME}'f"g`h`#i;j\\k%l*m?[n]~&|<>(o){p,q}!=: \u00e4\u65e5"""]  # all at once
ALONE = ("a b", " a", "$a$(b)", "'a\"", "`a`", "a#b;c\\", "*[a]", "~", "-a", "--a=b")
ODD += [pytest.param(value, marks=pytest.mark.slow) for value in ALONE]
BOTH = pytest.mark.parametrize("on_command_line", [False, pytest.param(True, marks=pytest.mark.slow)])


def targets() -> list[str]:
    """All targets that `make help` lists."""
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    return phony[1].split()


class Checkout:
    """A checkout in which every program that a target runs writes down its arguments and does nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shown = folder / "checkout", folder / "shown"
        (self.folder / "bin").mkdir(parents=True)
        for path in (*ROOT.glob("requirements*"), *(ROOT / name for name in ("Makefile", "scripts", "bert", "squad"))):
            (self.folder / path.name).symlink_to(path)
        for name in STUBS:
            self._stub(self.folder / "bin" / name)
        for name in ("parity", "gpu-check", "lock", "audit"):
            if (ROOT / f"requirements-{name}.txt").exists():
                venv = self.folder / f".venv-{name}"
                self._stub(venv / "bin" / {"lock": "uv", "audit": "pip-audit"}.get(name, "python"))
                digest = sha256((ROOT / f"requirements-{name}.txt").read_bytes()).hexdigest()
                (venv / ".stamp").write_text(f"{digest}  -\n")

    def _stub(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!{sys.executable} -S\nimport json, sys\n"
            f"open({str(self.shown)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n"
        )
        path.chmod(0o755)

    def make(self, *goals: str, on_command_line: bool = False, **variables: str) -> tuple[int, str, list[list[str]]]:
        """Exit status, standard error and the arguments of every program that was run."""
        env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.folder), "VENV": "/nonexistent", "NP": "1"}
        words = [f"{name}={value}" for name, value in variables.items()] if on_command_line else []
        self.shown.unlink(missing_ok=True)
        done = subprocess.run(
            ["make", "--no-print-directory", *(["-k"] if len(goals) > 3 else []), "-o", "setup", *goals, *words],
            cwd=self.folder,
            env=env if on_command_line else env | variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        lines = self.shown.read_text().splitlines() if self.shown.exists() else []
        assert not (found := list(self.folder.rglob("PWNED*"))), f"{found} by {goals}\n{done.stderr}"
        return done.returncode, done.stderr, [json.loads(line) for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout without any work folder."""
    return Checkout(tmp_path)


def test_every_variable_that_help_names_is_taken_as_text() -> None:
    lines = re.findall(r"^##   (\S.*)", MAKEFILE, re.MULTILINE)
    named = {name for line in lines for name in re.findall(r"(?:^|[;,]  ?)([A-Z][A-Z0-9_]+)\b", line)}
    assert len(named) > 20 and named <= {*VARIABLES}


def test_no_recipe_pastes_a_variable_into_shell_text() -> None:
    recipes = re.findall(r"^\t(.*)$", MAKEFILE, re.MULTILINE)
    pasted = {name for line in recipes for name in re.findall(r"(?<!\$)\$[({](\w+)", line)}
    assert pasted <= {"IN", "FLAGGED", "MAKE"} and "$(shell" not in MAKEFILE


@BOTH
def test_no_target_runs_what_a_value_contains(on_command_line: bool, checkout: Checkout) -> None:
    hostile = {name: HOSTILE for name in VARIABLES if name not in ("RECIPE", "SQUAD_RECIPE", "TASK", "NP")}
    goals = [goal for goal in targets() if goal not in ("setup", "clean")]
    code, error, _ = checkout.make(*goals, on_command_line=on_command_line, **hostile)
    assert code == 2 and "error: FLAGS: no closing quotation" in error  # whose quotes do not close
    (checkout.folder / HOSTILE).mkdir(exist_ok=True)
    (checkout.folder / HOSTILE / "config.json").touch()  # a model to answer with
    closed = dict.fromkeys(("FLAGS", "PRETRAIN_FLAGS", "SQUAD_FLAGS", "TASK_FLAGS"), re.sub("['\"]", "", HOSTILE))
    given = hostile | closed | {"PYTHON": "python", "TASK": "rte"}
    code, error, shown = checkout.make(*goals, on_command_line=on_command_line, **given)
    modules = {words[1] for words in shown if words[:1] == ["-m"]}
    everything = "doctor verify stats vocab tfrecords wikipedia pretrain train predict metric evaluate steps gpu_check gpu_day"
    assert {name.split(".")[-1] for name in modules} >= set(everything.split()), error
    for setting in ("RECIPE", "SQUAD_RECIPE", "TASK", "NP"):
        given = {"GLUE": "glue", setting: HOSTILE}
        code, error, _ = checkout.make("pretrain", "squad", "glue", on_command_line=on_command_line, **given)
        assert code == 2 and "error: " in error


@BOTH
def test_a_recipe_that_is_none_is_one_line_before_anything_is_made(on_command_line: bool, checkout: Checkout) -> None:
    for name in ("RECIPE", "SQUAD_RECIPE"):
        for value in (HOSTILE, "bert_huge", "../x", "_model", "bert_mini\nbert_base", "bert_mini bert_base"):
            for goal in ("pretrain", "squad", "squad-eval") if value == HOSTILE else ("pretrain",):
                given = {name: value, "SQUAD_TRAIN": "t.json", "SQUAD_DEV": "d.json", "BOOKS": "novels"}
                code, error, shown = checkout.make(goal, on_command_line=on_command_line, **given)
                ours = [line for line in error.splitlines() if not line.startswith("make: ")]
                assert code == 2 and len(ours) == 1 and not shown, error
                assert ours[0].startswith(f"error: {name} is ") and " ; it is one of: " in ours[0]


@BOTH
@pytest.mark.parametrize("value", ODD)
def test_all_stages_look_in_the_same_places(value: str, on_command_line: bool, checkout: Checkout) -> None:
    # make drops white space in front of a value on its command line
    given = value.strip() if on_command_line else value
    path = f"./{given}" if given.startswith("-") else given
    settings = dict.fromkeys(PATHS, value)
    code, error, shown = checkout.make("verify", "pretrain", "squad", on_command_line=on_command_line, **settings)
    assert code == 0, error
    by_module = {words[1]: words[2:] for words in shown}
    sources = [name.lower() for name in SOURCES]
    for name in sources:
        assert by_module[f"data.{name}"] == ["--source", path, "--output", f"{path}/corpus/{name}"]
    assert by_module["data.documents"][1:5] == [f"{path}/corpus/{name}" for name in sources]
    assert by_module["data.vocab"][-2:] == ["--vocab", path]
    assert by_module["data.verify"] == [f"{path}/corpus", f"{path}/tfrecords"]
    records = [words for words in shown if words[1] == "data.tfrecords"]
    assert [words[7] for words in records] == [f"{path}/tfrecords/seq{length}" for length in (128, 512)]
    runs = [words for words in shown if words[1] == "bert.pretrain"]
    assert [words[-3] for words in runs] == [words[7] for words in records]
    assert by_module["squad.train"][1:7:2] == ["--data.train_file", "--init.checkpoint", "--run.directory"]
    assert by_module["squad.train"][2:7:2] == [path] * 3


@pytest.mark.slow
def test_flags_are_words_in_which_quotes_group_and_nothing_is_expanded(checkout: Checkout) -> None:
    flags = "--run.seed 7 --data.vocab 'my $(words) *' \"a`b\"  c\\ d ''"
    for on_command_line in (False, True):
        shown = []
        for goal in ("bench", "gpu-check", "gpu-day", "gpu-day-prepare", "pretrain"):
            shown += checkout.make(goal, on_command_line=on_command_line, BOOKS="b", FLAGS=flags)[2][-1:]
        assert [words[-7:] for words in shown] == [
            ["--run.seed", "7", "--data.vocab", "my $(words) *", "a`b", "c d", ""]
        ] * 5


def test_flags_without_an_end_are_one_line_before_anything_is_made(checkout: Checkout) -> None:
    code, error, shown = checkout.make("pretrain", BOOKS="novels", FLAGS="--run.seed '7")
    assert code == 2 and error.startswith("error: PRETRAIN_FLAGS: no closing quotation") and not shown


@pytest.mark.slow
def test_an_empty_variable_is_one_that_is_not_set(checkout: Checkout) -> None:
    empty = dict.fromkeys([name for name in VARIABLES if name not in ("BOOKS", "NP")], "")
    for on_command_line in (False, True):
        code, error, shown = checkout.make(
            "verify", "pretrain", on_command_line=on_command_line, BOOKS="novels", **empty
        )
        assert code == 0, error
        assert ["-m", "data.verify", "workdir/corpus", "workdir/tfrecords"] in shown
        assert shown[-1][2] == "bert_mini_phase2"


@pytest.mark.parametrize("value", ODD)
def test_set_up_makes_the_environment_where_the_others_look(value: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.run("setup.sh", VENV=value) == (0, "")
    assert (machine.checkout / value / ".stamp").exists()
    code, error = machine.run("setup.sh", PYTHON=HOSTILE)
    assert code == 2 and "no such interpreter" in error and not list(tmp_path.rglob("PWNED*"))
