"""scripts/setup.sh and scripts/install_horovod.sh, with a stand-in interpreter that notes what it is asked to do.

The real thing downloads for minutes: it runs whenever a checkout is new, as in continuous integration.
"""

import os
import shutil
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Answers the questions that the scripts ask; `-m venv` makes an environment with itself as the interpreter.
PYTHON = """
    #!/bin/bash
    echo "$*" | tr '\\n' ' ' >>"$CALLS"; echo >>"$CALLS"
    case "$*" in
    *sys.version_info*) echo "${VERSION:-3.11.7}"; [ -z "${VERSION:-}" ] ;;
    *find_spec*) echo "${OWN_HOROVOD:-0}" ;;
    *libc_ver*) echo 2.21.0-cp311 ;;
    *sys.prefix*) echo "$PREFIX" ;;
    *version*) echo 2.17.0+nv25.2 ;;
    "-m venv"*)
        mkdir -p "${!#}/bin"; touch "${!#}/pyvenv.cfg"
        cp "$0" "${!#}/bin/python"; cp "${0%/*}/horovodrun" "${!#}/bin/" ;;
    *"pip download"*)
        [ -z "${TAMPERED:-}" ] || { echo "THESE PACKAGES DO NOT MATCH THE HASHES"; exit 1; }
        while [ "$1" != --dest ]; do shift; done
        source=$2/horovod-0.28.1
        mkdir -p "$source/horovod/tensorflow"
        printf 'mpi_ops.cc\\nxla_mpi_ops.cc\\n' >"$source/horovod/tensorflow/CMakeLists.txt"
        echo 'add_subdirectory(third_party/gloo)' >"$source/CMakeLists.txt"
        tar -C "$2" -czf "$source.tar.gz" horovod-0.28.1 ;;
    *"pip wheel"*)
        [ -z "${BROKEN:-}" ] || { echo "a.cc:3: error: no such header"; exit 1; }
        sleep "${BUILD_TIME:-0}"
        cat "${!#}/horovod/tensorflow/CMakeLists.txt" "${!#}/CMakeLists.txt" >>"$CALLS"
        while [ "$1" != --wheel-dir ]; do shift; done
        mkdir -p "$2"; touch "$2/horovod-0.28.1-cp311.whl" ;;
    *"pip install"*) sleep "${INSTALL_TIME:-0}"; exit "${INSTALL_STATUS:-0}" ;;
    esac
"""
CHECK_BUILD = """
    #!/bin/sh
    printf '    [X] TensorFlow\\n    [%s] Gloo\\n' "${GLOO:-X}"
"""


class Machine:
    """A copy of the scripts beside a stand-in interpreter, an empty home, and the calls made so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.calls_file = folder, folder / "bin", folder / "calls"
        self.checkout, self.venv = folder / "checkout", folder / "checkout" / ".venv"
        (self.checkout / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("requirements.txt", "requirements-dev.txt", "scripts/setup.sh", "scripts/install_horovod.sh"):
            shutil.copy(ROOT / name, self.checkout / name)
        for name, text in (("python3", PYTHON), ("horovodrun", CHECK_BUILD), ("g++", ""), ("make", ""), ("cmake", "")):
            (self.bin / name).write_text(textwrap.dedent(text).lstrip())
            (self.bin / name).chmod(0o755)

    def start(self, script: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder / "home"), "CALLS": str(self.calls_file)}
        env |= {"PREFIX": str(self.venv)} | environment
        command = [str(self.checkout / "scripts" / script), *map(str, arguments)]
        return subprocess.Popen(command, env=env, stdout=-1, stderr=-1, text=True, start_new_session=True)

    def run(self, script: str, *arguments: object, **environment: str) -> tuple[int, str]:
        process = self.start(script, *arguments, **environment)
        errors = process.communicate(timeout=60)[1]
        return process.returncode, errors

    def calls(self) -> str:
        """What the interpreter was asked since the last look."""
        text = self.calls_file.read_text() if self.calls_file.exists() else ""
        self.calls_file.unlink(missing_ok=True)
        return text


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which nothing is set up yet."""
    return Machine(tmp_path)


def test_set_up_that_is_done_is_seen_at_once(machine: Machine) -> None:
    assert machine.run("setup.sh") == (0, "")
    assert "pip wheel" in machine.calls()
    began = time.monotonic()
    assert machine.run("setup.sh") == (0, "")
    assert time.monotonic() - began < 2
    assert "pip" not in machine.calls()


