"""Two hosts on one machine: network namespaces, joined by a link of a given rate and delay.

Without a delay the link is a pair of virtual Ethernet devices. With one it is a pair of TUN devices, between which
`wire.py` holds every packet for that long: the kernel's own way to delay packets (netem) is missing in many kernels. In
both cases the kernel's token bucket (tbf) limits what each device sends. So the rate is that of each direction, and
both directions can be used at the same time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from benchmarks.contender import ROOT
from bert.errors import ResourceError, UsageError

DEVICE = "slow0"  # the link's device in each namespace
HOSTS = {"first": "10.213.7.1", "second": "10.213.7.2"}  # name and address
PORT = 7000  # of the measurement, in the first namespace
PREFIX = "slow-network"
BURST_SECONDS = 0.002  # that may be sent at once after a pause
QUEUE_MILLISECONDS = 20  # what a device holds before it drops packets, as a switch does
TOLERANCE = (0.85, 1.02)  # measured rate over the one asked for; headers take 3 to 5 %
ATTEMPTS = 3  # to measure that rate
NEEDS = {"ip": "iproute2", "tc": "iproute2", "taskset": "util-linux", "unshare": "util-linux", "setpriv": "util-linux"}


@dataclass(frozen=True)
class Measured:
    """What TCP gets from a link that is otherwise idle."""

    megabits: tuple[float, float]
    """Mb/s of payload: to the second host, and back"""
    round_trip: float
    """milliseconds for one byte and the answer, the median"""


def check() -> None:
    """Raise UsageError if this machine or user cannot make such links."""
    if missing := sorted({package for program, package in NEEDS.items() if not shutil.which(program)}):
        raise UsageError(f"programs are missing to make network namespaces; install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise UsageError("only root can make network namespaces; repeat as root, for example in a container")


class Link:
    """Context manager: two namespaces and the link between them. Host 0 is the launcher's."""

    def __init__(self, megabits: float, milliseconds: float = 0.0, cores: tuple[str, str] = ("", "")) -> None:
        """milliseconds: from one end to the other. cores: of each host, as in `taskset -c`; empty: all."""
        self.megabits, self.milliseconds, self.cores = megabits, milliseconds, cores
        self.names = tuple(f"{PREFIX}-{os.getpid()}-{host}" for host in (0, 1))
        self.wire: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Link":
        check()
        _remove_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}-"))
        names = "".join(f"{address} {name}\n" for name, address in HOSTS.items())
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        try:
            for name in self.names:
                _run("ip", "netns", "add", name)
            if self.milliseconds:
                self._connect_with_delay()
            else:
                peer = ["peer", "name", DEVICE, "netns", self.names[1]]
                _run("ip", "link", "add", DEVICE, "netns", self.names[0], "type", "veth", *peer)
            for name, address in zip(self.names, HOSTS.values(), strict=True):
                self._configure(name, address)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _connect_with_delay(self) -> None:
        words = [sys.executable, "-m", "benchmarks.slow_network.wire", DEVICE, str(self.milliseconds), *self.names]
        self.wire = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], cwd=ROOT, stdout=-1, text=True)
        assert self.wire.stdout
        if self.wire.stdout.readline().strip() != "ready":
            raise UsageError("a link with a delay needs TUN devices (/dev/net/tun); give --milliseconds 0")

    def _configure(self, name: str, address: str) -> None:
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
        for device in ("lo", DEVICE):
            _run("ip", "-n", name, "link", "set", device, "up")
        burst = max(64 * 1024, int(self.megabits * 1e6 / 8 * BURST_SECONDS))
        limit = ["rate", f"{self.megabits:g}mbit", "burst", str(burst), "latency", f"{QUEUE_MILLISECONDS}ms"]
        _run("tc", "-n", name, "qdisc", "add", "dev", DEVICE, "root", "tbf", *limit)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.wire:
            self.wire.kill()
            self.wire.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)  # and the devices in it
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` on a host, which has a name of its own and can resolve both names."""
        bound = ["taskset", "-c", self.cores[host]] if self.cores[host] else []
        enter = ["sh", "-c", ENTER, list(HOSTS)[host], str(self.folder / "hosts")]
        return ["ip", "netns", "exec", self.names[host], "unshare", "--uts", *enter, *bound, *words]

    def write_ssh(self) -> Path:
        """Write a program `ssh` that runs a command on the second host; return its folder.

        So the launcher's own path to another host is that of a cluster, but for sshd.
        """
        program = self.folder / "ssh"
        there = json.dumps(self.command(1, ["sh", "-c"]))
        program.write_text(SSH.format(python=sys.executable, there=there))
        program.chmod(0o755)
        return self.folder

    def wire_seconds(self) -> float:
        """Return the CPU seconds that the delay has taken so far."""
        if not self.wire:
            return 0.0
        fields = Path(f"/proc/{self.wire.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self) -> Measured:
        """Measure the link by TCP, again if others use the machine. Raise ResourceError if its rate is not as asked."""
        low, high = (self.megabits * share for share in TOLERANCE)
        for _ in range(ATTEMPTS):
            measured = self._measure_once()
            if all(low <= rate <= high for rate in measured.megabits):
                return measured
        there, back = measured.megabits
        raise ResourceError(
            f"the link gives {there:.0f} and {back:.0f} Mb/s instead of {self.megabits:g}: the machine is too busy or "
            "too slow for this rate; repeat on an idle machine, or give less in --megabits"
        )

    def _measure_once(self) -> Measured:
        probe = [sys.executable, "-m", "benchmarks.slow_network.probe"]
        serve = self.command(0, [*probe, "serve", "first", str(PORT)])
        ask = self.command(1, [*probe, "ask", "first", str(PORT), str(int(self.megabits * 1e6 / 8))])
        server = subprocess.Popen(serve, cwd=ROOT, stdout=-1, text=True)
        try:
            assert server.stdout
            server.stdout.readline()  # it listens
            asked = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, timeout=60)
            back, there, round_trip = map(float, asked.stdout.split())
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise ResourceError("the two hosts do not reach each other over the link") from error
        finally:
            server.kill()
            server.communicate()
        return Measured((there, back), round_trip)


# `ip netns exec` has given the process mounts of its own.
ENTER = 'echo $0 > /proc/sys/kernel/hostname && mount --bind "$1" /etc/hosts && shift && exec "$@"'

# Called as `ssh -o ... -p ... -i ... HOST COMMAND...`.
SSH = """\
#!{python}
import os, sys
words, plain = sys.argv[1:], []
while words:
    word = words.pop(0)
    if word in ("-o", "-p", "-i") and len(plain) < 2:  # horovodrun gives the port behind the host
        words.pop(0)
    else:
        plain.append(word)
there = {there}
os.execvp(there[0], [*there, " ".join(plain[1:])])
"""


def traffic() -> tuple[int, int]:
    """Return the bytes that this process's host has received and sent over the link, from the device's counters."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == DEVICE:
            numbers = counters.split()
            return int(numbers[0]), int(numbers[8])
    return 0, 0


def _remove_abandoned() -> None:
    """Remove the namespaces of processes that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for name, process in re.findall(rf"^({PREFIX}-(\d+)-[01])\b", listed, re.MULTILINE):
        if not Path("/proc", process).exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise UsageError(f"{' '.join(words[:4])}: {said}; the kernel must have network namespaces and tbf")
