"""The build of a wheel, as pip and `python -m build` ask for it: setuptools', with the folders in one package.

The folders of the checkout, `data` and others, would claim their names in every environment that the wheel is installed
into. So the wheel has them within `bert`: `tasks/train.py` becomes `bert/tasks/train.py`, and its imports and the
commands that it names follow. Nothing else of the sources changes. docs/decisions/0030 says why.

An editable installation is the checkout itself, and has the names of its folders.
"""

import ast
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [  # the interface of PEP 517 and PEP 660
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

INNER = ("data", "extensions", "serve", "squad", "tasks")  # the folders that are within `bert`
# where a string that names a module without a name in it, such as "tasks.train", is one of a table
TABLES = (
    "bert/heads.py",
    "bert/commands.py",
    "bert/core/stopping.py",
)
BESIDE = ("pyproject.toml", "requirements.txt", "README.md", "LICENSE")  # of the build itself
COMMAND = re.compile(rf"(?<=python -m )(?={'|'.join(INNER)}\b)")
NAMED = re.compile(rf"(?:{'|'.join(INNER)})(?:\.\w+)*(?::\w+)?")
ALWAYS = re.compile(rf"(?:{'|'.join(INNER)})(?:\.\w+)*:\w+|extensions(?:\.\w+)+")  # names of rows, in any module


def build_wheel(directory: str, settings: Any = None, metadata: str | None = None) -> str:
    """Write the wheel into a directory; return its name."""
    with _staged():
        return str(build_meta.build_wheel(directory, settings, metadata))


def prepare_metadata_for_build_wheel(directory: str, settings: Any = None) -> str:
    """Write the wheel's metadata into a directory; return its name."""
    with _staged():
        return str(build_meta.prepare_metadata_for_build_wheel(directory, settings))


@contextlib.contextmanager
def _staged() -> Iterator[None]:
    """Make a folder with the tree of the wheel the current one."""
    root = Path.cwd()
    with tempfile.TemporaryDirectory() as staged:
        write(root, Path(staged))
        os.chdir(staged)
        try:
            yield
        finally:
            os.chdir(root)


def write(root: Path, staged: Path) -> None:
    """Write the tree of the wheel, from the checkout or the unpacked source distribution `root`."""
    for name in BESIDE:
        shutil.copy(root / name, staged)
    for name in ("bert", *INNER):
        target = staged / "bert" / ("" if name == "bert" else name)
        shutil.copytree(root / name, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    shutil.copy(root / "requirements.txt", staged / "bert")  # bert.doctor compares versions with it
    for path in (staged / "bert").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(renamed(text, path.relative_to(staged).as_posix() in TABLES), encoding="utf-8")


def renamed(text: str, is_table: bool = False) -> str:
    """Return the text of a module with the names that modules of the inner folders have in the wheel.

    is_table: whether strings that name a module, such as "tasks.train", are such names; "tasks.model:Reader" always is.
    """
    lines = text.encode().split(b"\n")  # columns of ast count bytes
    places: list[tuple[int, int]] = []  # before which `bert.` is written
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_inner(node.module or ""):
            places.append((node.lineno - 1, node.col_offset + len("from ")))
        elif isinstance(node, ast.Import):
            assert not any(_is_inner(alias.name) for alias in node.names), "`import tasks.x` binds the name `tasks`"
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (NAMED if is_table else ALWAYS).fullmatch(node.value)
        ):
            places.append((node.lineno - 1, node.col_offset + 1))
    for row, column in sorted(places, reverse=True):
        lines[row] = lines[row][:column] + b"bert." + lines[row][column:]
    return COMMAND.sub("bert.", b"\n".join(lines).decode())


def _is_inner(module: str) -> bool:
    return module.split(".")[0] in INNER
