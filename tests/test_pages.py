"""Every command that the pages show exists, and its flags, recipes and variables are understood; nothing is run."""

import contextlib
import importlib
import importlib.util
import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bert import commands, recipes
from bert.core import cli, config
from bert.core.errors import UsageError
from scripts import stages, variables
from squad.recipes import squad_base
from tasks.recipes import classify

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
]
OURS = {*cli.PACKAGES, "benchmarks", "scripts", "tests"}
STAND_INS = {"N": "2", "RECIPE": "bert_mini_phase1", "NAME": "h100-sxm", "FORMAT": "huggingface", "TASK": "heldout"}
"""for words that stand for a value in running text, where a path would not do"""
BY_HAND = {
    "python -m tests.costs DIR": "prints what an earlier run has left",
    "python -m tasks.train --config RUN/config.json --run.directory AGAIN": "reads the file of a run",
    "python -m data.NAME --help": "any stage",
    "bert NAME": "any command",
    "python -m data.download NAME --output DIR": "any download",
}
"""commands that are not checked here, and why"""


MEASURES = re.compile(r"python -m (benchmarks|tests)\.|make (bench|gpu-check|soak)\b")
"""commands whose modules import TensorFlow at once"""


class Shown(NamedTuple):
    """A command of a page."""

    page: str
    line: str
    partial: bool
    """whether flags that it needs may be missing: it ends in ..., or stands in a sentence"""
    given: dict[str, str]
    """environment variables that lines before it export"""


class Parsed(Exception):
    """The arguments of a command are right."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page, each with its language."""
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def joined(block: str) -> list[str]:
    """The lines of a block, those that end in a backslash with the next."""
    return re.sub(r"\\\n\s*", " ", block).splitlines()


def in_blocks(page: Path) -> Iterator[Shown]:
    """The commands in the blocks of a page, with the values of shell variables put in."""
    for language, block in blocks(page):
        if language or "at commit" in block:
            continue
        values: dict[str, str] = {}
        exported: dict[str, str] = {}
        for line in joined(block):
            for name, value in values.items():
                line = re.sub(rf"\${name}\b", value, line)
            if assigned := re.fullmatch(r"(\w+)=(\"[^\"]*\"|\S*)(?:\s+#.*)?", line):
                values[assigned[1]] = assigned[2].strip('"')
            for words in parts(line):
                if words[0] == "export":
                    exported |= dict(word.split("=", 1) for word in words[1:])
                elif is_ours(words):
                    shown = without_dots(words)
                    yield Shown(named(page), shlex.join(shown), len(shown) < len(words), dict(exported))


def in_sentences(page: Path) -> Iterator[Shown]:
    """The commands in the sentences of a page, where needed flags may be left out."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for paragraph in text.split("\n\n"):
        for code in re.findall(r"`([^`]+)`", paragraph):
            code = " ".join(code.split())
            if not re.match(r"(\w+=\S+ )*(python -m|make|bert|scripts/\S+\.sh) ", code) or "at commit" in paragraph:
                continue
            for words in parts(re.sub(r"(?<=\w)\.\.\.", " ...", code)):
                if is_ours(words):
                    yield Shown(named(page), shlex.join(without_dots(words)), True, {})


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_dots(words: list[str]) -> list[str]:
    """A command without the dots for more flags; dots behind a flag are its value."""
    return [word for before, word in zip(["", *words], words, strict=False) if word != "..." or before.startswith("--")]


def parts(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:  # a quote in what is no command
        return
    while words:
        end = next((number for number, word in enumerate(words) if set(word) <= set("&;|")), len(words))
        if words[:end]:
            yield words[:end]
        words = words[end + 1 :]


def without_variables(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The variables in front of a command, and the command."""
    number = next((number for number, word in enumerate(words) if not re.match(r"\w+=", word)), len(words))
    return dict(word.split("=", 1) for word in words[:number]), list(words[number:])


def is_ours(words: Sequence[str]) -> bool:
    """Whether a command is one of this repository."""
    words = without_variables(words)[1]
    if words[:2] == ["python", "-m"]:
        return len(words) > 2 and words[2].split(".")[0] in {*OURS, "MODULE"}
    return bool(words) and (words[0] in ("make", "bert", "sbatch") or words[0].startswith("scripts/"))


