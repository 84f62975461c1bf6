"""The times of commands at a terminal: of a program with known pauses; and the list has commands that exist."""

from pathlib import Path

import pytest

from benchmarks import first_signs
from bert import commands
from tests.test_pages import Checker, Shown


def test_first_byte_end_and_exit_code_of_a_program_with_pauses(tmp_path: Path) -> None:
    (tmp_path / "pauses.py").write_text(
        '"""."""\nimport sys, time\n'
        'time.sleep(0.3)\nprint("a", end="", file=sys.stderr, flush=True)\n'
        "time.sleep(1.5)\nsys.exit(3 * sys.stderr.isatty())\n"
    )
    row, printed = first_signs.timed(["pauses", "a b"], tmp_path)
    assert (row.command, row.code, printed) == ("pauses 'a b'", 3, b"a")
    assert row.first >= 0.3 and row.end >= 1.8 and row.end - row.first > 0.2
    assert row.processor < row.end
    assert f"| `pauses 'a b'` (exit code 3) | {row.first:.1f} | {row.end:.1f} |" in first_signs.table([row])


@pytest.mark.slow
def test_the_list_has_commands_that_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = first_signs.COMMANDS.strip().splitlines()
    for line in lines:
        Checker(Shown("first_signs", f"python -m {line}", False, {}))
    without = {"data.download", "data.pubmed", "data.adopt", "data.synthetic"}
    without |= {"bert.average", "squad.report"}
    assert set(commands.MODULES.values()) - {line.split()[0] for line in lines} <= without
    assert len(lines) > 40
