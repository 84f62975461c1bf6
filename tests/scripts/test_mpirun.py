"""scripts/mpirun.sh, with a stand-in for Open MPI's mpirun whose ranks seem elsewhere; the real one if it is there."""

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MPIRUN, LAUNCHER = ROOT / "scripts" / "mpirun.sh", ROOT / "scripts" / "launcher.sh"
StandIn = Callable[[str, str], Path]

# As Open MPI does: ranks see what -x names and nothing else of the environment, each piece that they write carries the
# number of the rank, the first failure ends the others at once, and the status is that of the first.
STAND_IN = """
    import os, signal, subprocess, sys, threading
    words = sys.argv[1:]
    ranks = int(words[words.index("-np") + 1])
    named = [words[i + 1] for i, word in enumerate(words) if word == "-x"]
    command = words[next(i for i, word in enumerate(words) if word.endswith("launcher.sh")):]
    def start(r):
        place = {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_LOCAL_RANK": str(r),
                 "OMPI_COMM_WORLD_SIZE": str(ranks), "OMPI_COMM_WORLD_LOCAL_SIZE": str(ranks)}
        given = {name: os.environ[name] for name in named} | place
        return subprocess.Popen(command, env=given, stdout=-1, stderr=-1, start_new_session=True)
    started = [start(r) for r in range(ranks)]
    failed = []
    def copy(rank, kind, source, target):
        while written := os.read(source.fileno(), 4096):
            pieces = written.splitlines(keepends=True)
            os.write(target.fileno(), b"".join(f"[1,{rank}]<{kind}>:".encode() + piece for piece in pieces))
    def wait(rank):
        if started[rank].wait():
            failed.append(started[rank].returncode)
            os.write(2, b"mpirun detected that one or more processes exited with non-zero status\\n")
            for other in started:
                if other.poll() is None:
                    os.killpg(other.pid, signal.SIGKILL)
    threads = [threading.Thread(target=wait, args=(r,)) for r in range(ranks)]
    threads += [threading.Thread(target=copy, args=(r, *kind)) for r in range(ranks) for kind in
                (("stdout", started[r].stdout, sys.stdout), ("stderr", started[r].stderr, sys.stderr))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    sys.exit(failed[0] if failed else 0)
"""
STOPPABLE = """
    import os, signal, sys, time
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    def stop(*_):
        time.sleep(rank * 1.5)
        print("stopped at step 7", file=sys.stderr)
        print(f"{rank} saved")
        sys.exit(75)
    signal.signal(signal.SIGTERM, stop)
    os.write(2, b"ready\\n")  # behind the report that the rank runs, which the launcher has then read
    time.sleep(60)
"""


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.thorough)])
def ranks(
    request: pytest.FixtureRequest, environment: dict[str, str], clean: dict[str, str], stand_in: StandIn
) -> dict[str, str]:
    """An environment with the stand-in, or with Open MPI's own mpirun, which may start more ranks than cores."""
    if request.param == "stand-in":
        stand_in("mpirun", STAND_IN)
        return environment
    if (
        not (real := shutil.which("mpirun"))
        or "Open MPI" not in subprocess.run([real, "--version"], stdout=-1, text=True).stdout
    ):
        pytest.skip("needs Open MPI's mpirun")
    spare = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return clean | spare | {"VENV": "/nonexistent"}