class Checker:
    """Raises UsageError for a command that would be refused."""

    def __init__(self, shown: Shown) -> None:
        self.partial = shown.partial
        self.command(shlex.split(shown.line), shown.given)

    def command(self, words: Sequence[str], exported: dict[str, str]) -> None:
        """Check a command; if it starts another, that one."""
        given, command = without_variables(words)
        command = [STAND_INS.get(word, word) for word in command] if self.partial else command
        match command:
            case ["python", "-m", name, *argv] if name.split(".")[0] in OURS:
                self.module(name, argv)
            case ["bert", name, *argv] if not name.startswith("-"):
                self.module(commands.MODULES[name], argv)
            case ["make", *rest]:
                self.make(rest, {**exported, **given})
            case ["sbatch", *rest]:
                begin = next(number for number, word in enumerate(rest) if word.startswith("scripts/"))
                self.script(rest[begin], rest[begin + 1 :])
            case [name, *rest] if name.startswith("scripts/"):
                self.script(name, rest)

    def module(self, name: str, argv: Sequence[str]) -> None:
        """Check a command of Python: its `main` is run until it has understood its arguments."""
        name = commands.EXTENSIONS.get(name, name)
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise UsageError(f"no module {name}")
        main = importlib.import_module(f"{name}.__main__" if spec.submodule_search_locations else name).main
        if not argv and (self.partial or not main.__code__.co_argcount):
            return
        try:
            with until_parsed(self.partial):
                main(list(argv))
        except SystemExit:  # which ends --help
            assert "--help" in argv
        except UsageError as error:
            if not self.partial or not re.search("no recipe given|expected one argument|choice: '...'", str(error)):
                raise

    def make(self, words: Sequence[str], given: dict[str, str]) -> None:
        """Check targets and variables of make, and the commands that they run."""
        own = dict(word.split("=", 1) for word in words if "=" in word)
        goals = [word for word in words if "=" not in word]
        v = variables.read({"MODEL": "RUN", **given, **own}, own)
        for goal in goals:
            target = re.search(rf"^{goal}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
            if not target:
                raise UsageError(f"make has no target {goal}")
            if goal in stages.STAGES:
                for command in stages.STAGES[goal].commands(stages._with_flags(v, goals)):
                    words = ["8" if word == "BY_SIZE" else word for word in command]  # of documents that are not there
                    self.command(words[words.index("python") :], {})
            elif v.flags:
                called = re.search(r"RUN_WITH_FLAGS.*python -m ([\w.]+) ?(.*)", target[1])
                if not called:
                    raise UsageError(f"make {goal} takes no FLAGS")
                self.module(called[1], [*shlex.split(called[2]), *v.words("FLAGS")])

    def script(self, name: str, words: list[str]) -> None:
        """Check that a script exists and has its flags, and the command that it runs."""
        path = ROOT / name
        if not os.access(path, os.X_OK):
            raise UsageError(f"no script {name}")
        own, rest = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
        begin = next((number for number, word in enumerate(words) if word in ("python", "make")), len(words))
        match path.stem:
            case "seeds":
                data = list(itertools.takewhile(lambda word: not word.startswith("--"), words[2:]))
                files = ("data.train", "data.dev") if len(data) == 2 else ("data.folder",)
                given = [part for key, file in zip(files, data, strict=True) for part in (f"--{key}", file)]
                self.module(f"{words[0]}.train", [words[1], *given, *words[2 + len(data) :]])
            case "ablation":
                self.module("bert.pretrain", words)
            case "data_array":
                self.module(words[0], words[1:])
            case "slurm_phases":
                self.module("bert.pretrain", rest)
            case "launch" if not self.partial or "-np" in own:
                launched = [str(path), "--dry-run", *own, "--", "true"]
                done = subprocess.run(launched, cwd=ROOT, capture_output=True, text=True)
                if done.returncode:
                    raise UsageError(done.stderr)
            case "docker_run" | "docker_build":
                known = path.read_text(encoding="utf-8")
                if missing := [word for word in own if word.startswith("--") and f"{word} " not in known]:
                    raise UsageError(f"{name} has no {missing[0]}")
        self.command(words[begin:], {})


@contextlib.contextmanager
def until_parsed(partial: bool) -> Iterator[None]:
    """Have commands end once their arguments are understood. partial: flags that they need may be missing."""

    def stopping(parse: Callable[..., Any]) -> Callable[..., Any]:
        def then_stop(*words: Any, **more: Any) -> Any:
            parse(*words, **more)
            raise Parsed

        return then_stop

    def parse_some(options: Any, argv: Sequence[str], prog: str, **_: Any) -> None:
        flags = cli.flags_of(options).values()
        takes_run = any(flag.is_run for flag in flags)
        cli.check(flags, cli._with_run_first(argv) if takes_run else argv, prog=prog)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "parse", stopping(parse_some if partial else cli.parse))
        patch.setattr(cli, "choose", stopping(cli.choose))
        patch.setattr(recipes, "choose", stopping(recipes.choose))
        try:
            yield
        except Parsed:
            return
        raise AssertionError("the arguments were not parsed")


@pytest.mark.parametrize("measures", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_command_that_a_page_shows_is_understood(
    measures: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the paths of the pages exist nowhere; files that they show are here
    for page in PAGES:
        for language, text in blocks(page):
            if language == "yaml":
                Path(text.split()[1]).write_text(text, encoding="utf-8")
    every = [command for page in PAGES for command in (*in_blocks(page), *in_sentences(page))]
    shown = [command for command in every if bool(MEASURES.search(command.line)) == measures]
    wrong = []
    for command in shown:
        try:
            if command.line not in BY_HAND:
                Checker(command)
        except Exception as error:
            wrong.append(f"{command.page}: {command.line}\n    {error}")
    assert not wrong, "\n".join(wrong)
    assert len(shown) > (25 if measures else 250)
    assert BY_HAND.keys() <= {command.line for command in every}


def test_the_page_on_training_lists_the_flags_that_may_change_when_a_run_goes_on() -> None:
    text = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    _, alone, of_sections, of_run = re.split(
        "These flags may change:|, all of |, and of `run`: ", text[: text.index("`--run.stop_at N` stops a run")]
    )
    names = {*re.findall(r"`([a-z_.]+)`", alone), *(f"run.{name}" for name in re.findall(r"`([a-z_]+)`", of_run))}
    sections = tuple(f"{name}." for name in re.findall(r"`([a-z]+)`", of_sections))
    every = (recipes.RECIPES["bert_tiny"].phases[0].config, classify(), squad_base())
    free = {name for each in every for name in config.may_change(each)}
    of_whole = {name for each in every for name in config.flatten(each) if name.startswith(sections)}
    assert names | of_whole == free | {"run.steps"}  # which may grow only
