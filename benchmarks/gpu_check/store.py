"""A cache of exported and compiled programs on disk, each under a hash of all its inputs."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.devices import DEVICES
from benchmarks.gpu_check.programs import Program
from bert.core import files
from bert.core.errors import IntegrityError, ResourceError, UsageError, UserError
from bert.model import cost
from bert.plan import demand

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = ROOT / ".venv-gpu-check" / "bin" / "python"
REFUSED = "refused: "  # how the compiling process begins XLA's reason
CHECK = re.compile(r"\S+:\d+\] Check failed: .*")  # how XLA says which of its own checks failed, before it aborts


class Refused(IntegrityError):
    """TensorFlow cannot export the program, or XLA cannot compile it."""


class Store:
    """Programs in `folder`, exported and compiled when they are first needed."""

    def __init__(self, folder: Path, xla_flags: str) -> None:
        """xla_flags: for the compiler, as XLA_FLAGS has them, behind those that a run on a GPU sets."""
        self.folder, self.xla_flags = folder, xla_flags

    def exported(self, program: Program) -> Path:
        """Return the folder with the HLO of the program for the current sources."""
        sources = [
            path for package in ("bert", "squad", "extensions/kernels") for path in (ROOT / package).rglob("*.py")
        ]
        for compared in (cost.__file__, demand.__file__):  # with what is compiled here, and no part of it
            sources.remove(Path(compared))
        sources += [Path(__file__).with_name("export.py")]
        contents = {str(path.relative_to(ROOT)): files.sha256(path) for path in sorted(sources)}
        description = repr((program, program.config()))
        key = _hash({"program": description, "sources": contents, "tensorflow": version("tensorflow")})
        path = self.folder / "exported" / f"{key}.pb"
        if not path.exists():
            done = _run([sys.executable, "-m", "benchmarks.gpu_check.export", json.dumps(asdict(program)), str(path)])
            if done.returncode:
                raise _failure("exported", done)
        return path

    def compiled(self, hlo: Path, device: str) -> Path:
        """A folder with optimised.hlo.gz and memory.json of the HLO for a device. Raises Refused with XLA's reason."""
        flags = f"{hlo.with_suffix('.flags').read_text()} {self.xla_flags}".strip()
        parts = {
            "hlo": files.sha256(hlo),
            "device": DEVICES[device].target_config(),
            "flags": flags,
            "compiler": tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]["gpu-check"],
            "source": files.sha256(Path(__file__).with_name("compile.py")),
        }
        folder = self.folder / "compiled" / _hash(parts)
        if not folder.exists():
            if not INTERPRETER.exists():
                raise UsageError(f"{INTERPRETER}: no such file; run make gpu-check, which installs the compiler")
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial."))
            command = [str(INTERPRETER), "-m", "benchmarks.gpu_check.compile", device, str(hlo), str(partial)]
            done = _run(command, XLA_FLAGS=flags)
            if done.returncode:
                shutil.rmtree(partial)
                raise _failure("compiled", done)
            partial.rename(folder)
        return folder


def _hash(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


def _failure(what: str, done: subprocess.CompletedProcess[str]) -> UserError:
    """Return the reason why the process that should do `what` with a program failed."""
    if done.returncode == -signal.SIGKILL:
        return ResourceError(f"the program could not be {what}: killed, most likely for memory; free some, then repeat")
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
    reasons = [line.removeprefix(REFUSED) for line in lines if line.startswith(REFUSED)]
    reasons += [f"the compiler crashed: {failed[0]}" for line in lines if (failed := CHECK.search(line))]
    return Refused(f"could not be {what}: {reasons[0] if reasons else lines[-1]}; mend the program")
