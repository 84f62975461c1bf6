"""The rules of the house that no tool checks; who may import whom is in pyproject.toml, for import-linter."""

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import pipeline_picture

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bert", "data", "squad", "tasks", "serve", "extensions")


WORDS = {
    r"(of which|those of|that of)": 82,
    r"(is|are|be) told": 2,
    r"of (its|their) own": 18,
    r"so many": 0,
    r"As `?[\w.]+`? has it": 0,
}
"""expressions at which readers stopped, and how often docstrings and pages may still have them; this only falls"""


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


@pytest.mark.slow
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


def test_only_a_tokenizer_in_a_graph_needs_tensorflow_text() -> None:
    imports = re.compile(r"^\s*(import|from) tensorflow_text\b|import_module\(.tensorflow_text", re.MULTILINE)
    found = [named(path) for path in modules() if imports.search(path.read_text(encoding="utf-8"))]
    assert found == ["bert/export/tokenizer.py"]  # tests/bert/export/test_tokenizer.py hides it there


def test_help_and_wrong_flags_are_answered_without_tensorflow() -> None:
    commands = [
        named(path).removesuffix(".py").replace("/", ".")
        for path in modules()
        if "\ndef main(argv: list[str]) -> None:" in path.read_text(encoding="utf-8")
    ]
    assert len(commands) > 40
    code = """
import contextlib, importlib, io, sys
from bert.core.errors import UsageError
for name in sys.argv[1:]:
    command = importlib.import_module(name)
    for flag in ("--help", "--no-such-flag"):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                command.main([flag])
        except (SystemExit, UsageError):
            pass
        else:
            raise AssertionError(f"{name} {flag}: no answer")
        heavy = {"horovod", "matplotlib", "nltk", "sklearn", "tensorflow", "tensorflow_text"} & set(sys.modules)
        assert not heavy, f"{name} {flag}: imports {heavy}"
"""
    command = [sys.executable, "-c", code, *commands]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


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


