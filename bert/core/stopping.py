"""Signals that ask a command to stop: recorded while it can save, an error before, and never lost in between."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from bert.core.errors import Stopped

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
RESUMABLE = ("bert.pretrain", "squad.train", "tasks.train")


def hold() -> None:
    """Block signals that ask to stop until `before_the_run` or `stops`, if this process is a command that resumes.

    Otherwise a signal during the command's imports would end it as if it had failed.
    """
    words = sys.orig_argv
    if "-m" in words[:-1] and words[words.index("-m") + 1] in RESUMABLE:
        signal.pthread_sigmask(signal.SIG_BLOCK, _received())


def _received() -> list[signal.Signals]:
    """Return the signals that ask to stop. If SIGHUP is ignored, leave it out: nohup lets the run go on."""
    return [kind for kind in STOP_SIGNALS if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN]


class _Asked(BaseException):
    """A signal asks to stop. Not an Exception: libraries catch those during their import and raise another one."""


class _Early:
    """Handles signals that come before a run."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._raised = False
        self._again: threading.Timer | None = None

    def stop(self, number: int, frame: FrameType | None) -> None:
        if not self.received:
            self.received.append(number)
            _leave_terminal(number)
        if _hides_errors(frame):
            self.forget()
            self._again = threading.Timer(0.1, os.kill, (os.getpid(), number))
            self._again.daemon = True
            self._again.start()
        elif not self._raised:  # a second request must not change the exit code
            self._raised = True
            raise _Asked

    def forget(self) -> None:
        """Do not send the signal again."""
        if self._again is not None:
            self._again.cancel()


def _hides_errors(frame: FrameType | None) -> bool:
    """Return whether the running code would swallow an exception: an import, or the deletion of an object."""
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        if code.co_name == "__del__" or code.co_filename.startswith("<frozen importlib"):
            return True
    return False


@contextlib.contextmanager
def before_the_run() -> Iterator[None]:
    """Raise Stopped when a signal asks to stop before `stops` records signals: there is nothing to save."""
    early = _Early()
    stop = early.stop
    before = {kind: signal.getsignal(kind) for kind in _received()}
    try:
        for kind in before:
            signal.signal(kind, stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)  # also where a parent has blocked them
        yield
    except _Asked:
        raise Stopped("stopped with nothing to save; the same command goes on") from None
    finally:
        early.forget()
        for kind, handler in before.items():
            if signal.getsignal(kind) == stop:
                signal.signal(kind, signal.SIG_IGN if early.received else handler)


@contextlib.contextmanager
def stops() -> Iterator[list[int]]:
    """Yield a list. While the block runs, signals that ask to stop are appended to it.

    A block within another one yields the outer list, so that no signal between two runs is lost. The list also has a
    signal from before the run that the deletion of a library's object has swallowed.
    """
    outer = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(outer, _Requests):
        yield outer.received
        return
    requests = _Requests()
    if isinstance(outer, _Early):
        requests.received.extend(outer.received)
    received, receive = requests.received, requests.receive
    kinds = _received()
    before = {kind: signal.signal(kind, receive) for kind in kinds}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, kinds)  # some parents block signals, and processes inherit that
    try:
        yield received
    finally:
        for kind, handler in before.items():  # the run is ending: a second request must not change its exit code
            signal.signal(kind, signal.SIG_IGN if received else handler)


class _Requests:
    """Received signals that ask to stop."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def receive(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        _leave_terminal(number)


def _leave_terminal(number: int) -> None:
    if number == signal.SIGHUP:
        sys.stdout, sys.stderr = _Optional(sys.stdout), _Optional(sys.stderr)


class _Optional:
    """A stream whose terminal may be gone. Ignore failed writes, so that the run can save."""

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
