"""What GPUs the machine has, found without TensorFlow and without touching them."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

NVIDIA_SMI_SECONDS = 10.0  # it can hang when a GPU has fallen off the bus


class CommandError(Exception):
    """A command was not found, failed or did not answer; the message says which, in one line."""

    def __init__(self, why: str, shown: str = "") -> None:
        super().__init__(why)
        self.shown = shown
        """what the command had printed by then"""


def ask(command: Sequence[str], seconds: float, env: dict[str, str] | None = None) -> str:
    """Return what a command prints. Raise CommandError if it is missing, fails or takes longer than `seconds`.

    The command has a process group of its own, so that what it has started ends with it.
    """
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    late = False
    try:
        out, complaint = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        late = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            out, complaint = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:  # a process that waits within the driver cannot be killed
            out, complaint = b"", b""
    shown = out.decode(errors="replace")
    if late:
        raise CommandError(f"{name} did not answer within {seconds:g} s", shown)
    if process.returncode:
        said = complaint.decode(errors="replace").strip() or shown.strip() or "nothing"
        raise CommandError(f"{name} ended with code {process.returncode}: {said.splitlines()[-1][:200]}", shown)
    return shown


def gpus_in_machine(dev: Path = Path("/dev")) -> list[str]:
    """The NVIDIA GPUs of this machine: their device files, or else the lines of `nvidia-smi -L`; empty if none."""
    if files := sorted(path for path in dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)):
        return [str(path) for path in files]
    return [line for line in nvidia_smi("-L").splitlines() if line.startswith("GPU ")]


def nvidia_smi(*arguments: str) -> str:
    """Standard output of nvidia-smi; empty if it is missing, fails or does not answer."""
    try:
        return ask(["nvidia-smi", *arguments], NVIDIA_SMI_SECONDS)
    except CommandError:
        return ""


def gpu_memory(name: str) -> int | None:
    """Memory in bytes of the first GPU of that name; None if nvidia-smi does not say."""
    listed = nvidia_smi("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    rows = (line.rpartition(", ") for line in listed.splitlines())
    return next((int(mib) << 20 for model, _, mib in rows if model == name and mib.isdecimal()), None)
