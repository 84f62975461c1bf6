"""Which test files reach a change: in a small tree whose edges are known, and in this repository's own."""

from pathlib import Path

import pytest

from tests import affected

FILES = {
    "bert/__init__.py": "",
    "bert/config.py": "",
    "bert/table.py": 'ROWS = {"a": "bert.row:A", "b": "extensions.lora.row:B"}',
    "bert/row.py": "from bert import config",
    "bert/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bert import config",
    "bert/search.py": '"""Forward to extensions/lora/search.py."""',
    "extensions/lora/row.py": "",
    "extensions/lora/search.py": "",
    "scripts/launch.sh": "",
    "tests/conftest.py": "import bert.row\ndef row() -> None: ...",
    "tests/test_table.py": "import bert.table",
    "tests/test_typed.py": '"""Says bert.config and does not use it."""\nfrom bert import typed',
    "tests/test_fixture.py": "def test(row): ...",
    "tests/test_command.py": 'COMMAND = "python -m bert.search"',
    "tests/test_script.py": 'run("scripts/launch.sh", "--help")',
    "tests/extensions/lora/test_lora.py": "",
}


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("bert/config.py", {"table", "fixture"}),
        ("bert/row.py", {"table", "fixture"}),
        ("bert/__init__.py", {"table", "typed", "fixture", "command"}),
        ("extensions/lora/row.py", {"lora"}),
        ("extensions/lora/search.py", {"lora", "command"}),
        ("scripts/launch.sh", {"script"}),
        ("tests/conftest.py", {"fixture"}),
        ("tests/test_typed.py", {"typed"}),
        ("README.md", set()),
    ],
)
def test_a_change_affects_the_tests_that_reach_it(tmp_path: Path, changed: str, tests: set[str]) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = affected.Tree(tmp_path, FILES).affected([changed])
    assert {Path(test).stem.removeprefix("test_") for test in found} == tests


def test_a_change_of_an_extension_affects_few_tests_and_one_of_the_command_line_most() -> None:
    files = [path for path in affected.git("ls-files") if (affected.ROOT / path).is_file()]
    tree = affected.Tree(affected.ROOT, files)
    assert len(tree.affected(["extensions/pubmed/abstract.py"])) < 0.05 * len(tree.tests)
    assert len(tree.affected(["bert/core/cli.py"])) > 0.9 * len(tree.tests)
