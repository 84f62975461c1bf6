"""What the commands of the mission reach by imports, and whether the rows that tables name as strings are there.

The bounds only fall. A change that raises one says why in its commit.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bert.core import rows

grimp = pytest.importorskip("grimp", reason="reads imports; import-linter brings it")

ROOT = Path(__file__).resolve().parents[1]
TRUNK = ("bert", "data", "squad", "tasks", "serve")
EXTENSIONS = "extensions"
ENTRIES = {
    "data": ("data.wikipedia", "data.books", "data.documents", "data.shards", "data.vocab", "data.tfrecords"),
    "pretraining": ("bert.pretrain", "bert.pretraining"),
    "questions": ("squad.train", "squad.training", "squad.predict", "squad.metric"),
}
ENTRIES["mission"] = tuple(module for entries in tuple(ENTRIES.values()) for module in entries)
BOUNDS = {"data": (59, 12_500), "pretraining": (93, 14_950), "questions": (125, 18_800), "mission": (156, 26_450)}
"""the most files, and lines, that the entries may reach"""
LONGEST_SPINE = 14_350
LARGEST_EXTENSION = 2_000
ROW = re.compile(rf"(?:{'|'.join((*TRUNK, EXTENSIONS))})(?:\.\w+)*:\w+")


@cache
def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def graph() -> Any:
    return grimp.build_graph(*TRUNK, EXTENSIONS, exclude_type_checking_imports=True, cache_dir=None)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_commands_of_the_mission_reach_no_more_than_before(name: str) -> None:
    reached = set(ENTRIES[name])
    for entry in ENTRIES[name]:
        reached |= graph().find_upstream_modules(entry)
    size, longest = len(reached), sorted(reached, key=lambda module: -lines(file_of(module)))
    total = sum(lines(file_of(module)) for module in reached)
    print(f"{name}: {size} files, {total:,} lines; the longest: {' '.join(longest[:20])}")
    files, most = BOUNDS[name]
    assert size <= files and total <= most
    assert size >= 0.9 * files and total >= 0.9 * most, "lower the bound: it holds what was reached"


def test_the_spine_of_the_tour_is_no_longer_than_it_says() -> None:
    tour = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
    table = tour[tour.index("## The spine") : tour.index("## `data/`")]
    rows = re.findall(r"^\| `(.+?/)` \| (.+?) \|", table, re.M)
    files = [ROOT / folder / f"{name}.py" for folder, names in rows for name in names.split()]
    total = sum(map(lines, files))
    print(f"spine: {len(files)} files, {total:,} lines")
    assert 0.9 * LONGEST_SPINE <= total <= LONGEST_SPINE
    assert f"{len(files)} files, at most {LONGEST_SPINE:,} lines" in " ".join(tour.split())


def test_no_module_of_the_trunk_reaches_an_extension() -> None:
    for package in TRUNK:
        reached = graph().find_upstream_modules(package, as_package=True)
        assert not {module for module in reached if module.split(".")[0] == EXTENSIONS}, package


def test_every_row_that_is_named_as_a_string_is_there() -> None:
    named = {
        node.value: str(path.relative_to(ROOT))
        for package in (*TRUNK, EXTENSIONS)
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ROW.fullmatch(node.value)
    }
    assert len(named) > 10
    for row, path in named.items():
        assert rows.load(row) is not None, f"{path} names {row}"


def test_an_extension_is_small() -> None:
    folders = [path for path in (ROOT / EXTENSIONS).iterdir() if path.is_dir() and path.name != "__pycache__"]
    sizes = {folder.name: sum(lines(path) for path in folder.rglob("*.py")) for folder in folders}
    assert not {name: size for name, size in sizes.items() if size > LARGEST_EXTENSION}
