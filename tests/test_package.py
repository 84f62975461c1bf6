"""The installed package: everything is within `bert`, and its commands and Python interface work from anywhere."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import bert
from bert import commands
from tests.serve import runs

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bert", "data", "extensions", "serve", "squad", "tasks")
Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(folder: Path) -> Path:
    """An empty environment that sees what is installed where the tests run; returns its folder of programs."""
    venv.create(folder, symlinks=True)
    (place,) = folder.glob("lib/python*/site-packages")
    (place / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def in_folder(folder: Path) -> Run:
    """Run programs in a folder, without any path of the checkout."""
    folder.mkdir()
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object, **more: str) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        return subprocess.run(words, cwd=folder, env=variables | more, capture_output=True, text=True, timeout=600)

    return run


def pip(*arguments: object) -> None:
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, arguments), *offline], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the checkout alone, where a build may write."""
    shown = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if shown.returncode:
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("package") / "checkout"
    for name in filter(None, shown.stdout.split("\0")):
        if name.split("/")[0] in PACKAGES or name.startswith("scripts/wheel_backend") or "/" not in name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    """A wheel, built of the source distribution as `python -m build` does, without a network."""
    code = "import wheel_backend as b, sys; print(b.build_sdist(sys.argv[1]))"
    path = os.environ | {"PYTHONPATH": str(checkout / "scripts")}
    target = checkout.parent / "dist"
    made = subprocess.run([sys.executable, "-c", code, target], cwd=checkout, env=path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-2000:]
    (source,) = target.glob("*.tar.gz")
    pip("wheel", "--wheel-dir", target, source)
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """The programs of an environment that has the wheel."""
    folder = environment(wheel.parent / "environment")
    pip("--python", folder / "python", "install", wheel)
    return folder


