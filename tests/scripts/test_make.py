"""The Makefile with values that a shell or make could take for code, and with paths that are merely unusual."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from scripts.stages import STAGES
from scripts.variables import OF_OTHERS, Variables
from tests.conftest import ROOT
from tests.test_setup import Machine

MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", "")
VARIABLES = [*(field.name.upper() for field in fields(Variables)), *OF_OTHERS]
STUBS = ("python", "pytest", "ruff", "mypy", "lint-imports", "shellcheck", "horovodrun", "uv")
# Each part would leave a file behind if a shell, or make, ever read it.
HOSTILE = (
    "a'b\"c`touch PWNED1`$(touch PWNED2)$(shell touch PWNED3)${shell touch PWNED4};touch PWNED5;"
    "' ; touch PWNED6 ; ' \" ; touch PWNED7 ; \" && touch PWNED8 | touch PWNED9 & $(eval $(shell touch PWNED10)) #"
)
ODD = """-a b$c$$d$(e)${HOME}'f"g`h`#i;j\\k%l*m?[n]~&|<>(o){p,q}!=: \u00e4\u65e5 """  # all at once
ON_COMMAND_LINE = pytest.mark.parametrize("on_command_line", [False, True])


def targets() -> list[str]:
    """All targets that `make help` lists."""
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    return phony[1].split()


class Checkout:
    """A checkout in which every program that a target runs writes down its arguments and variables, and no more."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shown = folder / "checkout", folder / "shown"
        (self.folder / "bin").mkdir(parents=True)
        for name in ("requirements", "requirements.txt", "pyproject.toml", "Makefile", "scripts"):
            (self.folder / name).symlink_to(ROOT / name)
        for name in STUBS:
            self._stub(self.folder / "bin" / name)
        others = ("parity/bin/python", "gpu-check/bin/python", "audit/bin/python", "docs/bin/python")
        for program in (*others, "audit/bin/pip-audit", "docs/bin/mkdocs"):
            self._stub(self.folder / f".venv-{program}")

    def _stub(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!{sys.executable} -S\nimport json, os, sys\n"
            f"open({str(self.shown)!r}, 'a').write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
        )
        path.chmod(0o755)

    def make(
        self, *goals: str, on_command_line: bool = False, **variables: str
    ) -> tuple[int, str, list[tuple[list[str], dict[str, str]]]]:
        """Exit status, standard error, and the arguments and environment of every program that was run."""
        env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.folder), "VENV": "/nonexistent"}
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
        assert not (left := list(self.folder.rglob("PWNED*"))), f"{left} by {goals}\n{done.stderr}"
        return done.returncode, done.stderr, [tuple(json.loads(line)) for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout without any work folder."""
    return Checkout(tmp_path)


def test_help_names_every_variable() -> None:
    shown = "\n".join(re.findall(r"^##.*", MAKEFILE, re.MULTILINE))
    assert not {*VARIABLES} - {*re.findall(r"\b([A-Z][A-Z0-9_]+)\b", shown)}
    described = {*re.findall(r"(?:^##   |[;,] {1,2})([A-Z][A-Z0-9_]+)\b", shown, re.MULTILINE)}
    assert len(described) > 20 and described <= {*VARIABLES}


@pytest.mark.slow
def test_each_stage_is_a_target(checkout: Checkout) -> None:
    assert {*STAGES} <= {*targets()}
    code, error, shown = checkout.make(*STAGES)
    assert code == 0, error
    assert [words for words, _ in shown] == [["-m", "scripts.stages", name] for name in STAGES]
    assert all(environment["GOALS"].split() == [*STAGES] for _, environment in shown)


@pytest.mark.slow
@ON_COMMAND_LINE
def test_no_target_runs_what_a_value_contains(on_command_line: bool, checkout: Checkout) -> None:
    goals = ["corpus", *(goal for goal in targets() if goal not in (*STAGES, "setup", "clean"))]
    for value in (HOSTILE, re.sub("['\"]", "", HOSTILE)):  # the quotes of the first do not close
        given = dict.fromkeys(VARIABLES, value) | {"PYTHON": "python", "VENV": "/nonexistent"}
        code, error, shown = checkout.make(*goals, on_command_line=on_command_line, **given)
        assert "bert.doctor" in {words[1] for words, _ in shown if words[:1] == ["-m"]}, error
    assert code == 0 or "demo" in error, error  # which ends where its first stage made nothing


@ON_COMMAND_LINE
def test_every_variable_reaches_the_stages_as_it_stands(on_command_line: bool, checkout: Checkout) -> None:
    given = dict.fromkeys([name for name in VARIABLES if name not in ("VENV", "PYTHON")], ODD)
    code, error, shown = checkout.make("corpus", "squad", on_command_line=on_command_line, **given)
    assert code == 0, error
    for _, environment in shown:
        assert {name: environment[name] for name in given} == given
        assert sorted(environment["GIVEN"].split()) == (sorted(given) if on_command_line else [])


@pytest.mark.slow
@ON_COMMAND_LINE
def test_flags_are_words_in_which_quotes_group_and_nothing_is_expanded(
    on_command_line: bool, checkout: Checkout
) -> None:
    flags = "--run.seed 7 --data.vocab 'my $(words) *' \"a`b\"  c\\ d ''"
    for goal in ("bench", "gpu-check", "soak"):
        *_, (words, _) = checkout.make(goal, on_command_line=on_command_line, FLAGS=flags)[2]
        assert words[-7:] == ["--run.seed", "7", "--data.vocab", "my $(words) *", "a`b", "c d", ""]
    code, error, shown = checkout.make("soak", on_command_line=on_command_line, FLAGS="--run.seed '7")
    assert code == 2 and error.startswith("error: FLAGS: no closing quotation") and not shown


ALONE = ("a b", " a", "$a$(b)", "'a\"", "`a`", "a#b;c\\", "*[a]", "~", "-a", "--a=b")


@pytest.mark.parametrize("value", [ODD, *(pytest.param(value, marks=pytest.mark.thorough) for value in ALONE)])
def test_set_up_makes_the_environment_where_the_others_look(value: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.run("setup.sh", VENV=value) == (0, "")
    assert (machine.checkout / value / ".stamp").exists()
    code, error = machine.run("setup.sh", PYTHON=HOSTILE)
    assert code == 2 and "no such interpreter" in error and not list(tmp_path.rglob("PWNED*"))