def launch(*words: str, env: dict[str, str], code: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the launcher; `code` is what each of two ranks runs, where there are no other arguments."""
    words = words or ("-np", "2", "--", sys.executable, "-c", textwrap.dedent(code))
    return subprocess.run([MPIRUN, *words], env=env, capture_output=True, text=True, timeout=180)


def test_dry_run_shows_the_documented_command(environment: dict[str, str]) -> None:
    settings = {"LD_LIBRARY_PATH": "/mpi/lib", "HOME": "/home/ada", "EDITOR": "vi"}
    words = ["-np", "16", "-H", "a:8,b:8", "--ssh-port", "2222", "--network-interfaces", "ib0", "--cycle-ms", "2"]
    shown = launch(*words, "--bind", "--dry-run", "--", "python", "a b", env=environment | settings)
    assert shown.stdout.splitlines() == [
        "HOROVOD_CYCLE_TIME=2",
        "NCCL_SOCKET_IFNAME=ib0",
        "TF_CPP_MIN_LOG_LEVEL=2",
        "mpirun --allow-run-as-root --tag-output -np 16 -H a:8,b:8 --bind-to none --map-by slot"
        " --mca pml ob1 --mca btl '^openib' --mca plm_rsh_args '-p 2222' --mca btl_tcp_if_include ib0"
        " -x HOROVOD_CYCLE_TIME -x LD_LIBRARY_PATH -x NCCL_SOCKET_IFNAME -x PATH -x TF_CPP_MIN_LOG_LEVEL -x VENV"
        f" -x BERT_LAUNCH {LAUNCHER} bind {LAUNCHER} rank python 'a b'",
    ]


def test_a_variable_that_may_be_secret_is_passed_only_if_it_is_named(environment: dict[str, str]) -> None:
    secrets = dict.fromkeys(("BERT_API_KEY", "TF_TOKEN", "HOROVOD_PASSWORD", "BERT_CONTACT", "EDITOR"), "s3cr3t")
    shown = launch("-np", "2", "--dry-run", "--", "true", env=environment | secrets).stdout
    assert not [name for name in secrets if f"-x {name} " in shown]
    shown = launch("-np", "2", "-x", "EDITOR,TF_TOKEN", "--dry-run", "--", "true", env=environment | secrets).stdout
    assert "-x EDITOR " in shown and "-x TF_TOKEN " in shown and "-x BERT_API_KEY " not in shown


def test_only_known_variables_reach_ranks_on_this_host(ranks: dict[str, str]) -> None:
    code = "import os; print('MY_TOKEN' in os.environ, os.environ.get('EDITOR'), os.environ.get('WANTED'))"
    env = ranks | {"MY_TOKEN": "s3cr3t", "EDITOR": "vi", "WANTED": "yes"}
    shown = launch("-np", "2", "-x", "WANTED", "--", sys.executable, "-c", code, env=env)
    assert shown.stdout == "False None yes\n" * 2, shown.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])  # a line may then be written in pieces
def test_ranks_that_stop_may_save_and_the_status_says_so(ranks: dict[str, str], unbuffered: str) -> None:
    words = ["-np", "2", "--", sys.executable, "-c", textwrap.dedent(STOPPABLE)]
    env = ranks | {"PYTHONUNBUFFERED": unbuffered}
    launcher = subprocess.Popen([MPIRUN, *words], env=env, stdout=-1, stderr=-1, text=True)
    assert launcher.stderr
    assert [launcher.stderr.readline() for _ in range(2)] == ["ready\n"] * 2
    launcher.send_signal(signal.SIGTERM)
    said, errors = launcher.communicate(timeout=180)
    assert (launcher.returncode, errors) == (75, "stopped at step 7\n")
    assert sorted(said.splitlines()) == ["0 saved", "1 saved"]


def test_lines_that_ranks_write_in_pieces_stay_whole(ranks: dict[str, str], tmp_path: Path) -> None:
    code = f"""
        import os, pathlib, sys, time
        here = pathlib.Path({str(tmp_path)!r})
        rank = os.environ["OMPI_COMM_WORLD_RANK"]
        for word in ("rank", " ", rank, "\\n", "  end"):
            os.write(1, word.encode())
            time.sleep(0.05 + 0.02 * int(rank))
        for word in ("error: ", "too long", "\\n"):
            os.write(2, word.encode())
            time.sleep(0.05)
        (here / f"said-{{rank}}").touch()
        while len(list(here.glob("said-?"))) < 2:  # the first that fails ends the other
            time.sleep(0.05)
        sys.exit(3)
    """
    shown = launch(env=ranks, code=code)
    assert (shown.returncode, shown.stderr) == (3, "error: too long\n")
    assert sorted(shown.stdout.splitlines()) == ["  end", "  end", "rank 0", "rank 1"]


def test_without_mpirun_it_says_so(environment: dict[str, str]) -> None:
    shown = launch("-np", "2", "--", "true", env=environment)
    assert shown.returncode == 2 and "no mpirun here" in shown.stderr and shown.stderr.count("\n") == 1
