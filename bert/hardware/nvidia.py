"""Find the NVIDIA GPUs of the machine without TensorFlow and without using them."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NVIDIA_SMI_SECONDS = 10.0  # time limit: it can hang when a GPU has failed


class CommandError(Exception):
    """A command was not found, failed or timed out; the message is one line."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output
        """what the command had printed"""


def run_command(command: Sequence[str], seconds: float, env: dict[str, str] | None = None) -> str:
    """Return the output of a command. Raise CommandError if it is missing, fails or takes longer than `seconds`.

    The command runs in its own process group, which is killed on a timeout.
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
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            stdout, stderr = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:  # a process that waits in the driver cannot be killed
            stdout, stderr = b"", b""
    output = stdout.decode(errors="replace")
    if timed_out:
        raise CommandError(f"{name} did not answer within {seconds:g} s", output)
    if process.returncode:
        message = stderr.decode(errors="replace").strip() or output.strip() or "no output"
        raise CommandError(f"{name} ended with code {process.returncode}: {message.splitlines()[-1][:200]}", output)
    return output


def gpus_in_machine(dev: Path = Path("/dev")) -> list[str]:
    """Return the GPUs of this machine as device files or else as lines of `nvidia-smi -L`; empty if there are none."""
    if files := sorted(path for path in dev.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)):
        return [str(path) for path in files]
    return [line for line in nvidia_smi("-L").splitlines() if line.startswith("GPU ")]


def nvidia_smi(*arguments: str) -> str:
    """Return the output of nvidia-smi; empty if it is missing, fails or times out."""
    try:
        return run_command(["nvidia-smi", *arguments], NVIDIA_SMI_SECONDS)
    except CommandError:
        return ""


def gpu_memory(number: int) -> int | None:
    """Return the memory in bytes of a visible GPU, or of a MIG slice; None without the driver.

    nvidia-smi says only how much the whole card has.
    """
    size = ctypes.c_size_t()
    return size.value if _asked_driver("cuDeviceTotalMem_v2", ctypes.byref(size), number) else None


def gpu_uuid(number: int) -> uuid.UUID | None:
    """Return the identifier of a visible GPU or MIG slice, which is unique; None without the driver.

    The index and CUDA_VISIBLE_DEVICES are not unique: a scheduler may show each rank its own GPU as number 0.
    """
    identity = ctypes.create_string_buffer(16)  # since CUDA 11.4 version 2 of the call is of the slice
    return uuid.UUID(bytes=identity.raw) if _asked_driver("cuDeviceGetUuid_v2", identity, number) else None


def _asked_driver(call: str, answer: Any, number: int) -> bool:
    """Let the driver write the result of a call about a visible GPU into `answer`; return whether it succeeded."""
    device = ctypes.c_int()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        calls = cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), number)
        return not any(calls) and not getattr(cuda, call)(answer, device)
    except (OSError, AttributeError):
        return False
