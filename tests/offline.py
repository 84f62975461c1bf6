"""Run a command without a network: python -m tests.offline COMMAND... in a network namespace with loopback alone."""

import fcntl
import functools
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


@functools.cache
def words() -> list[str]:
    """Return the words in front of a command that run it so, or none where such namespaces are not allowed."""
    front = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-m", "tests.offline"]
    allowed = shutil.which("unshare") and not subprocess.run([*front, "true"], cwd=ROOT, capture_output=True).returncode
    return front if allowed else []


if __name__ == "__main__":
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))
    os.execvp(sys.argv[1], sys.argv[1:])
