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
from pathlib import Path
from types import TracebackType

from benchmarks.contender import ROOT
from bert.core.errors import UsageError

DEVICE = "slow0"  # the link's device in each namespace
HOSTS = {"first": "10.213.7.1", "second": "10.213.7.2"}  # name and address
PREFIX = "slow-network"
BURST_SECONDS = 0.002  # that may be sent at once after a pause
QUEUE_MILLISECONDS = 20  # what a device holds before it drops packets, as a switch does
NEEDS = {"ip": "iproute2", "tc": "iproute2", "taskset": "util-linux", "unshare": "util-linux", "setpriv": "util-linux"}


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

    def sent(self) -> int:
        """Return the bytes that the second host has sent over the link, headers included."""
        shown = _run("ip", "-n", self.names[1], "-s", "-j", "link", "show", "dev", DEVICE)
        count: int = json.loads(shown)[0]["stats64"]["tx"]["bytes"]
        return count


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


def _remove_abandoned() -> None:
    """Remove the namespaces of processes that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for name, process in re.findall(rf"^({PREFIX}-(\d+)-[01])\b", listed, re.MULTILINE):
        if not Path("/proc", process).exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _run(*words: str) -> str:
    """Return what a command prints. Raise UsageError if it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        raise UsageError(f"{' '.join(words[:4])}: {output}; the kernel must have network namespaces and tbf")
    return done.stdout
