"""The rules of the house that no tool checks; who may import whom is in pyproject.toml, for import-linter."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bert", "data", "squad", "tasks", "serve")


def listed(*flags: str) -> list[Path]:
    """What `git ls-files` lists, as paths that exist; the tree that an image holds has no git and skips these tests."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    shown = subprocess.run(["git", "ls-files", "-z", *flags], cwd=ROOT, capture_output=True, text=True, check=True)
    names = sorted(filter(None, shown.stdout.split("\0")))
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def ours(*suffixes: str) -> list[Path]:
    """Files that are, or are about to be, in the repository, by suffix; all of them if none is given."""
    files = listed("--cached", "--others", "--exclude-standard")
    return [path for path in files if not suffixes or path.suffix in suffixes]


def modules() -> list[Path]:
    """The Python files of the product."""
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(tree: ast.AST) -> set[str]:
    """The top-level packages that a module imports, at its head or within a function."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def test_lines_fit_in_120_columns() -> None:
    plain = ("Makefile", "Dockerfile", "run", "LICENSE")
    long = [
        f"{named(path)}:{number}"
        for path in ours()
        if path.suffix in (".sh", ".md", ".toml", ".txt", ".yml", ".yaml") or path.name in plain
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not re.match(r"\s*\||.*https?://\S{40}", line)  # a table's row or a long address
    ]
    assert not long


def test_every_module_says_what_it_is() -> None:
    silent = [named(path) for path in ours(".py") if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not silent


def test_code_is_ascii() -> None:
    files = [*modules(), *(ROOT / "scripts").glob("*.sh"), ROOT / "Makefile", ROOT / "Dockerfile"]
    assert not [named(path) for path in files if not path.read_bytes().isascii()]


def test_horovod_has_one_door_and_wikiextractor_none() -> None:
    found = {named(path): imports(ast.parse(path.read_text(encoding="utf-8"))) for path in modules()}
    assert [name for name, packages in found.items() if "horovod" in packages] == ["bert/training/distributed.py"]
    assert not [name for name, packages in found.items() if "wikiextractor" in packages]  # AGPL: we run it as a program


def test_graphs_are_made_without_autograph() -> None:
    makers = [path for path in modules() if re.search(r"tf\.function[(,]|@tf\.function", path.read_text("utf-8"))]
    assert [named(path) for path in makers] == ["bert/hardware/graphs.py"]


def test_no_module_hides_one_of_the_standard_library() -> None:
    names = {path.stem for path in modules()} | {path.parent.name for path in modules()}
    assert not names & set(sys.stdlib_module_names)
    assert not {"utils", "util", "common", "helpers", "misc"} & names  # a helper lives with its owner


def test_packages_win_over_installed_ones_of_the_same_name() -> None:
    for package in PACKAGES:  # without this file a `data` in site-packages is found first
        assert (ROOT / package / "__init__.py").is_file(), package
    assert not list((ROOT / "tests").rglob("__init__.py"))  # with one, `from data import ...` would mean tests/data


def test_no_code_is_ignored() -> None:
    assert not listed("--cached", "--ignored", "--exclude-standard")
    hidden = listed("--others", "--ignored", "--exclude-standard", *PACKAGES, "scripts", "tests", "docs", ".ci")
    assert not [named(path) for path in hidden if path.suffix in (".py", ".sh", ".md")]


def test_scripts_run_and_stop_at_the_first_failure() -> None:
    for path in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"]:
        assert os.access(path, os.X_OK), f"{named(path)} is not executable"
        lines = path.read_text().splitlines()
        assert lines[0] == "#!/usr/bin/env bash" and lines[1].startswith("# "), f"{named(path)} does not say what it is"
        assert "set -euo pipefail" in lines, named(path)


def test_no_package_registry_is_named() -> None:
    hosts = re.compile(r"pypi\.(org|io)|pythonhosted\.|registry\.npmjs|deb\.debian|archive\.ubuntu|docker\.io|ghcr\.io")
    files = [path for path in ours() if path != Path(__file__) and path.name != "LICENSE"]
    assert not [named(path) for path in files if hosts.search(path.read_text(encoding="utf-8", errors="ignore"))]


def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", text.replace("\\\n", ""), re.MULTILINE)
    assert targets
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  ([a-z-]+) ", shown, re.MULTILINE) == targets[1].split()


def test_importing_prints_nothing_writes_nothing_and_sets_nothing(tmp_path: Path) -> None:
    names = [named(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in modules()]
    code = """
import importlib, importlib.util, os, sys
for outside in ("matplotlib", "nltk", "requests", "tensorflow", "tensorflow_text", "tokenizers"):
    if importlib.util.find_spec(outside):
        importlib.import_module(outside)  # what these do is not ours to answer for
before = dict(os.environ)
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert dict(os.environ) == before, name
    assert not os.listdir(), name
"""
    command, environment = [sys.executable, "-P", "-c", code, *names], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""


@pytest.mark.parametrize(("name", "least"), [("reliability", 60), ("silent_faults", 80)])
def test_every_test_that_a_page_of_faults_names_exists(name: str, least: int) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    named_tests = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named_tests) > least
    functions = {
        path: re.findall(r"^def (test_\w+)", (ROOT / "tests" / path).read_text(encoding="utf-8"), re.MULTILINE)
        for path in {path for path, _ in named_tests}
    }
    assert not [f"{path}::{test}" for path, test in named_tests if test not in functions[path]]


def test_the_reliability_page_has_every_fault() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert set(re.findall(r"F\d\d", page)) == {f"F{number:02d}" for number in range(1, 32)}
