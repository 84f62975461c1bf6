"""Requests to stop are recorded, and a run that makes no progress shows its stacks."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from bert.training.distributed import Communicator
from bert.training.signals import STOP_SIGNALS, stops, watchdog


@pytest.fixture
def handlers() -> Iterator[dict[int, object]]:
    """Handlers of this test, which are set back after it."""
    before = {kind: signal.getsignal(kind) for kind in STOP_SIGNALS}
    for kind in STOP_SIGNALS:
        signal.signal(kind, signal.default_int_handler)
    yield dict.fromkeys(STOP_SIGNALS, signal.default_int_handler)
    for kind, old in before.items():
        signal.signal(kind, old)


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


def test_a_stall_is_shown_once_until_the_next_update(capfd: pytest.CaptureFixture[str]) -> None:
    with watchdog(0.05, Communicator()) as alive:
        time.sleep(1.0)  # twenty times as long
        alive()
        time.sleep(1.0)
    shown = capfd.readouterr().err
    assert shown.count("warning: rank 0: no update for 0.05 seconds\n") == 2
    assert "in test_a_stall_is_shown_once_until_the_next_update" in shown  # the stack of the main thread


def test_a_run_that_makes_updates_is_not_stalled(capfd: pytest.CaptureFixture[str]) -> None:
    with watchdog(5.0, Communicator()) as alive:
        for _ in range(20):
            alive()
    assert capfd.readouterr().err == ""
