"""GPUs that TensorFlow lists among the physical devices, and that no kernel runs on: everything is placed on the CPU.

    python -m tests.fake_gpus COUNT MODULE [ARGUMENTS...]

runs a command as on a machine with this many GPUs. `run` runs several, for which TensorFlow is imported once. What this
shows: the order in which devices are chosen and tensors made, the branches for GPUs, their precision and XLA's flags.
What it cannot show: kernels, memory and speed.
"""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME, CAPABILITY = "NVIDIA H100 80GB HBM3", "9.0"


def install(count: int) -> None:
    """Make TensorFlow list `count` GPUs; call it before TensorFlow lists its devices for the first time."""
    from tensorflow.python.eager import context

    listed = context.pywrap_tfe.TF_ListPhysicalDevices()
    fakes = [f"/physical_device:GPU:{number}".encode() for number in range(count)]
    context.pywrap_tfe.TF_ListPhysicalDevices = lambda: [*listed, *fakes]
    details = {"device_name": NAME, "compute_capability": CAPABILITY}
    context.pywrap_tfe.TF_GetDeviceDetails = lambda index: dict(details) if index >= len(listed) else {}


def run(count: int, commands: Sequence[Sequence[object]], folder: Path) -> list[tuple[str, str]]:
    """Run commands one after the other, each a module and its arguments; return what each wrote to its two outputs.

    folder: where they write it. Raise CalledProcessError if one fails; standard error says why.
    """
    words = json.dumps([[str(word) for word in command] for command in commands])
    line = [sys.executable, "-m", "tests.fake_gpus", str(count), "--each", words, str(folder)]
    subprocess.run(line, cwd=ROOT, check=True)
    return [(out.read_text(), err.read_text()) for out, err in (_outputs(folder, n) for n in range(len(commands)))]


def _outputs(folder: Path, number: int) -> tuple[Path, Path]:
    return folder / f"{number}.stdout", folder / f"{number}.stderr"


def _each(commands: Sequence[Sequence[str]], folder: Path) -> None:
    """Run each command in a fork of this process, which has imported TensorFlow and started none of its threads."""
    for number, command in enumerate(commands):
        written = _outputs(folder, number)
        child = os.fork()
        if child == 0:
            for stream, path in enumerate(written, start=1):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
            _run(command)
            sys.exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(written[1].read_text())


def _run(words: Sequence[str]) -> None:
    sys.argv = [*words]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    install(int(sys.argv[1]))
    if sys.argv[2] == "--each":
        _each(json.loads(sys.argv[3]), Path(sys.argv[4]))
    else:
        _run(sys.argv[2:])
