"""The processes in which runs are trained and scored, one at a time, and the requests to stop, which they get too."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bert.core.errors import Stopped

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Children:
    """Starts the processes. After a signal to stop, the one that runs is asked to end, and none is started any more."""

    def __init__(self) -> None:
        self.stopped = False
        self._running: subprocess.Popen[bytes] | None = None

    def listen(self) -> None:
        """Take the signals, until the process ends; SIGHUP stays ignored under nohup."""
        for kind in SIGNALS:
            if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN:
                signal.signal(kind, self._stop)

    def _stop(self, *_: int | FrameType | None) -> None:
        self.stopped = True
        if self._running:
            self._running.terminate()

    def check(self) -> None:
        """Raise Stopped if a signal came."""
        if self.stopped:
            raise Stopped("stopped; the same command goes on")

    def run(self, words: Sequence[str], log: Path | None = None) -> int:
        """Run a command; return its exit code. log: file at whose end its output is put; None: it is shown.

        Raise Stopped if a signal came before it.
        """
        # In a separate session, Ctrl-C does not reach it; it ends if this process is killed.
        bound = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with open(log, "ab") if log else contextlib.nullcontext() as stream:
            self.check()
            self._running = subprocess.Popen(
                [*bound, *words],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT if log else None,
                start_new_session=True,
            )
        if self.stopped:  # the signal came before the process was there
            self._running.terminate()
        code = self._running.wait()
        self._running = None
        return code


def reason(log: Path, begin: int) -> str:
    """Return the line that says why a command failed: its error, or else its last one. begin: byte where it began."""
    with open(log, "rb") as stream:
        stream.seek(begin)
        lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    return (errors or lines or ["it printed nothing"])[-1].removeprefix("error: ")[:300]