@pytest.mark.parametrize("tool", ["g++", "make", "cmake"])
def test_a_missing_tool_is_named_with_the_command_that_installs_it(tool: str, machine: Machine) -> None:
    commands = machine.folder / "commands"  # the machine's own, less the tool
    commands.mkdir()
    for name in ("bash", "cat", "cut", "dirname", "flock", "realpath", "rm", "sha256sum", "tr", "g++", "make", "cmake"):
        if name != tool:
            (commands / name).symlink_to(shutil.which(name) or "/bin/true")
    (machine.bin / tool).unlink()
    code, error = machine.run("setup.sh", PATH=f"{machine.bin}:{commands}")
    assert code == 2 and error.startswith(f"error: {tool}: ") and error.endswith(f"apt-get install {tool}\n")
    assert not machine.venv.exists()


def test_an_old_or_absent_python_is_refused(machine: Machine) -> None:
    code, error = machine.run("setup.sh", VERSION="3.10.12")
    assert code == 2 and "3.10.12" in error and "3.11" in error
    code, error = machine.run("setup.sh", PYTHON="python9.9")
    assert code == 2 and "python9.9" in error and "apt-get install" in error


def test_a_folder_that_is_no_environment_is_left_alone(machine: Machine) -> None:
    (machine.folder / "precious").mkdir()
    (machine.folder / "precious" / "file").touch()
    code, error = machine.run("setup.sh", VENV=str(machine.folder / "precious"))
    assert code == 2 and "precious" in error and (machine.folder / "precious" / "file").exists()


def test_an_interrupted_set_up_is_started_over(machine: Machine) -> None:
    process = machine.start("setup.sh", INSTALL_TIME="30")
    while "pip install" not in (machine.calls_file.read_text() if machine.calls_file.exists() else ""):
        time.sleep(0.02)
    os.killpg(process.pid, 9)
    process.communicate()
    (machine.venv / "half").touch()
    machine.calls()
    assert machine.run("setup.sh") == (0, "")
    assert "-m venv" in machine.calls() and not (machine.venv / "half").exists()


def test_a_failed_installation_is_not_taken_for_a_finished_one(machine: Machine) -> None:
    assert machine.run("setup.sh", INSTALL_STATUS="1")[0] == 1
    code, error = machine.run("setup.sh", GLOO=" ")
    assert code == 1 and error.startswith("error: ") and "Gloo" in error
    machine.calls()
    assert machine.run("setup.sh")[0] == 0 and "pip install" in machine.calls()


def test_a_changed_requirement_is_installed_into_the_environment_that_is_there(machine: Machine) -> None:
    machine.run("setup.sh")
    machine.calls()
    with open(machine.checkout / "requirements.txt", "a") as stream:
        stream.write("six==1.17.0\n")
    assert machine.run("setup.sh") == (0, "")
    calls = machine.calls()
    assert "pip install" in calls and "-m venv" not in calls and "pip wheel" not in calls


def test_an_interpreter_with_its_own_horovod_keeps_it(machine: Machine) -> None:
    assert machine.run("setup.sh", OWN_HOROVOD="1", GLOO=" ") == (0, "")
    calls = machine.calls()
    assert "-m venv --system-site-packages" in calls and "tensorflow-text==2.17.*" in calls
    assert "pip wheel" not in calls and "--requirement requirements.txt" not in calls


def test_of_two_set_ups_at_once_one_works_and_both_end_well(machine: Machine) -> None:
    both = [machine.start("setup.sh", INSTALL_TIME="0.3") for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert machine.calls().count("-m venv") == 1


def test_horovod_is_built_once_for_many_environments_even_at_the_same_time(machine: Machine) -> None:
    python = machine.bin / "python3"
    both = [machine.start("install_horovod.sh", python, BUILD_TIME="0.5") for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    calls = machine.calls()
    assert calls.count("pip wheel") == 1 and calls.count("pip install") == 2
    assert "xla_mpi_ops" not in calls and "gloo EXCLUDE_FROM_ALL" in calls


def test_a_failed_build_keeps_its_log_and_names_it(machine: Machine) -> None:
    code, error = machine.run("install_horovod.sh", machine.bin / "python3", BROKEN="1")
    log = next((machine.folder / "home").rglob("build-*.log"))
    assert code == 1 and error.count("\n") == 1 and str(log) in error and "no such header" in error
    assert machine.run("install_horovod.sh", machine.bin / "python3") == (0, "") and not log.exists()


def test_a_source_that_is_not_the_published_one_is_refused(machine: Machine) -> None:
    code, error = machine.run("install_horovod.sh", machine.bin / "python3", TAMPERED="1")
    assert code == 4 and "not the published one" in error
    assert "pip wheel" not in machine.calls()


def test_a_home_that_cannot_be_written_costs_the_cache_only(machine: Machine) -> None:
    machine.venv.mkdir()
    assert machine.run("install_horovod.sh", machine.bin / "python3", HOME="/proc/none") == (0, "")
    assert list(machine.venv.rglob("horovod-*.whl"))
