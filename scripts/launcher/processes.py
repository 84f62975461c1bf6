"""Commands as processes: in this one's place, as a rank, or restarted when killed."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import place
import settings

# Exit codes after which a restart would not help: done, an error of the command's own, stopped on request.
DOCUMENTED = (0, 2, 3, 4, 5, 75)
STOPPED = 75

RENDEZVOUS = "BERT_RENDEZVOUS_PORT"  # of the launcher's server, for ranks that meet by Gloo
HOROVOD_RENDEZVOUS = "HOROVOD_GLOO_RENDEZVOUS_PORT"  # of horovodrun's own, on the same host


def handle(kinds: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> None:
    """Have the handler called for the signals, but leave SIGHUP ignored if it is: nohup asks for that.

    Signals that the parent of this process has blocked are let through, also to the processes that this one starts.
    """
    for kind in kinds:
        if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN:
            signal.signal(kind, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, kinds)


def status_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process; return its exit status as shells count it: 128 and the signal where one ended it."""
    code = process.wait()
    return 128 - code if code < 0 else code


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command. If there is no such command, end with one line and 127, as shells do."""
    try:
        return subprocess.Popen(command, **options)
    except OSError as error:
        _cannot_run(command, error)


def replace(command: Sequence[str]) -> NoReturn:
    """Run a command in the place of this process."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and then by what it starts
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        _cannot_run(command, error)


def with_flags(words: Sequence[str]) -> NoReturn:
    """Run `NAME COMMAND...`: the command, and behind it the words of the variable NAME.

    Quotes and backslashes group characters into words, as in a shell. Nothing is expanded or run.
    """
    name, *command = words
    try:
        flags = shlex.split(os.environ.get(name, ""))
    except ValueError as error:
        print(f"error: {name}: {str(error).lower()} ; a quote or a backslash has no end", file=sys.stderr)
        sys.exit(2)
    replace([*command, *flags])


def _cannot_run(command: Sequence[str], error: OSError) -> NoReturn:
    print(f"error: {command[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(127)


def host() -> str:
    """Return this host's name."""
    return subprocess.check_output(["uname", "-n"], text=True).strip()


def rank(command: Sequence[str]) -> NoReturn:
    """Run one rank of horovodrun, mpirun or srun with its share of the cores; pass SIGTERM on to it.

    Lines on standard error that begin with $BERT_LAUNCH tell the launcher where the rank runs and how it ended.
    All three stop all ranks as soon as one ends with a status other than 0. A rank that stopped on request
    is no failure, so this process then ends with 0, and the other ranks can finish saving.
    """
    mark = os.environ["BERT_LAUNCH"]
    port = os.environ.pop(RENDEZVOUS, None)
    if port and HOROVOD_RENDEZVOUS in os.environ:
        os.environ[HOROVOD_RENDEZVOUS] = port
    elif port and "SLURM_LAUNCH_NODE_IPADDR" in os.environ:  # a task of srun
        place.meet_by_gloo(port)
    ranks = int(settings.first_set("HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", default="1"))
    is_bound = "SLURM_STEP_ID" in os.environ and len(os.sched_getaffinity(0)) < (os.cpu_count() or 1)
    settings.limit_threads(settings.cores_per_rank(1 if is_bound else ranks))
    if problem := place.missing_interface():
        _report(f"error: {host()}: {problem}\n{mark} ended 2")
        sys.exit(2)
    if interface := place.own_interface():
        os.environ["HOROVOD_GLOO_IFACE"] = interface  # horovodrun names one for all hosts, whether they have it or not
    child = _Child((signal.SIGTERM, signal.SIGUSR1))
    _report(f"{mark} runs {host()} {os.getpid()}")
    status = child.run(command)
    if status:
        _report(f"{mark} ended {status}")
    sys.exit(0 if status == STOPPED else status)


def _report(text: str) -> None:
    """Write text and a line feed to standard error at once: ranks may share a pipe.

    Under PYTHONUNBUFFERED, print writes them one after the other, with what another rank writes between them.
    """
    os.write(2, f"{text}\n".encode())


def again(words: Sequence[str]) -> NoReturn:
    """Run `N COMMAND...`: the command, and up to N times again when a signal or an unknown failure ended it.

    A command that ended after a signal to stop is not run again.
    """
    if len(words) < 2 or not re.fullmatch("[0-9]+", words[0]):
        print(
            "error: scripts/again.sh: no number or no command ; usage: scripts/again.sh N COMMAND...", file=sys.stderr
        )
        sys.exit(2)
    restarts, command = int(words[0]), words[1:]
    child = _Child((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP))
    for number in range(1, restarts + 2):
        began = time.monotonic()
        status = child.run(command, process_group=0)  # else Ctrl-C reaches the command twice, the second from here
        if status in DOCUMENTED or child.stopping or number > restarts:
            sys.exit(status)
        seconds = time.monotonic() - began
        print(
            f"warning: ended with status {status} after {seconds:.0f} s; restart {number} of {restarts}",
            file=sys.stderr,
        )
    raise AssertionError


class _Child:
    """A process that gets the signals that this one gets."""

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.stopping: int | None = None
        handle(signals, self._stop)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.stopping = number
        if self.process:
            self.process.send_signal(number)

    def run(self, command: Sequence[str], **options: Any) -> int:
        """Run a command to its end; return its status."""
        self.process = None
        self.process = start(command, **options)
        if self.stopping:  # a signal came before the process was there
            self.process.send_signal(self.stopping)
        return status_of(self.process)