def test_every_fault_has_a_test_that_ci_runs() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (F\d\d) \|(.*)$", page, re.MULTILINE))
    assert rows.keys() == {f"F{number:02d}" for number in range(1, 32)}
    left = {
        (named(path).removeprefix("tests/"), test)
        for path in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(
            r"^@pytest\.mark\.thorough\ndef (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert not [row for row, cells in rows.items() if {*re.findall(r"`([\w/]+\.py)::(\w+)`", cells)} <= left]


def without_blocks(page: str) -> str:
    """A page of Markdown without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    headings = re.findall(r"^#+ (.+?)\s*$", without_blocks(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def test_every_link_of_a_page_leads_to_a_file_and_to_a_heading() -> None:
    broken, counted = [], 0
    for page in ours(".md"):
        text = re.sub(r"`[^`\n]*`", "", without_blocks(page.read_text(encoding="utf-8")))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            counted += 1
            name, _, anchor = target.partition("#")
            path = page.parent / name if name else page
            if not path.exists() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
                broken.append(f"{named(page)}: {target}")
    assert counted > 150
    assert not broken


def test_every_page_is_linked_from_another() -> None:
    pages = ours(".md")
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in pages
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        if target.partition("#")[0]
    }
    inner = [page for page in pages if named(page).startswith("docs/")]
    assert len(inner) > 30
    assert not [named(page) for page in inner if page.resolve() not in linked and page.parent.resolve() not in linked]


def test_the_glossary_is_in_order_and_every_term_leads_to_its_page() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \| (\[.+) \|$", page, re.MULTILINE)
    terms = [term.lower() for term, _ in rows]
    assert len(terms) > 40 and len(rows) == page.count("\n|") - 2  # the head, and the line below it
    assert terms == sorted(set(terms))


def test_every_page_that_code_or_a_page_names_exists() -> None:
    names = re.compile(r"(?<![\w/.:-])((?:docs|benchmarks)/(?:[\w.-]+/)*[\w-]+\.md|docs/decisions/\d{4})\b")
    missing = []
    for path in ours(".py", ".sh", ".toml", ".md", "", ".yml"):
        if path.name == "CHANGELOG.md" or path == Path(__file__):  # an entry names the pages of its time
            continue
        for name in names.findall(path.read_text(encoding="utf-8")):
            if "YEAR" not in name and not (ROOT / name).exists() and not list(ROOT.glob(f"{name}-*.md")):
                missing.append(f"{named(path)}: {name}")
    assert not missing


def test_every_file_that_a_page_names_exists() -> None:
    files = {named(path) for path in ours()}
    roots = {name.split("/")[0] for name in files if "/" in name}
    missing = []
    for page in ours(".md"):
        text = page.read_text(encoding="utf-8")
        if page.name == "CHANGELOG.md" or "/results/" in named(page):  # these name what there was at their time
            continue
        if page.parent.name != "docs" or page.stem not in ("optimizers", "reliability", "silent_faults"):
            paths = re.findall(r"`((?:[\w.]+/)+[\w.-]+\.(?:py|sh|csv|toml|txt|lock))(?:::\w+)?`", text)
            missing += [f"{named(page)}: {path}" for path in paths if path.split("/")[0] in roots and path not in files]
    names = {Path(name).name for name in files}
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    missing += [f"tour: {name}" for name in re.findall(r"`([\w]+\.(?:py|sh))`", tour) if name not in names]
    assert not missing, "\n".join(missing)


def test_the_tour_names_every_module() -> None:
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    named_there = set(re.findall(r"`(?:[\w.]+/)*(\w+\.py)`", tour)) | {"__init__.py", "__main__.py", "recipes.py"}
    of_code = [
        path for path in ours(".py") if named(path).split("/")[0] in ("bert", "data", "tasks", "squad", "extensions")
    ]
    missing = [named(path) for path in of_code if path.name not in named_there]
    assert not missing, "\n".join(missing)


def docstrings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]


def test_readers_are_not_stopped_more_often_than_before() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    texts = [path.read_text(encoding="utf-8") for path in pages]
    texts += [text for path in modules() for text in docstrings(path)]
    joined = " ".join(" ".join(texts).split())
    for words, most in WORDS.items():
        found = len(re.findall(rf"\b{words}\b", joined))
        print(f"{words}: {found}")
        assert 0.8 * most <= found <= most, f"{words}: {found} times; use plain words, or lower the number here"


def test_the_list_of_decisions_has_every_page() -> None:
    folder = ROOT / "docs" / "decisions"
    listed_pages = re.findall(
        r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", (folder / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert listed_pages == sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")


Words = list[str | None]


def words_of(text: str) -> Words:
    """Words and signs; None for what may differ: a value, a number, dots, the name of a file or of a setting."""
    text = re.sub(r"\w*\d[\w.,/-]*|[\w.]+[./_][\w./-]*\w", "\0", text.replace("%s", "\0"))
    parts = re.findall(r"\0|\.\.\.|[A-Za-z]+|[^\w\s]", text)
    return [None if part in ("\0", "...") else part for part in parts]


def messages_of_code() -> list[Words]:
    """Every text in the program's code, with None where a value is put in."""
    texts = []
    for path in [*modules(), *sorted((ROOT / "scripts").rglob("*.py"))]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        explanations = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values]
                texts.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explanations:
                texts.append(node.value)
    for path in (ROOT / "scripts").rglob("*.sh"):
        strings = re.findall(r'"((?:[^"\\]|\\.)*)"', path.read_text(encoding="utf-8"))
        texts += [re.sub(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+", "\0", string) for string in strings]
    return [words_of(text) for text in texts if len(text) > 8]


def common_words(quote: Words, message: Words) -> int:
    """How many lower-case words of a quote stand in a message, in the same order; 0 if the quote is no part of it.

    A value on either side takes any number of words of the other.
    """
    row = [0.0] * (len(message) + 1)
    for word in quote:
        before, row = row, [row[0] if word is None else -math.inf]
        for place, other in enumerate(message, 1):
            ways = [before[place - 1] + bool(word and word.islower())] if word == other else []
            if None in (word, other):
                ways += [before[place], row[place - 1], before[place - 1]]
            row.append(max(ways, default=-math.inf))
    return int(max(0.0, *row))


@pytest.mark.slow
def test_every_message_that_the_pages_quote_is_one_of_the_code() -> None:
    page = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    quotes = re.findall(r"^(?:error|warning): (.*?)(?:  +\(.*)?$", page, re.MULTILINE)
    quotes += re.findall(r"`(?:error|warning|note): ([^`]+)`", page)
    for table in re.findall(r"^\| (?:line|message) \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        quotes += [quote for row in table.splitlines() for quote in re.findall(r"`([^`]+ [^`]+)`", row.split(" | ")[0])]
    assert len(quotes) > 35
    messages = messages_of_code()

    def most_common(words: Words) -> int:
        spoken = {word for word in words if word and word.islower()}
        near = [message for message in messages if 2 * len(spoken & set(message)) >= len(spoken)]
        return max((common_words(words, message) for message in near), default=0)

    unknown = []
    for part in (part for quote in quotes for part in re.split(r"[;:]", quote)):
        words = words_of(part)
        spoken = sum(bool(word and word.islower()) for word in words)
        wanted = spoken - (spoken > 4)  # one word of many may be a value
        known = (
            most_common(words) >= wanted
            or any(  # of one text of the code, or of two
                most_common(words[:cut]) + most_common(words[cut:]) >= wanted for cut in range(3, len(words) - 2)
            )
        )
        of_others = ("OOM when allocating", "unsupported GNU version")  # TensorFlow's words, and nvcc's
        if not known and not any(text in part for text in of_others):
            unknown.append(part.strip())
    assert not unknown, "\n".join(unknown)


def test_the_picture_in_readme_is_what_its_script_draws(tmp_path: Path) -> None:
    pipeline_picture.main(tmp_path)
    for theme in pipeline_picture.THEMES:
        name = f"pipeline-{theme}.svg"
        assert (ROOT / "docs" / name).read_text() == (tmp_path / name).read_text()
        assert name in (ROOT / "README.md").read_text(encoding="utf-8")
    folders = [box.title for box in pipeline_picture.BOXES if box.title.endswith("/")]
    assert len(folders) == 5 and all((ROOT / folder).is_dir() for folder in folders)
