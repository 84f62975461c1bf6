"""Bars at a terminal, lines elsewhere; time is what the tests say."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bert.core import progress
from bert.core.progress import EVERY, FIRST, MB, Progress, Screen


class Stream(io.StringIO):
    """Standard error: a terminal, as far as it says, or a log."""

    def __init__(self, is_terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._is_terminal, self._encoding = is_terminal, encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._is_terminal

    def rows(self) -> list[str]:
        """Return what a terminal shows."""
        rows = []
        for line in self.getvalue().split("\n"):
            row: list[str] = []
            for part in line.split("\r"):
                row[: len(part)] = part
            rows.append("".join(row).rstrip())
        return rows


class Watch:
    """A screen whose time goes on when it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.screen = Screen(lambda: self.now)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.screen.look()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(progress, "LOOK", 1e6)  # the thread sleeps
    for name in progress.RANKS:
        monkeypatch.delenv(name, raising=False)
    yield Watch()


def stderr(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, encoding: str = "utf-8") -> Stream:
    stream = Stream(is_terminal, encoding)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_log_gets_a_line_after_five_seconds_and_then_one_a_minute(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stderr(monkeypatch, is_terminal=False)
    with Progress("train", "updates", 200, screen=watch.screen) as shown:
        for second in range(1, 130):
            shown.add() if second % 2 == 0 else None
            watch.after(1)
    # Two seconds an update: 198 are left after 4 seconds, 168 after 64, 138 after 124, of which the last began 1 s ago.
    assert log.getvalue().splitlines() == [
        "train: 2 of 200 updates in 5 s, 2.0 s/update, about 7 min left",
        "train: 32 of 200 updates in 65 s, 2.0 s/update, about 6 min left",
        "train: 62 of 200 updates in 2 min, 2.0 s/update, about 5 min left",
    ]
    assert FIRST == 5 and EVERY == 60


def test_a_command_without_a_count_says_after_a_minute_that_it_works(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stderr(monkeypatch, is_terminal=False)
    with Progress("bert.export", screen=watch.screen):
        watch.after(59)
        assert not log.getvalue()
        watch.after(1)
    assert log.getvalue() == "bert.export: working for 60 s\n"


def test_a_bar_has_what_is_done_the_rate_and_the_time_left(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("encode", "texts", 3000, screen=watch.screen) as shown:
        for _ in range(10):
            shown.add(100)
            watch.after(6)
        (row,) = terminal.rows()
        assert row.startswith("encode:  33%|") and row.endswith("| 1,000/3,000 texts [01:00<02:00, 16.7 texts/s]")
        assert len(row) <= 79 and "\u2588" in row
        watch.after(30)  # nothing more is done, and the time left becomes less
        assert "[01:30<01:30, " in terminal.rows()[0]
    assert terminal.rows() == [""]  # the bar is gone


def test_a_terminal_without_utf_8_gets_ascii(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True, encoding="ANSI_X3.4-1968")
    with Progress("encode", "texts", 3, screen=watch.screen) as shown:
        shown.add(2)
        watch.after(1)
    assert terminal.getvalue().isascii() and "#" in terminal.getvalue()


def test_without_a_total_there_is_no_bar(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("fetch", MB, screen=watch.screen) as shown:
        shown.add(12_500_000)
        watch.after(5)
        assert terminal.rows() == ["fetch: 12.5 MB [00:05, 2.5 MB/s]"]


def test_what_is_printed_does_not_tear_the_bar(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 4, screen=watch.screen) as shown:
        for number in range(3):
            watch.after(1)
            print(f"note: {number}", file=sys.stderr)
            shown.add()
        watch.after(1)
        *notes, bar = terminal.rows()
        assert notes == ["note: 0", "note: 1", "note: 2"] and "3/4 updates" in bar
        sys.stderr.write("half a ")
        watch.after(1)  # not into the line
        sys.stderr.write("line\n")
    assert terminal.rows() == [*notes, "half a line", ""]
    assert sys.stderr is terminal


def test_it_follows_a_standard_error_that_is_replaced(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where what libraries print to its descriptor is sent elsewhere."""
    before = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 4, screen=watch.screen) as shown:
        watch.after(1)
        after = stderr(monkeypatch, is_terminal=True)
        shown.add()
        watch.after(1)
        assert "0/4" in before.rows()[0] and "1/4" in after.rows()[0]
        print("note", file=sys.stderr)
        assert after.rows() == ["note", ""]
    assert sys.stderr is after


def test_a_resumed_run_begins_at_what_is_done_and_its_rate_does_not_count_that(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 200, done=100, screen=watch.screen) as shown:
        watch.after(10)
        assert "100/200 updates [00:10<?]" in terminal.rows()[0]
        shown.add()
        watch.after(0)
        assert "101/200 updates [00:10<16:30, 10.0 s/update]" in terminal.rows()[0]


def test_a_slow_beginning_does_not_count_for_long(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 10, screen=watch.screen) as shown:
        for seconds in (97, 1):
            shown.add()
            watch.after(seconds)
        assert "2/10 updates [01:38<06:32, 49.0 s/update]" in terminal.rows()[0]
        shown.add()
        watch.after(1)
        assert "3/10 updates [01:39<00:07, 1.0 updates/s]" in terminal.rows()[0]


def test_a_part_of_an_item_counts_for_the_time_left(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 10, screen=watch.screen) as shown:
        shown.done, shown.inside = 0.25, "+ 1/4"
        watch.after(60)
        row = terminal.rows()[0]
    assert row.startswith("train:") and row.endswith("| 0/10 updates + 1/4 [01:00<39:00, 240.0 s/update]")


def test_a_budget_of_time_is_the_time_left_if_it_ends_first(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 1000, screen=watch.screen) as shown:
        shown.deadline = 100.0
        shown.add()
        watch.after(10)
        assert "[00:10<01:30, 10.0 s/update]" in terminal.rows()[0]


def test_the_inner_block_is_shown_and_then_the_outer_one_again(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = stderr(monkeypatch, is_terminal=True)
    with Progress("train", "updates", 9, screen=watch.screen):
        with Progress("evaluate", "samples", 7, screen=watch.screen) as inner:
            assert list(inner.each("abc", 2)) == ["a", "b", "c"]
            watch.after(1)
            assert terminal.rows()[0].startswith("evaluate:") and "6/7 samples" in terminal.rows()[0]
        watch.after(1)
        assert terminal.rows()[0].startswith("train:")
        watch.screen.quiet()
        watch.after(1)
        assert terminal.rows() == [""]


def test_what_is_read_of_an_item_counts_until_it_is_counted_as_a_whole(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stderr(monkeypatch, is_terminal=False)
    with Progress("wikipedia", MB, 40e6, screen=watch.screen) as shown:
        watch.screen.read(10_000_000)
        watch.after(5)
        shown.add(40e6)
        watch.after(60)
    assert log.getvalue().splitlines() == [
        "wikipedia: 10.0 of 40.0 MB in 5 s, 2.0 MB/s, about 15 s left",
        "wikipedia: 40.0 of 40.0 MB in 65 s, 0.6 MB/s, about 0 s left",
    ]


@pytest.mark.parametrize("name", progress.RANKS)
def test_other_ranks_than_the_first_show_nothing(name: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, lines in (("0", 1), ("1", 0)):
        log = stderr(monkeypatch, is_terminal=False)
        monkeypatch.setenv(name, rank)
        with Progress("train", "updates", 9, screen=watch.screen):
            watch.after(FIRST)
        assert len(log.getvalue().splitlines()) == lines


def test_a_closed_standard_error_is_no_failure(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    log = stderr(monkeypatch, is_terminal=False)
    with Progress("train", "updates", 9, screen=watch.screen):
        log.close()
        watch.after(FIRST)
    for stream in (log, None):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("train", "updates", 9, screen=watch.screen):
            watch.after(FIRST)


WORK = """
import sys
from bert.core import cli, ending, progress
progress.LOOK = 0.01
def main(argv):
    print("loading", file=sys.stderr)
    sys.stdin.readline()
    with progress.Progress("count", "items", 100) as shown:
        shown.add(40)
        sys.stdin.readline()
        print("result")
    ending.print_next_command("counted", "100 items")
cli.main(main)
"""


def test_a_command_at_a_terminal_shows_itself_then_its_work_and_leaves_only_its_lines() -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-c", WORK]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=slave, stderr=slave, text=True)
    os.close(slave)
    assert process.stdin
    shown = ""

    def until(text: str) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(master, 4096).decode()

    until("-c: [00:00]")  # the command itself
    process.stdin.write("\n")
    process.stdin.flush()
    until("40/100 items")
    process.stdin.write("\n")
    process.stdin.close()
    until("counted: 100 items")
    assert process.wait(60) == 0
    os.close(master)
    terminal = Stream(True)
    terminal.write(shown.replace("\r\n", "\n"))
    rows = [row for row in terminal.rows() if row]
    assert rows[:2] == ["loading", "result"] and rows[2].startswith("counted: 100 items, "), rows
