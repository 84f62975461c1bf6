"""Requests to stop are recorded, and a run that makes no progress shows its stacks."""

import importlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bert.core.errors import Stopped
from bert.core.stopping import STOP_SIGNALS, before_the_run, stops
from bert.training.communicator import Communicator
from bert.training.watchdog import watchdog
from tests.conftest import ROOT
from tests.training import command, errors
from tests.waiting import wait_for


def installed() -> dict[int, object]:
    return {kind: signal.getsignal(kind) for kind in STOP_SIGNALS}


def test_signals_are_recorded_in_their_order_and_interrupt_nothing(handlers: dict[int, object]) -> None:
    with stops() as requested:
        assert not requested
        for kind in (signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), kind)
        assert requested == [signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR1]


def test_without_a_signal_the_handlers_are_set_back(handlers: dict[int, object]) -> None:
    with stops():
        assert installed() != handlers
    assert installed() == handlers


def test_a_process_that_was_asked_to_stop_ignores_more_requests_as_it_ends(handlers: dict[int, object]) -> None:
    with stops():
        os.kill(os.getpid(), signal.SIGINT)
    assert installed() == dict.fromkeys(STOP_SIGNALS, signal.SIG_IGN)


def test_a_hang_up_asks_to_stop_unless_it_is_ignored(handlers: dict[int, object]) -> None:
    with stops() as requested:
        os.kill(os.getpid(), signal.SIGHUP)
        assert requested == [signal.SIGHUP]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stops() as requested:
        os.kill(os.getpid(), signal.SIGHUP)
        assert requested == [] and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_signals_that_a_parent_has_blocked_are_received(handlers: dict[int, object]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    with stops() as requested:
        os.kill(os.getpid(), signal.SIGTERM)
        assert requested == [signal.SIGTERM]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_before_the_run_a_request_is_an_error_once(handlers: dict[int, object]) -> None:
    with pytest.raises(Stopped, match="nothing to save"), before_the_run():
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(1)
    assert installed() == dict.fromkeys(STOP_SIGNALS, signal.SIG_IGN)


def test_no_library_hides_a_request_before_the_run(handlers: dict[int, object]) -> None:
    with pytest.raises(Stopped), before_the_run():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except Exception as error:  # as inspect.getfullargspec does it
            raise TypeError from error


class Deleted:
    """Python prints an exception that is raised as this is deleted, and goes on."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def import_module(folder: Path) -> None:
    """Import a module while a signal comes. Compiled ones, as protobuf's, print an exception and go on."""
    (folder / "asked_while_imported.py").write_text("import os, time\nos.kill(os.getpid(), 15)\ntime.sleep(0.01)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.delitem(sys.modules, "asked_while_imported", raising=False)
        importlib.import_module("asked_while_imported")


@pytest.mark.parametrize("ask", [lambda folder: Deleted(), import_module], ids=["deleted", "imported"])
def test_a_request_waits_where_an_error_would_be_hidden(
    handlers: dict[int, object], tmp_path: Path, ask: Callable[[Path], object]
) -> None:
    went_on = False
    with pytest.raises(Stopped), before_the_run():
        ask(tmp_path)
        went_on = True
        time.sleep(10)
    assert went_on
    for kind in STOP_SIGNALS:
        signal.signal(kind, signal.SIG_DFL)
    with before_the_run():
        ask(tmp_path)
        with stops() as requested:
            assert requested[0] == signal.SIGTERM


def test_a_run_records_requests_that_would_be_errors_before_it(handlers: dict[int, object]) -> None:
    with before_the_run():
        with stops() as requested:
            os.kill(os.getpid(), signal.SIGTERM)
        assert requested == [signal.SIGTERM]
    with before_the_run():
        pass
    assert set(installed().values()) == {signal.SIG_IGN}  # as `stops` left them


def receives(process: int) -> bool:
    """Return whether a process blocks or catches SIGUSR1: Python has come to the first import of ours."""
    sets = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":\t" in line)
    return bool((int(sets["SigBlk"], 16) | int(sets["SigCgt"], 16)) >> (signal.SIGUSR1 - 1) & 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "delays"),  # seconds after the first import of ours
    [(signal.SIGTERM, (0.0, 0.5, 2.0)), (signal.SIGUSR1, (0.1, 1.0, 5.0))],
)
def test_a_training_that_is_asked_to_stop_as_it_starts_ends_as_documented(
    dataset: Path, tmp_path: Path, number: signal.Signals, delays: tuple[float, ...]
) -> None:
    for delay in delays:
        line = command(dataset, tmp_path / str(delay), "--init.checkpoint", "none", "--run.steps", "1000000")
        process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        while not receives(process.pid):
            time.sleep(0.001)
        time.sleep(delay)
        process.send_signal(number)
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 75, (delay, said)
        assert errors(said) in (
            ["stopped with nothing to save; the same command goes on"],
            [line for line in errors(said) if ", saved; the same command resumes" in line][:1],
        )


def test_without_its_terminal_a_run_saves_and_ends_as_asked(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if not pid:  # the run
        try:
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            with stops() as requested:
                print("ready", flush=True)
                while not requested:
                    time.sleep(0.01)
                time.sleep(0.2)
                print("stopped", flush=True)
                print("stopped", file=sys.stderr, flush=True)
                (tmp_path / "saved").touch()
        finally:
            os._exit(75 if (tmp_path / "saved").exists() else 1)
    assert b"ready" in os.read(terminal, 99)
    os.close(terminal)  # whereupon the kernel sends SIGHUP
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 75


def test_a_stall_is_shown_once_until_the_next_update(capfd: pytest.CaptureFixture[str]) -> None:
    shown = ""

    def times() -> int:
        nonlocal shown
        shown += capfd.readouterr().err
        return shown.count("warning: rank 0: no update for 0.05 seconds\n")

    with watchdog(0.05, Communicator()) as alive:
        wait_for(times, "warning")
        time.sleep(0.5)  # ten times as long
        assert times() == 1
        alive()
        wait_for(lambda: times() == 2, "another one")
        time.sleep(0.5)
    assert times() == 2
    assert "in test_a_stall_is_shown_once_until_the_next_update" in shown  # the stack of the main thread


def test_a_run_that_makes_updates_is_not_stalled(capfd: pytest.CaptureFixture[str]) -> None:
    with watchdog(5.0, Communicator()) as alive:
        for _ in range(20):
            alive()
    assert capfd.readouterr().err == ""
