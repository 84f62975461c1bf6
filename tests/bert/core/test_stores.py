"""A local path asks nothing of object stores; what is asked of them is there."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from bert.core import stores

ROOT = Path(__file__).resolve().parents[3]


def test_nothing_is_asked_about_a_local_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "STORES", {})
    with contextlib.chdir(tmp_path):
        stores.fetch(tmp_path / "x")
        stores.send(tmp_path / "x")
        stores.check_output(tmp_path / "x", "text")
        stores.fetch_run(tmp_path / "x")
        assert not stores.send_run(tmp_path / "x")


def test_each_row_is_there() -> None:
    assert all(callable(stores.STORES[name]) for name in stores.STORES)


@pytest.mark.slow
def test_a_stage_of_local_folders_imports_no_extension_of_stores(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A first sentence. And a second one.\n")
    code = "import sys\nfrom data import text\ntext.main(sys.argv[1:])\n"
    code += "print([name for name in sys.modules if name.startswith('extensions.stores')])"
    line = [sys.executable, "-c", code, "--source", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]", done.stderr
