"""scripts/setup.sh and what it starts, with a stand-in interpreter that notes what it is asked to do.

The real thing downloads and compiles for minutes: it runs whenever a checkout is new, as in continuous integration, for
CPUs. What it made for GPUs is looked at where the tests run in such an environment.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.programs import without_schedulers
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]

# Answers the questions that the scripts ask; `-m venv` makes an environment with itself as the interpreter.
PYTHON = """
    #!/bin/bash
    printf '%s \\n' "${*//$'\\n'/ }" >>"$CALLS" # in one write: set-up asks for versions while pip reads them
    case "$*" in
    *sys.version_info*) echo "${VERSION:-3.11.7}"; [ -z "${VERSION:-}" ] ;;
    *find_spec*) echo "${OWN_HOROVOD:-0}" ;;
    *libc_ver*) echo 2.21.0-cp311 ;;
    *nvidia-nccl-cu12*) [ -n "${NCCL-2.32.3}" ] && echo "${NCCL-2.32.3} $PREFIX/nvidia/nccl" ;;
    *sys.prefix*) echo "$PREFIX" ;;
    *"import version"*) echo 2.17.0+nv25.2 ;;
    "-m venv"*)
        mkdir -p "${!#}/bin"; touch "${!#}/pyvenv.cfg"
        cp "$0" "${!#}/bin/python"; cp "${0%/*}/horovodrun" "${!#}/bin/" ;;
    *"pip download"*)
        [ -z "${TAMPERED:-}" ] || { echo "THESE PACKAGES DO NOT MATCH THE HASHES"; exit 1; }
        while [ "$1" != --dest ]; do shift; done
        source=$2/horovod-0.28.1
        mkdir -p "$source"/horovod/{tensorflow,common/ops/cuda} "$source"/third_party/gloo/gloo
        echo '  "${CMAKE_CURRENT_SOURCE_DIR}/context.cc"' >"$source/third_party/gloo/gloo/CMakeLists.txt"
        echo 'size_t kMaxSegmentSize = 1024 * 1024;' >"$source/third_party/gloo/gloo/allreduce.h"
        printf 'mpi_ops.cc\\nxla_mpi_ops.cc\\n' >"$source/horovod/tensorflow/CMakeLists.txt"
        printf '%s\\n' '#endif // HAVE_GPU' '#include "../common/common.h"' '#endif // HAVE_GPU' \\
            >"$source/horovod/tensorflow/mpi_ops.cc"
        printf '%s\\n' 'project(horovod CXX)' '        list(APPEND LINKER_LIBS ${NCCL_LIBRARIES})' \\
            'set_build_arch_flags("${ARCH_FLAGS}")' 'add_subdirectory(third_party/gloo)' >"$source/CMakeLists.txt"
        printf '%s\\n' 'set(CMAKE_CUDA_STANDARD 11)' 'add_library(compatible_horovod_cuda_kernels cuda_kernels.cu)' \\
            >"$source/horovod/common/ops/cuda/CMakeLists.txt"
        tar -C "$2" -czf "$source.tar.gz" horovod-0.28.1 ;;
    *"pip wheel"*)
        [ -z "${BROKEN:-}" ] || { echo "a.cc:3: error: no such header"; exit 1; }
        sleep "${BUILD_TIME:-0}"
        find "${!#}" -type f -exec cat {} + >>"$CALLS"
        env | grep -E '^(HOROVOD|LDFLAGS|CUDA)' >>"$CALLS"
        [ ! -d "${HOROVOD_NCCL_LIB:-}" ] || readlink "$HOROVOD_NCCL_LIB/libnccl.so" >>"$CALLS"
        while [ "$1" != --wheel-dir ]; do shift; done
        mkdir -p "$2"; echo built >"$2/horovod-0.28.1-cp311.whl" ;;
    *"pip install"*" --target "*) while [ "$1" != --target ]; do shift; done; mkdir -p "$2/nvidia/cu13/lib" ;;
    *tensorflow-text==*) exit "${TEXT_STATUS:-0}" ;;
    "scripts/uv.py pip install"*)
        for word; do [[ $word != --requirement=* ]] || [ -s "${word#*=}" ] || exit 1; done
        [ -s scripts/uv.py ] && exit "${UV_STATUS:-0}" ;;
    *"pip install"*)
        for word; do [[ $word != /dev/fd/* ]] || cat "$word" >>"$CALLS"; done
        sleep "${INSTALL_TIME:-0}"; exit "${INSTALL_STATUS:-0}" ;;
    esac
"""
CHECK_BUILD = """
    #!/bin/sh
    printf '    [X] TensorFlow\\n    [%s] Gloo\\n    [%s] NCCL\\n' "${GLOO:-X}" "${BUILT_NCCL:-X}"
"""
NVCC = """
    #!/bin/sh
    case $1 in
    --version) echo "Cuda compilation tools, release ${0##*-}, V@" ;;
    --dryrun) echo '#$ TOP='"${0%/*}/.." >&2 ;;
    --list-gpu-arch) printf 'compute_%s\\n' 75 80 86 90 100 ;;
    esac
"""
SCRIPTS = ("setup.sh", "install_horovod.sh", "build_horovod.sh", "cuda_toolkit.sh", "uv.py")


class Machine:
    """A copy of the scripts beside a stand-in interpreter, an empty home, and the calls made so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.calls_file = folder, folder / "bin", folder / "calls"
        self.checkout, self.venv = folder / "checkout", folder / "checkout" / ".venv"
        (self.checkout / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        shutil.copytree(ROOT / "requirements", self.checkout / "requirements")
        for name in SCRIPTS:
            shutil.copy(ROOT / "scripts" / name, self.checkout / "scripts" / name)
        for name, text in (("python3", PYTHON), ("horovodrun", CHECK_BUILD), ("g++", ""), ("make", ""), ("cmake", "")):
            self.command(self.bin / name, text)

    def command(self, path: Path, text: str) -> Path:
        """Puts an executable there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
        path.chmod(0o755)
        return path

    def gpu(self, driver: str = "580.65.06") -> None:
        """Gives the machine a GPU, or what says that there is one."""
        self.command(self.bin / "nvidia-smi", f"#!/bin/sh\ncase $1 in --query*) echo {driver} ;; esac\n")

    def cuda(self, version: str) -> str:
        """Installs a toolkit of that version; returns its folder."""
        self.command(self.folder / f"cuda-{version}" / "bin" / "nvcc", NVCC.replace("@", version))
        return str(self.folder / f"cuda-{version}")

    def start(self, script: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        path = f"{self.bin}:{without_schedulers('/usr/bin:/bin')}"
        env = {"PATH": path, "HOME": str(self.folder / "home"), "CALLS": str(self.calls_file)}
        env |= {"PREFIX": str(self.venv), "DEVICE": "cpu", "CUDA_PLACES": ""} | environment
        command = [str(self.checkout / "scripts" / script), *map(str, arguments)]
        return subprocess.Popen(command, env=env, stdout=-1, stderr=-1, text=True, start_new_session=True)

    def run(self, script: str, *arguments: object, **environment: str) -> tuple[int, str]:
        process = self.start(script, *arguments, **environment)
        errors = process.communicate(timeout=60)[1]
        return process.returncode, errors

    def horovod(self, **environment: str) -> tuple[int, str]:
        """Installs Horovod for GPUs, without set-up around it."""
        return self.run("install_horovod.sh", self.bin / "python3", "gpu", **environment)

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
    assert time.monotonic() - began < 30
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
    calls = machine.calls_file
    wait_for(lambda: calls.exists() and "pip install" in calls.read_text(), "call of pip install", process)
    os.killpg(process.pid, 9)
    process.communicate()
    (machine.venv / "half").touch()
    machine.calls()
    assert machine.run("setup.sh") == (0, "")
    assert "-m venv" in machine.calls() and not (machine.venv / "half").exists()


def test_a_failed_installation_is_not_taken_for_a_finished_one(machine: Machine) -> None:
    for program, setting in (("pip", "INSTALL_STATUS"), ("uv", "UV_STATUS")):
        code, error = machine.run("setup.sh", **{setting: "1"})
        assert code == 1 and error.startswith(f"error: {program} could not install into .venv, ")
        assert error.count("\n") == 1 and not (machine.venv / ".stamp").exists()
    code, error = machine.run("setup.sh", GLOO=" ")
    assert code == 1 and error.startswith("error: ") and "Gloo" in error
    machine.calls()
    assert machine.run("setup.sh")[0] == 0 and "pip install" in machine.calls()


def test_uv_is_the_one_that_is_locked_and_all_hashes_are_checked(machine: Machine) -> None:
    assert machine.run("setup.sh") == (0, "")
    calls = machine.calls()
    entry = re.search(r"^uv==.*\n(?:    --hash=.*\n)+", (ROOT / "requirements/cpu.lock").read_text(), re.MULTILINE)
    # What pip reads from the file is noted behind the command: one package with its hashes.
    assert entry and re.search(r"--require-hashes --requirement /dev/fd/\d+ \n" + re.escape(entry[0]), calls)
    assert re.search(
        r"^scripts/uv.py pip install .*--require-hashes --requirement=requirements/cpu.lock $", calls, re.M
    )


def test_a_changed_requirement_is_installed_into_the_environment_that_is_there(machine: Machine) -> None:
    machine.run("setup.sh")
    machine.calls()
    with open(machine.checkout / "requirements/cpu.lock", "a") as stream:
        stream.write("six==1.17.0 --hash=sha256:0\n")
    assert machine.run("setup.sh") == (0, "")
    calls = machine.calls()
    assert "pip install" in calls and "-m venv" not in calls and "pip wheel" not in calls


def test_an_interpreter_with_its_own_horovod_keeps_it(machine: Machine) -> None:
    assert machine.run("setup.sh", OWN_HOROVOD="1", GLOO=" ") == (0, "")
    calls = machine.calls()
    assert "-m venv --system-site-packages" in calls and "tensorflow-text==2.17.*" in calls
    # By pip, which keeps what the interpreter has; a package that needs another TensorFlow is refused.
    assert "pip wheel" not in calls and "uv.py" not in calls and "--requirement requirements/own.txt" in calls
    assert all(f"\n{name}==2.17.0+nv25.2\n" in calls for name in ("tensorflow", "numpy", "protobuf", "ml-dtypes"))
    machine.gpu()  # as when an image starts on a node: what is in it does not change
    assert machine.run("setup.sh", OWN_HOROVOD="1", DEVICE="") == (0, "") and "pip" not in machine.calls()


def test_where_there_is_no_tensorflow_text_the_rest_is_installed(machine: Machine) -> None:
    assert machine.run("setup.sh", OWN_HOROVOD="1", TEXT_STATUS="1") == (0, "")
    assert "requirements/own.txt" in machine.calls() and (machine.venv / ".stamp").exists()


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
    assert "kMaxSegmentSize = 4 * 1024 * 1024;" in calls
    assert "add_definitions(-DGLOO_USE_AVX=1)" in calls and '"${CMAKE_CURRENT_SOURCE_DIR}/math.cc"' in calls


@pytest.mark.slow
@pytest.mark.parametrize("change", ["flipped", "emptied", "no hash", "other hash", "no wheel"])
def test_a_kept_wheel_that_has_changed_is_built_again(change: str, machine: Machine) -> None:
    assert machine.run("install_horovod.sh", machine.bin / "python3") == (0, "")
    wheel = next((machine.folder / "home").rglob("horovod-*.whl"))
    note = wheel.with_name("wheel.sha256")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert note.read_text() == f"{digest}  {wheel.name}\n"
    machine.calls()
    if change in ("flipped", "emptied"):
        wheel.write_bytes(b"Built\n" if change == "flipped" else b"")
    elif change == "other hash":
        note.write_text(note.read_text().replace(digest[:2], "zz"))
    else:
        (note if change == "no hash" else wheel).unlink()
    code, error = machine.run("install_horovod.sh", machine.bin / "python3")
    assert code == 0 and (error.startswith("warning: ") or change == "no wheel") and error.count("\n") <= 1
    calls = machine.calls()
    assert calls.count("pip wheel") == 1 and "--require-hashes" in calls and wheel.read_text() == "built\n"
    assert machine.run("install_horovod.sh", machine.bin / "python3") == (0, "") and "pip wheel" not in machine.calls()


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


def test_the_device_is_the_one_that_is_named_or_else_the_one_that_is_there(machine: Machine) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a GPU, so that none can be missing")
    assert machine.run("setup.sh", DEVICE="") == (0, "")
    assert "requirements/gpu.lock" not in machine.calls()
    machine.gpu()
    assert machine.run("setup.sh", DEVICE="cpu") == (0, "") and not machine.calls().count("pip install")
    assert machine.run("setup.sh", DEVICE="") == (0, "")
    calls = machine.calls()
    assert "-m venv" in calls and "OPERATIONS=NCCL" in calls
    assert "--require-hashes --requirement=requirements/cpu.lock --requirement=requirements/gpu.lock" in calls


def test_an_environment_for_gpus_is_kept_on_a_machine_without_one(machine: Machine) -> None:
    assert machine.run("setup.sh", DEVICE="gpu") == (0, "")
    machine.calls()
    assert machine.run("setup.sh", DEVICE="") == (0, "") and "pip" not in machine.calls()
    assert machine.run("setup.sh", DEVICE="cpu") == (0, "")
    calls = machine.calls()
    assert "-m venv" in calls and "requirements/gpu.lock" not in calls  # nothing of the other is left in it


def test_a_device_that_is_none_is_refused(machine: Machine) -> None:
    code, error = machine.run("setup.sh", DEVICE="tpu")
    assert code == 2 and error == "error: DEVICE=tpu ; it is gpu or cpu\n" and not machine.venv.exists()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_only_what_went_into_an_environment_makes_it_anew(device: str, machine: Machine) -> None:
    assert machine.run("setup.sh", DEVICE=device) == (0, "")
    (machine.checkout / "pyproject.toml").write_text("[dependency-groups]\nparity = ['torch']\n")
    (machine.checkout / "requirements" / "later.lock").write_text("more\n")
    if device == "cpu":
        (machine.checkout / "requirements" / "gpu.lock").unlink()  # as in an image for CPUs
    machine.calls()
    assert machine.run("setup.sh", DEVICE=device) == (0, "") and "pip" not in machine.calls()


def test_an_environment_that_is_as_it_should_be_needs_no_right_to_write(machine: Machine) -> None:
    assert machine.run("setup.sh", DEVICE="gpu") == (0, "")
    before = {path: path.stat().st_mtime_ns for path in machine.checkout.rglob("*")}
    machine.command(machine.bin / "flock", "#!/bin/sh\nexit 1\n")  # the lock of a folder that cannot be written
    assert machine.run("setup.sh", DEVICE="gpu", HOME="/nonexistent") == (0, "")
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_horovod_without_nccl_is_no_environment_for_gpus(machine: Machine) -> None:
    code, error = machine.run("setup.sh", DEVICE="gpu", BUILT_NCCL=" ")
    assert code == 1 and error.startswith("error: horovodrun --check-build shows no NCCL ; remove ")
    assert not (machine.venv / ".stamp").exists()


def test_the_source_is_edited_for_gpus_and_nccl_linked_outside_the_environment(machine: Machine) -> None:
    assert machine.horovod(CUDA_PLACES=machine.cuda("13.0.88")) == (0, "")
    calls = machine.calls()
    stream = "static_cast<GpuStreamHandle>(stream->platform_specific_handle().stream)"
    assert calls.count(stream) == 1 and calls.index(stream) < calls.index("#endif // HAVE_GPU")
    assert '#include "../common/common.h"\n#include "../common/logging.h"' in calls
    assert "LINKER_LIBS ${NCCL_LIBRARIES})\nlist(APPEND LINKER_LIBS -Wl,--whole-archive cudart_static" in calls
    assert "project(horovod CXX)\nset(CMAKE_SKIP_RPATH TRUE)" in calls and "-rpath,$ORIGIN/../../nvidia/nccl/" in calls
    assert "CUDA_STANDARD 17" in calls and "compatible_horovod_cuda_kernels EXCLUDE_FROM_ALL" in calls
    assert f"HOROVOD_CUDA_HOME={machine.folder}/cuda-13.0.88\n" in calls and "HOROVOD_WITHOUT_MPI=1" in calls
    assert "HOROVOD_BUILD_CUDA_CC_LIST=75,80,90,100\n" in calls
    # For the doctor, in the package itself.
    assert "BUILT_WITH = {'cuda': '13.0.88', 'capabilities': [75,80,90,100], 'nccl': '2.32.3'}\n" in calls
    assert f"{machine.venv}/nvidia/nccl/lib/libnccl.so.2" in calls and not machine.venv.exists()


@pytest.mark.slow
def test_a_wheel_is_kept_for_each_combination_of_what_goes_into_it(machine: Machine) -> None:
    old, new = machine.cuda("12.9.86"), machine.cuda("13.0.88")
    assert machine.run("install_horovod.sh", machine.bin / "python3")[0] == 0
    for choice in (
        {},
        {"CUDA_PLACES": new},
        {"CUDA_PLACES": old},
        {"CUDA_PLACES": old, "NCCL": "2.33.1"},
        {"CUDA_PLACES": old, "HOROVOD_BUILD_CUDA_CC_LIST": "90"},
    ):
        assert machine.horovod(**choice) == (0, "")
    machine.command(machine.bin / "mpicxx", "#!/bin/sh\n")
    machine.command(machine.bin / "mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
    assert machine.horovod(CUDA_PLACES=old) == (0, "")
    calls = machine.calls()
    assert calls.count("pip wheel") == 7 and calls.count("HOROVOD_WITH_MPI=1") == 1
    assert machine.horovod(CUDA_PLACES=old) == machine.horovod(HOROVOD_WITHOUT_MPI="1", CUDA_PLACES=old) == (0, "")
    assert "pip wheel" not in machine.calls()
    names = [path.parent.name for path in machine.folder.rglob("horovod-*.whl")]
    assert any(name.endswith("nccl2.32.3-cuda12.9.86-sm75.80.90.100-mpirun-Open-MPI-4.1.4") for name in names), names


def test_nvcc_is_the_one_asked_for_or_of_cuda_12_or_13_or_pips(machine: Machine) -> None:
    places = f"{machine.cuda('13.0.88')} {machine.cuda('12.4.131')} {machine.cuda('11.8.89')}"
    assert machine.horovod(CUDA_PLACES=places) == (0, "") and "HOME=" + machine.cuda("12.4.131") in machine.calls()
    code, _ = machine.horovod(CUDA_PLACES=places, CUDA_HOME=machine.cuda("12.9.86"))
    assert code == 0 and "HOME=" + machine.cuda("12.9.86") in machine.calls()
    code, _ = machine.horovod(CUDA_PLACES=places, CUDA_HOME=machine.cuda("13.1.80"))
    assert code == 0 and "HOME=" + machine.cuda("13.1.80") in machine.calls()
    assert machine.horovod(CUDA_PLACES=machine.cuda("11.8.89")) == (0, "")
    calls = machine.calls()
    assert "--require-hashes --target" in calls
    assert "requirements/nvcc.lock" in calls and "/nvcc/nvidia/cu13\n" in calls and "LIST=75,80,90,100,120\n" in calls


def test_nvcc_of_cuda_13_needs_a_driver_that_knows_it(machine: Machine) -> None:
    machine.gpu(driver="570.133.20")
    new = machine.cuda("13.0.88")
    code, error = machine.horovod(CUDA_PLACES=new)
    assert code == 2 and error.count("\n") == 1 and f"{new}/bin/nvcc is of CUDA 13.0.88 and needs driver 580" in error
    assert "not 570 ; install a CUDA 12 toolkit, and set CUDA_HOME" in error and "pip" not in machine.calls()
    machine.gpu(driver="NVIDIA-SMI has failed")  # a broken driver says nothing about the one that will be there
    assert machine.horovod(CUDA_PLACES=new) == (0, "")


def test_an_environment_without_nccl_is_told_how_to_get_it(machine: Machine) -> None:
    code, error = machine.horovod(NCCL="")
    assert code == 2 and error.endswith("python3 has no NCCL ; install with: make setup DEVICE=gpu\n")


def test_nvcc_that_cannot_be_fetched_leaves_its_log_and_no_wheel(machine: Machine) -> None:
    machine.command(machine.bin / "python3", PYTHON.replace('mkdir -p "$2/nvidia/cu13/lib"', "exit 1"))
    code, error = machine.horovod()
    assert (
        code == 1 and error.startswith("error: horovod 0.28.1: nvcc could not be downloaded: ") and "CUDA_HOME" in error
    )
    assert not list(machine.folder.rglob("horovod-*.whl"))


def test_a_horovod_for_gpus_needs_no_driver_and_nothing_but_the_environment() -> None:
    """Where the tests run in an environment for GPUs: what was built there for real."""
    site = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    library = next(iter((site / "horovod" / "tensorflow").glob("mpi_lib*.so")), None)
    if not library or not (site / "nvidia" / "nccl").exists():
        pytest.skip("this environment is not for GPUs: make setup DEVICE=gpu")
    plain = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}

    def run(*command: str | Path, **environment: str) -> str:
        return subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=True).stdout

    found = run("ldd", library).split("libnccl.so.2 => ")[1].split()[0]
    assert Path(found).resolve() == (site / "nvidia" / "nccl" / "lib" / "libnccl.so.2").resolve()
    unresolved = run("ldd", "-r", library, LD_LIBRARY_PATH=str(site / "tensorflow"))
    assert "undefined symbol" not in unresolved and "not found" not in unresolved
    # CUDA's runtime is inside: TensorFlow exports functions of the same names that open its own version of it.
    symbols = run("nm", "--dynamic", "--undefined-only", library).split()
    assert not [name for name in symbols if name.startswith(("cuda", "__cuda", "cu"))] and "ncclAllReduce" in symbols