@pytest.mark.slow
def test_a_wheel_claims_one_name_and_has_every_file(wheel: Path, checkout: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (top,) = [archive.read(name).decode() for name in names if name.endswith("top_level.txt")]
    assert {name.split("/")[0] for name in names} - {"bert"} == {f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert top.split() == ["bert"]
    files = {
        path.relative_to(checkout)
        for package in PACKAGES
        for path in (checkout / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(files) > 250
    assert {str(path if path.parts[0] == "bert" else Path("bert", path)) for path in files} <= names


@pytest.mark.slow
def test_the_modules_of_a_wheel_import_nothing_by_the_names_of_the_checkout(wheel: Path) -> None:
    inner, modules = set(PACKAGES) - {"bert"}, 0
    with zipfile.ZipFile(wheel) as archive:
        for name in filter(lambda name: name.endswith(".py"), archive.namelist()):
            text, modules = archive.read(name).decode(), modules + 1
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and not node.level:
                    assert str(node.module).split(".")[0] not in inner, name
                elif isinstance(node, ast.Import):
                    assert not {alias.name.split(".")[0] for alias in node.names} & inner, name
            assert not re.search(rf"python -m (?:{'|'.join(inner)})\b", text), name
    assert modules > 250


@pytest.mark.slow
@pytest.mark.parametrize("name", commands.EXTENSIONS)
def test_an_installed_command_of_an_extension_runs(programs: Path, tmp_path: Path, name: str) -> None:
    run, name = in_folder(tmp_path / "project"), name.removeprefix("bert.")
    mine = run(programs / "bert", name, "--help")
    own = run(programs / "python", "-m", f"bert.{name}", "--help")
    assert mine.returncode == own.returncode == 0, mine.stderr + own.stderr
    assert mine.stdout == own.stdout
    assert f"python -m bert.{name} " in mine.stdout


@pytest.mark.slow
def test_an_installed_model_answers_beside_modules_of_the_same_names(programs: Path, tmp_path: Path) -> None:
    run, here = in_folder(tmp_path / "project"), tmp_path / "project"
    for name in ("data", "tasks", "squad", "serve"):
        (here / f"{name}.py").write_text("mine = True\n")
    model = runs.of_questions(tmp_path / "run")
    code = f"""
import bert, data, serve, squad, tasks
answer = bert.load({str(model)!r}).answer("Which river?", "the river cafe is here")
assert data.mine and serve.mine and squad.mine and tasks.mine
print(answer.text)
"""
    told = run(programs / "python", "-c", code)
    assert told.returncode == 0, told.stderr[-2000:]
    assert told.stderr.startswith("note: ") and told.stderr.count("\n") == 1, "TensorFlow is silent in programs too"
    shown = run(
        programs / "bert", "squad.predict", "--model", model, "--question", "Which river?", "--context",
        "the river cafe is here",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert shown.stdout.splitlines()[0].startswith(f"{told.stdout.strip()}  (probability ")


@pytest.mark.slow
def test_installed_commands_run_in_worker_processes_and_resume(programs: Path, tmp_path: Path) -> None:
    run, here = in_folder(tmp_path / "project"), tmp_path / "project"
    (here / "texts").mkdir()
    for number in range(3):
        text = "\n\n".join(f"The {number * 9 + part}th story begins here. It ends there." for part in range(9))
        (here / "texts" / f"{number}.txt").write_text(text)
    flags = ("--source", "texts", "--output", "documents", "--workers", 2)
    made = run(programs / "bert", "data.text", *flags)
    assert made.returncode == 0, made.stderr[-2000:]
    _, _, then = made.stderr.rstrip().rpartition("; next: python ")
    assert then == "-m bert.data.documents --source documents --output documents"
    assert run(programs / "python", *then.split(), "--help").returncode == 0
    manifest = json.loads((here / "documents" / "manifest.json").read_text())
    by_checkout = subprocess.run(
        [sys.executable, "-m", "data.text", "--source", here / "texts", "--output", here / "documents"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert by_checkout.returncode == 0, by_checkout.stderr[-2000:]
    assert json.loads((here / "documents" / "manifest.json").read_text()) == manifest, "it was found up to date"


@pytest.mark.slow
def test_an_installed_doctor_knows_the_versions_and_the_page_is_there(programs: Path, tmp_path: Path) -> None:
    run = in_folder(tmp_path / "project")
    assert "all as in requirements.txt" in run(programs / "bert", "doctor").stdout
    code = "from bert.serve.app import PAGE; print((PAGE / 'index.html').is_file())"
    assert run(programs / "python", "-c", code).stdout == "True\n"
    refused = run(programs / "bert", "tasks.predict")
    assert refused.returncode == 2 and "python -m bert.tasks.predict: " in refused.stderr


@pytest.mark.slow
def test_an_editable_installation_is_the_checkout(checkout: Path, tmp_path: Path) -> None:
    folder, run = environment(tmp_path / "environment"), in_folder(tmp_path / "elsewhere")
    pip("--python", folder / "python", "install", "--editable", checkout)
    code = "import bert, tasks.api; print(bert.__file__, tasks.api.__file__)"
    shown = run(folder / "python", "-c", code, TF_CPP_MIN_LOG_LEVEL="3").stdout.split()
    assert shown == [str(checkout / "bert" / "__init__.py"), str(checkout / "tasks" / "api.py")]
    assert run(folder / "bert", "--help").stdout == commands.listed() + "\n"


def test_the_table_has_every_command() -> None:
    found = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__main__")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"^    (cli\.main|commands\.forward)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert set(commands.MODULES.values()) == found - {"bert", "bert.commands"}
    assert all(len(commands.about(module)) > 10 for module in commands.MODULES.values())


@pytest.mark.slow
def test_a_command_runs_as_its_module(tmp_path: Path) -> None:
    entry = [sys.executable, "-c", "from bert.commands import main; main()"]
    for name, module in (("plan", "bert.plan"), ("tasks.train", "tasks.train")):
        mine, own = (
            subprocess.run([*words, "--help"], cwd=ROOT, capture_output=True, text=True)
            for words in ([*entry, name], [sys.executable, "-m", module])
        )
        assert mine.returncode == own.returncode == 0 and mine.stdout == own.stdout != ""
    wrong = subprocess.run([*entry, "pretain"], cwd=ROOT, capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert wrong.stderr.startswith("error: bert: no command 'pretain'; did you mean pretrain")
    version = subprocess.run([*entry, "--version"], cwd=ROOT, capture_output=True, text=True)
    assert version.stdout.splitlines()[0].startswith(bert.__version__)
