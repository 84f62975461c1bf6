"""Signals that ask a run to stop, and the watchdog that detects stalls."""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from bert.training.distributed import Communicator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


@contextlib.contextmanager
def stops() -> Iterator[list[int]]:
    """Yield a list; while the block runs, signals that ask to stop are appended to it.

    A block within another one has the list of the outer one, so that no signal between two runs is lost. SIGHUP stays
    ignored if it is: nohup has the run go on without its terminal.
    """
    outer = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(outer, _Requests):
        yield outer.received
        return
    requests = _Requests()
    received, receive = requests.received, requests.receive
    kinds = [kind for kind in STOP_SIGNALS if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN]
    before = {kind: signal.signal(kind, receive) for kind in kinds}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, kinds)  # some parents block signals, and processes inherit that
    try:
        yield received
    finally:
        for kind, handler in before.items():  # the run is ending: a second request must not change its exit code
            signal.signal(kind, signal.SIG_IGN if received else handler)


class _Requests:
    """Signals that ask to stop."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def receive(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        if number == signal.SIGHUP:
            sys.stdout, sys.stderr = _Optional(sys.stdout), _Optional(sys.stderr)


class _Optional:
    """A stream whose terminal may have gone; what cannot be written then is left out, so that the run can save."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def watchdog(seconds: float, comm: Communicator) -> Iterator[Callable[[], None]]:
    """Yield a function that the block must call at least once in this many seconds; if it does not, print all stacks.

    End the process if it has waited twice that long for another rank, because Horovod does not end it. This does not
    use faulthandler.dump_traceback_later, which walks the stacks of running threads without holding the interpreter's
    lock and has crashed runs that were only slow.
    """
    called, ended = threading.Event(), threading.Event()

    def watch() -> None:
        shown = False
        while not ended.is_set():
            if called.wait(seconds):
                called.clear()
                shown = False
                continue
            who = f"rank {comm.rank}"
            if not shown:
                print(f"warning: {who}: no update for {seconds:g} seconds", file=sys.stderr, flush=True)
                faulthandler.dump_traceback()
                shown = True
            if stalled := comm.stalled_peers(2 * seconds):
                message = f"{stalled} did not answer for {2 * seconds:g} seconds; the same command resumes"
                print(f"error: {who}: {message}", file=sys.stderr, flush=True)
                os._exit(1)  # the main thread is blocked in Horovod

    watcher = threading.Thread(target=watch, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield called.set
    finally:
        ended.set()
        called.set()
        watcher.join()
