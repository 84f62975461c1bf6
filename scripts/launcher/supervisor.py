"""Between the user and horovodrun, mpirun or srun: signals to ranks, their output and the failing one's status back.

horovodrun ends with 1 whatever a rank's status was, reports every failure of a rank as a traceback of its own, and
kills ranks that were asked to stop before they have saved.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import IO, TYPE_CHECKING, NoReturn

import processes
import settings

if TYPE_CHECKING:
    import rendezvous

# The rank in front of a line of horovodrun's; in front of each piece of Open MPI's, with a space from version 5 on.
HOROVODRUN = re.compile(rb"\[[0-9]+\]<std(?:out|err)>:")
UNNUMBERED = re.compile(b"")  # of `here`
SRUN = re.compile(rb" *[0-9]+: ")  # with --label
OPEN_MPI = re.compile(rb"(\[[0-9]+,[0-9]+\]<std(?:out|err)>:)")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
TERMINATED = 128 + signal.SIGTERM
MOMENT = 5.0  # seconds


class Supervisor:
    """One launch of horovodrun, mpirun or srun, whose ranks run under `processes.rank`."""

    def __init__(self, ranks: int, extra: Iterable[str] = (), number: re.Pattern[bytes] = HOROVODRUN) -> None:
        """extra: names of variables that ranks get besides. number: the rank in front of a line."""
        self.ranks, self.extra, self.number = ranks, extra, number
        self.host = processes.host()
        self.mark = f"@launch-{self.host}-{os.getpid()}"  # begins the lines in which ranks report to the launcher
        self.runner: subprocess.Popen[bytes] | None = None
        self.stopping = False
        self.started: list[tuple[str, int]] = []  # host and process of each rank
        self.all_run = threading.Event()
        self.statuses: list[int] = []  # of ranks that failed, in order
        self.runner_lines: list[bytes] = []
        self.reported = False  # a rank has printed an error, or that it stopped
        self.spaced = True  # no piece of Open MPI's has come without a space behind the number

    def run(self, command: Sequence[str], by_gloo: bool) -> int:
        """Run the command to its end; return the status of the rank that failed, or else the command's own.

        by_gloo: whether the ranks meet by Gloo, which needs a server here.
        """
        os.environ["BERT_LAUNCH"] = self.mark
        server = _serve_rendezvous() if by_gloo else None
        processes.handle(SIGNALS, self._stop)
        # Its own session keeps Ctrl-C from horovodrun, which would kill the ranks. setpriv ends it if this process is
        # killed: the kernel sends the signal for each thread that ends, so several times. Two SIGTERM can block
        # horovodrun for ever, because its handler takes a lock and the second one interrupts it. If horovodrun is
        # killed, its children end the ranks as they do on SIGTERM. mpirun can be sent several.
        words = ["setpriv", "--pdeathsig", "KILL" if command[0] == "horovodrun" else "TERM", *command]
        pipe = subprocess.PIPE
        environment = settings.without_secrets(self.extra)
        self.runner = runner = processes.start(words, stdout=pipe, stderr=pipe, start_new_session=True, env=environment)
        if self.stopping:  # a signal came before the process was there
            runner.terminate()
        assert runner.stdout and runner.stderr
        relays = [
            threading.Thread(target=self._relay, args=(runner.stdout, sys.stdout.buffer)),
            threading.Thread(target=self._relay, args=(runner.stderr, sys.stderr.buffer)),
        ]
        for relay in relays:
            relay.start()
        status = processes.status_of(runner)
        for relay in relays:
            relay.join()
        if server and os.environ.get("HOROVOD_LOG_LEVEL") in ("debug", "trace"):
            said = f"{server.requests} requests, {server.seconds:.2f} s of processor time"
            print(f"rendezvous: {said}", file=sys.stderr)
        return self._explain(status)

    def _stop(self, *_: int | FrameType | None) -> None:
        """Ask this host's ranks to stop; then all ranks save. If that is impossible, or the second time, end all."""
        here = [process for host, process in self.started if host == self.host]
        if not self.stopping and here and len(self.started) == self.ranks:
            for process in here:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGTERM)
        elif self.runner:
            self.runner.terminate()
        self.stopping = True

    def _relay(self, source: IO[bytes], target: IO[bytes]) -> None:
        """Copy one stream of all ranks without their numbers and reports; how several of them ended, only once."""
        kinds = rb" (?:runs ([\w.-]+) ([1-9][0-9]{0,8})|ended ([0-9]{1,9}))"
        report = re.compile(rb"(.*)" + re.escape(self.mark).encode() + kinds, re.DOTALL)
        errors: set[bytes] = set()
        for line in self._lines(source):
            if reported := report.fullmatch(line):
                line = reported[1]
                if status := reported[4]:
                    self.statuses.append(int(status))
                else:
                    self.started.append((reported[2].decode(), int(reported[3])))
                    if len(self.started) == self.ranks:
                        self.all_run.set()
                if not line:
                    continue
            # horovodrun's shells print the two words.
            if line in (b"Terminated", b"Killed") or line in errors:
                continue
            if line.startswith((b"error: ", b"stopped ")):
                errors.add(line)
                self.reported = True
            try:
                target.write(line + b"\n")
                target.flush()
            except OSError as error:
                # Nobody reads any more. What the ranks still write is read on, because horovodrun does not pass a
                # closed pipe on to them, and they would wait for ever.
                os.dup2(os.open(os.devnull, os.O_WRONLY), target.fileno())
                if isinstance(error, BrokenPipeError) and not self.stopping:
                    self.all_run.wait(MOMENT)  # what ranks report comes over the other stream, which may be behind
                    self._stop()

    def _lines(self, source: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines of the ranks without their numbers; keep the lines that horovodrun or mpirun itself prints.

        Open MPI numbers each piece that a rank writes at once. A line may come in several such pieces, as Python's do
        under PYTHONUNBUFFERED, with pieces of other ranks between them.
        """
        begun: dict[bytes, bytes] = {}
        for line in source:
            line = line.removesuffix(b"\n")
            if number := self.number.match(line):
                yield line[number.end() :]
                continue
            before, *numbered = OPEN_MPI.split(line)
            if before or not numbered:
                self.runner_lines.append(line)
                continue
            ranks, pieces = numbered[::2], numbered[1::2]
            self.spaced &= all(piece.startswith(b" ") for piece in pieces)
            for rank, piece in zip(ranks, pieces, strict=True):
                begun[rank] = begun.get(rank, b"") + piece[self.spaced :]
            yield begun.pop(ranks[-1])
        yield from begun.values()

    def _explain(self, status: int) -> int:
        """Print why the ranks ended, unless a rank has said so; return the status to end with."""
        if self.statuses:
            code = failing_status(self.statuses)
            if code > 128:
                hint = " ; if nobody sent it, memory ran out: use a smaller batch" if code == 137 else ""
                _error(f"a rank was ended by {_signal_name(code - 128)}{hint}")
            elif not self.reported:
                _error(f"a rank ended with status {code} ; its own messages are above")
            return code
        asked = (re.fullmatch(rb"ssh not successful for host (.*):", line) for line in self.runner_lines)
        if unreachable := sorted({match[1].decode(errors="replace") for match in asked if match}):
            _error(f"no ssh without a password to {' '.join(unreachable)} ; try it as: ssh {unreachable[0]} true")
            return 2
        said = b"\n".join(self.runner_lines)
        if b"Unable to find a set of common" in said:
            _error("the hosts share no name of a network interface ; give one of each: --network-interfaces eth0,ens3")
            return 2
        if b"No interface is found for address 127.0.0.1" in said:
            _error("all hosts of -H are this one ; leave out --network-interfaces")
            return 2
        if self.stopping:
            _error(
                f"ended before the ranks saved: that needs a rank on {self.host}, all ranks running, and no second "
                "signal ; the same command resumes from the last checkpoint"
            )
        elif status:
            sys.stderr.buffer.write(b"".join(line + b"\n" for line in self.runner_lines))
        return status


def failing_status(statuses: Sequence[int]) -> int:
    """Return the status of the rank that failed first, as far as the statuses tell.

    It is the first documented status. If there is none, it is the first that a signal caused, except for ranks that
    were asked to end. If there is none either, it is the first of the others; such a rank may only have noticed that
    another one was gone.
    """
    return next(
        (
            status
            for belongs in (
                lambda status: status in processes.DOCUMENTED,
                lambda status: status > 128 and status != TERMINATED,
                lambda status: status != TERMINATED,
            )
            for status in statuses
            if belongs(status)
        ),
        TERMINATED,
    )


def _serve_rendezvous() -> "rendezvous.Rendezvous":
    """Start the server by which the ranks find each other, and have them told its port (`processes.rank`)."""
    import rendezvous

    server = rendezvous.Rendezvous()
    os.environ[processes.RENDEZVOUS] = str(server.port)
    return server


def _error(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def explain_if_killed() -> Iterator[None]:
    """Have another process print why the output ends if this one is killed while the block runs.

    It waits at a pipe that the kernel closes when this process ends, for the byte that says that the block has ended.
    """
    read, write = os.pipe()
    if not (child := os.fork()):
        os.close(write)
        os.setsid()
        for kind in (*SIGNALS, signal.SIGPIPE):
            signal.signal(kind, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)  # who reads this process's output waits only for the ranks
        if not os.read(read, 1):
            message = b"error: the launcher was killed, and its ranks end ; the same command resumes from the last "
            with contextlib.suppress(OSError):
                os.write(2, message + b"checkpoint\n")
        os._exit(0)
    os.close(read)
    try:
        yield
    finally:
        os.write(write, b".")
        os.close(write)
        os.waitpid(child, 0)


def supervise(
    ranks: int, command: Sequence[str], extra: Sequence[str], by_gloo: bool, number: re.Pattern[bytes] = HOROVODRUN
) -> NoReturn:
    """Run the command that starts the ranks; end with the status of the rank that failed.

    extra, number: as `Supervisor` has them. by_gloo: as `Supervisor.run` has it.
    """
    with explain_if_killed():
        status = Supervisor(ranks, extra, number).run(command, by_gloo)
    sys.stdout.flush()
    sys.exit(status)
