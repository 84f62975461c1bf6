"""Odd words, settings and machines end a launcher with one line, and its relay passes on every byte of the ranks."""

import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, limits

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "launcher"))
import binding
import command_line
import settings
import supervisor

OWN = ("-np", "-H", "--ssh-port", "--network-interfaces")
TEXT = st.text(max_size=9).filter(lambda text: "\0" not in text)
WORDS = st.lists(
    st.sampled_from([*settings.SETTINGS, *OWN, "--", "--bind", "--dry-run", "-np", "python", "", "-", "1", "0", "-1"])
    | TEXT,
    max_size=7,
)


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())


def ends(code: Any, said: str) -> None:
    """The launcher ends with the usage code and one line."""
    assert code == 2
    assert re.fullmatch(r"error: scripts/launch\.sh: [^\n]+\n", said), said


@given(words=WORDS)
@fuzz
def test_a_command_line_is_parsed_or_refused_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    try:
        with limits():
            options = command_line.parse("launch.sh", OWN, words)
            ranks = command_line.number_of_ranks("launch.sh", options)
        assert options.command and ranks > 0
    except SystemExit as end:
        said = capsys.readouterr()
        if end.code:
            ends(end.code, said.err)


@given(text=damaged(b"0-2,8\n").map(lambda content: content.decode("latin-1")))
@fuzz
def test_a_list_of_cores_gives_numbers_or_leaves_the_rank_unbound(text: str) -> None:
    with limits():
        try:
            assert all(number >= 0 for number in binding.cpu_numbers(text))
        except binding.Unbound as error:
            assert str(error)


@given(data=st.data())
@fuzz
def test_the_relay_reads_any_bytes_of_the_ranks(data: st.DataObject) -> None:
    watcher = supervisor.Supervisor(2)
    mark = watcher.mark.encode()
    good = b"[0]<stderr>:" + mark + b" runs node-a 17\n[1]<stdout>:hello\n[1]<stderr>:" + mark + b" ended 3\nssh\n"
    content, target = data.draw(damaged(good)), io.BytesIO()
    with limits():
        watcher._relay(io.BytesIO(content), target)
        watcher._explain(1)
    assert all(process > 0 for _, process in watcher.started)
