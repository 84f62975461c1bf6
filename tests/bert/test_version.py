"""The version is in one place, and the command tells it with the commit."""

import re
from pathlib import Path
from typing import Any

import bert
from bert.__main__ import commit

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_told(run_module: Any) -> None:
    told = run_module("bert", "--version")
    assert told.returncode == 0
    first, second = told.stdout.splitlines()
    assert first == bert.__version__ + (f" ({commit()})" if commit() else "")
    assert re.search(r"tensorflow \d", second)
    assert run_module("bert").returncode == 2


def test_other_files_name_the_same_version() -> None:
    assert f"version: {bert.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[{re.escape(bert.__version__)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
