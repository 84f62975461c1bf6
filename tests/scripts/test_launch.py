"""scripts/launch.sh, with a stand-in horovodrun that behaves as the real one, and with the real one.

horovodrun starts the ranks where -H names hosts, also where that is this one. Without -H they start without it.
"""

import ast
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for

Stop = Callable[..., tuple[int, str]]
ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "scripts" / "launch.sh"
LAUNCHER = ROOT / "scripts" / "launcher.sh"
BY_HOROVODRUN, BY_ITSELF = ("-H", "localhost:2"), ()

# As observed of horovodrun 0.28.1: it prefixes each line of a rank, ends with 1 whatever a rank's status was, says so
# in lines of its own and a traceback, and kills the other ranks as soon as one fails.
STAND_IN = """
    import os, signal, subprocess, sys, threading
    ranks = int(sys.argv[2])
    command = sys.argv[next(i for i, word in enumerate(sys.argv) if word.endswith("launcher.sh")):]
    def start(r):
        place = {"HOROVOD_RANK": str(r), "HOROVOD_LOCAL_SIZE": sys.argv[2]}
        return subprocess.Popen(command, env=os.environ | place, stdout=-1, stderr=-1, text=True)
    started = [start(r) for r in range(ranks)]
    def copy(rank, kind, source, target):
        for line in source:
            target.write(f"[{rank}]<{kind}>:{line}")
            target.flush()
    def wait(rank):
        if started[rank].wait():
            sys.stdout.write(f"Process {rank} exit with status code {started[rank].returncode}.\\n")  # in one piece
            sys.stdout.flush()
            failed.append(rank)
            for other in started:
                other.terminate()
    failed = []
    signal.signal(signal.SIGTERM, lambda *_: [other.kill() for other in started])
    threads = [threading.Thread(target=copy, args=(r, *kind)) for r in range(ranks) for kind in
               (("stdout", started[r].stdout, sys.stdout), ("stderr", started[r].stderr, sys.stderr))]
    threads += [threading.Thread(target=wait, args=(r,)) for r in range(ranks)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    if failed:
        raise RuntimeError("Horovod detected that one or more processes exited with non-zero status")
"""


@pytest.fixture
def environment(environment: dict[str, str], stand_in: Callable[[str, str], Path]) -> dict[str, str]:
    """An environment whose horovodrun is the stand-in."""
    stand_in("horovodrun", STAND_IN)
    return environment


def ranks(code: str, where: Sequence[str] = BY_HOROVODRUN) -> list[str]:
    """Returns the flags of the launcher for two ranks of a program."""
    return ["-np", "2", *where, "--", sys.executable, "-c", "import os, sys, time\n" + textwrap.dedent(code)]


def launch(*arguments: str, env: dict[str, str], code: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the launcher; `code` is what each rank runs, by horovodrun, where there are no other arguments."""
    words = arguments or ranks(code)
    return subprocess.run([LAUNCH, *words], env=env, capture_output=True, text=True, timeout=180)


def test_dry_run_shows_the_command_and_the_settings(environment: dict[str, str]) -> None:
    words = ["-np", "3", "--dry-run", "--fusion-mb", "33", "--autotune", "--", "python", "-m", "bert.pretrain", "a b"]
    shown = launch(*words, env=environment | {"OMP_NUM_THREADS": "5", "HOROVOD_CYCLE_TIME": "7"})
    assert shown.stdout.splitlines() == [
        "HOROVOD_AUTOTUNE=1",
        "HOROVOD_CYCLE_TIME=7",
        "HOROVOD_FUSION_THRESHOLD=34603008",
        "OMP_NUM_THREADS=5",
        "TF_CPP_MIN_LOG_LEVEL=2",
        f"{LAUNCHER} here 3 {LAUNCHER} rank python -m bert.pretrain 'a b'",
    ]


def test_dry_run_on_several_hosts(environment: dict[str, str]) -> None:
    words = ["-np", "16", "-H", "a:8,b:8", "--ssh-port", "2222", "--network-interfaces", "ib0", "--nccl-ifname", "eth1"]
    shown = launch(*words, "--bind", "--dry-run", "--", "python", "x.py", env=environment)
    assert shown.stdout.splitlines()[-1] == (
        "horovodrun -np 16 --disable-cache -H a:8,b:8 --ssh-port 2222 --network-interfaces ib0 --gloo"
        f" env NCCL_SOCKET_IFNAME=eth1 {LAUNCHER} bind {LAUNCHER} rank python x.py"
    )


def test_many_ranks_have_longer_to_find_each_other(environment: dict[str, str]) -> None:
    variable = "HOROVOD_GLOO_TIMEOUT_SECONDS"

    def wait(ranks: int, *flags: str, **variables: str) -> tuple[list[str], str]:
        shown = launch("-np", str(ranks), *flags, "--dry-run", "--", "true", env=environment | variables)
        return [line for line in shown.stdout.splitlines() if line.startswith(variable)], shown.stderr

    assert wait(7) == ([], "")  # Horovod's own 30 seconds
    assert wait(8) == ([f"{variable}=32"], "")
    assert wait(64) == ([f"{variable}=256"], "")
    assert wait(64, "--gloo-timeout", "77") == wait(64, **{variable: "77"}) == ([f"{variable}=77"], "")
    seconds, warned = wait(65)
    assert seconds == [f"{variable}=256"]
    assert warned.startswith("warning: 65 ranks ") and "mpirun.sh" in warned and warned.count("\n") == 1


def test_the_launcher_needs_the_standard_library_alone() -> None:
    modules = list((ROOT / "scripts" / "launcher").glob("*.py"))
    trees = [ast.parse(path.read_text()) for path in modules]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    imported -= {"bert.recipes"}  # which `python -S` imports too; the tests of slurm_phases.sh do
    known = {path.stem for path in modules} | sys.stdlib_module_names
    assert not {name.split(".")[0] for name in imported} - known and not {"os", "sys"} - imported
    assert not {path.stem for path in modules} & sys.stdlib_module_names  # they would be found first


def test_one_rank_is_plain_only_on_this_host(environment: dict[str, str]) -> None:
    assert launch("-np", "1", "--dry-run", "--", "true", env=environment).stdout.splitlines()[-1] == "true"
    there = launch("-np", "1", "-H", "a:1", "--dry-run", "--", "true", env=environment)
    assert there.stdout.splitlines()[-1].startswith("horovodrun -np 1 ")


def test_the_threads_of_one_rank_can_be_set(environment: dict[str, str]) -> None:
    shown = launch("-np", "1", "--dry-run", "true", env=environment | {"OMP_NUM_THREADS": "7"})
    assert "TF_NUM_INTEROP_THREADS=7\nTF_NUM_INTRAOP_THREADS=7\n" in shown.stdout


def test_one_rank_runs_without_horovodrun(environment: dict[str, str]) -> None:
    shown = launch("-np", "1", "--", "sh", "-c", "echo out; echo rank=$HOROVOD_RANK >&2; exit 3", env=environment)
    assert (shown.returncode, shown.stdout, shown.stderr) == (3, "out\n", "rank=\n")


def test_ranks_of_this_host_need_no_horovodrun(clean: dict[str, str], tmp_path: Path) -> None:
    env = clean | {"VENV": str(tmp_path), "PATH": os.defpath}

    def run(code: str) -> tuple[int, list[str], str]:
        began = time.monotonic()
        done = launch("-np", "2", "--", "sh", "-c", code, env=env)
        assert time.monotonic() - began < 60
        return done.returncode, sorted(done.stdout.splitlines()), done.stderr

    told = "echo $HOROVOD_RANK of $HOROVOD_SIZE, $HOROVOD_LOCAL_RANK of $HOROVOD_LOCAL_SIZE on $HOROVOD_HOSTNAME"
    host = os.uname().nodename
    assert run(told) == (0, [f"0 of 2, 0 of 2 on {host}", f"1 of 2, 1 of 2 on {host}"], "")
    others_wait = "[ $HOROVOD_RANK = 1 ] || exec sleep 99;"
    assert run(f"{others_wait} echo error: no data >&2; exit 3") == (3, [], "error: no data\n")
    assert run(f"{others_wait} sleep 1; kill -9 $$")[:2] == (137, [])
    there = launch("-np", "2", "-H", "a:2", "--", "true", env=env)
    assert there.returncode == 2 and "no horovodrun here" in there.stderr


def test_long_lines_of_two_ranks_stay_whole(clean: dict[str, str], tmp_path: Path) -> None:
    code = "import os\nfor _ in range(40): print(os.environ['HOROVOD_RANK'] * 200_000)"
    words = ["-np", "2", "-x", "CODE", "--", "sh", "-c", f'exec {sys.executable} -c "$CODE"']
    done = launch(*words, env=clean | {"VENV": str(tmp_path), "PATH": os.defpath, "CODE": code})
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["0" * 200_000] * 40 + ["1" * 200_000] * 40


def test_lines_of_two_ranks_stay_whole_where_they_come_in_pieces(clean: dict[str, str], tmp_path: Path) -> None:
    pieces = "for word in sys.argv[1], ' ', 'of rank': print(word, end='', file=sys.stderr), time.sleep(0.1)"
    code = f"import sys, time\n{pieces}\nprint(file=sys.stderr)"
    env = clean | {"VENV": str(tmp_path), "PATH": os.defpath, "PYTHONUNBUFFERED": "1"}
    for _ in range(3):
        words = ["sh", "-c", f'exec {sys.executable} -c "$CODE" $HOROVOD_RANK']
        done = launch("-np", "2", "-x", "CODE", "--", *words, env=env | {"CODE": code})
        assert (done.returncode, sorted(done.stderr.splitlines())) == (0, ["0 of rank", "1 of rank"])


def test_the_cores_are_shared_among_the_ranks(environment: dict[str, str]) -> None:
    cores = len(os.sched_getaffinity(0))
    shown = launch(env=environment, code="print(os.environ['OMP_NUM_THREADS'], os.environ['TF_NUM_INTRAOP_THREADS'])")
    assert set(shown.stdout.split()) == {str(max(1, cores // 2))}


def test_streams_stay_apart_and_lose_the_rank(environment: dict[str, str]) -> None:
    shown = launch(env=environment, code="print('out'); print('warning: [x]<y>: z', file=sys.stderr)")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "out\n" * 2, "warning: [x]<y>: z\n" * 2)


def test_an_error_of_all_ranks_is_one_line_and_its_status(environment: dict[str, str]) -> None:
    shown = launch(env=environment, code="time.sleep(1.5); print('error: no data', file=sys.stderr); sys.exit(3)")
    assert (shown.returncode, shown.stdout, shown.stderr) == (3, "", "error: no data\n")


def test_half_a_line_is_not_lost_with_a_report_behind_it(environment: dict[str, str]) -> None:
    shown = launch(env=environment, code="time.sleep(1); print('half', end='', file=sys.stderr); sys.exit(3)")
    assert shown.returncode == 3 and "half\n" in shown.stderr and "@launch" not in shown.stderr


def test_a_signal_before_all_ranks_run_ends_them_unsaved(environment: dict[str, str], tmp_path: Path) -> None:
    slow = "#!/bin/bash\nsleep 60 & trap 'kill %1; exit 1' TERM; touch \"$STARTED\"; wait\n"
    (tmp_path / "bin" / "horovodrun").write_text(slow)
    started = tmp_path / "started"
    command = [str(LAUNCH), "-np", "2", *BY_HOROVODRUN, "-x", "STARTED", "--", "true"]
    env = environment | {"STARTED": str(started)}
    launcher = subprocess.Popen(command, env=env, stderr=-1, text=True)
    wait_for(started.exists, "start of horovodrun", launcher)
    launcher.send_signal(signal.SIGTERM)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 1 and errors.startswith("error: ended before the ranks saved"), errors
    assert errors.count("\n") == 1


# Rank 0 goes on when rank 1 lets no SIGTERM end it.
MEETING = """
    import pathlib, signal
    here, rank = pathlib.Path({ready!r}), int(os.environ["HOROVOD_RANK"])
    if rank:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        here.touch()
    while not here.exists():
        time.sleep(0.01)
"""


def test_a_documented_status_wins_over_those_of_ranks_that_only_noticed(
    environment: dict[str, str], tmp_path: Path
) -> None:
    code = MEETING.format(ready=str(tmp_path / "ready")) + "    time.sleep(rank)\n    sys.exit([1, 4][rank])\n"
    assert launch(env=environment, code=code).returncode == 4


@pytest.mark.parametrize("first", ["os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(1)"])
def test_a_killed_rank_wins_over_what_others_reported_before(
    first: str, environment: dict[str, str], tmp_path: Path
) -> None:
    code = MEETING.format(ready=str(tmp_path / "ready"))
    code += f"    if rank == 0:\n        {first}\n    time.sleep(1)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert launch(env=environment, code=code).returncode == 137


def test_a_killed_rank_is_one_line(environment: dict[str, str]) -> None:
    code = "os.kill(os.getpid(), 9) if os.environ['HOROVOD_RANK'] == '1' else time.sleep(30)"
    shown = launch(env=environment, code=code)
    assert shown.returncode == 137
    assert shown.stderr.startswith("error: a rank was ended by SIGKILL") and shown.stderr.count("\n") == 1


def test_what_horovodrun_says_itself_is_shown_when_no_rank_ran(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "horovodrun").write_text("#!/bin/sh\necho 'horovodrun: bad option' >&2; exit 2\n")
    shown = launch(env=environment)
    assert (shown.returncode, shown.stderr) == (2, "horovodrun: bad option\n")


@pytest.mark.parametrize("words", ["-np", "-np 0 -- true", "-np 2", "-np 2 --", "-- true", "-np 2 -H"])
def test_a_wrong_command_line_is_one_line(words: str, environment: dict[str, str]) -> None:
    shown = launch(*words.split(), env=environment)
    assert shown.returncode == 2
    assert shown.stderr.startswith("error: ") and "launch.sh" in shown.stderr and shown.stderr.count("\n") == 1


SECRETS = ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "http_proxy", "BERT_API_KEY", "BERT_CONTACT", "TF_PASSWORD", "MY_OWN")
LOOK = """
import contextlib, os, pathlib, time
seen = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    with contextlib.suppress(OSError):  # the process has ended
        seen.append(path.read_bytes())
shown = any(b"s3cr" + b"3t" in words for words in seen)
mine = sorted(name for name, value in os.environ.items() if "s3cr" + "3t" in value)
print(f"visible: {shown}, inherited: {mine}, asked for: {os.environ.get('WANTED')}", flush=True)
time.sleep(1)
"""
SECRET_FREE = "visible: False, inherited: [], asked for: yes\n" * 2


def with_secrets(env: dict[str, str]) -> dict[str, str]:
    return env | dict.fromkeys(SECRETS, "s3cr3t") | {"WANTED": "yes"}


def test_ranks_get_what_is_needed_and_no_secret(environment: dict[str, str]) -> None:
    words = ["-np", "2", *BY_HOROVODRUN, "-x", "WANTED", "--", sys.executable, "-c", LOOK]
    shown = launch(*words, env=with_secrets(environment))
    assert shown.stdout == SECRET_FREE, shown.stderr
    shown = launch("-np", "2", "-x", "UNSET", "--", "true", env=environment)
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1) and "-x UNSET: UNSET is not set" in shown.stderr


def test_ranks_end_when_nobody_reads_what_they_write(environment: dict[str, str], tmp_path: Path) -> None:
    code = f"""
        import pathlib, signal
        def stop(*_):
            pathlib.Path({str(tmp_path)!r}, os.environ["HOROVOD_RANK"]).touch()
            sys.exit(75)
        signal.signal(signal.SIGTERM, stop)
        pathlib.Path({str(tmp_path)!r}, "ready" + os.environ["HOROVOD_RANK"]).touch()
        while True:
            print("y" * 99)
    """
    words = [str(LAUNCH), *ranks(code)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        while len(list(tmp_path.glob("ready?"))) < 2:
            assert process.stdout.readline().startswith(b"yyy")
        process.stdout.close()
        assert process.wait(60) == 75
    assert {path.name for path in tmp_path.iterdir()} >= {"0", "1"}


@pytest.mark.multiprocess
@pytest.mark.parametrize("where", [BY_HOROVODRUN, BY_ITSELF])
def test_no_secret_is_on_a_command_line_of_real_ranks(where: Sequence[str], clean: dict[str, str]) -> None:
    words = ["-np", "2", *where, "-x", "WANTED", "--", sys.executable, "-c", LOOK]
    shown = launch(*words, env=with_secrets(clean))
    assert shown.stdout == SECRET_FREE, shown.stderr


STOPPABLE = """
    import signal
    def stop(*_):
        time.sleep(float(os.environ["HOROVOD_RANK"]) * SLOWER)
        print("stopped at step 7", file=sys.stderr)
        sys.exit(75)
    signal.signal(signal.SIGTERM, stop)
    os.write(2, b"ready\\n")  # behind the report that the rank runs, which the launcher has then read
    time.sleep(60)
"""


@pytest.fixture
def stop_when_ready() -> Iterator[Stop]:
    """Starts two ranks, sends the launcher a signal when both are ready; returns its status and errors."""
    started: list[psutil.Process] = []

    def run(kind: int, env: dict[str, str], slower: float, where: Sequence[str] = BY_HOROVODRUN) -> tuple[int, str]:
        words = [str(LAUNCH), *ranks(STOPPABLE.replace("SLOWER", str(slower)), where)]
        launcher = subprocess.Popen(words, env=env, stdout=-1, stderr=-1, text=True)
        assert launcher.stderr
        assert [launcher.stderr.readline() for _ in range(2)] == ["ready\n"] * 2
        started.extend(psutil.Process(launcher.pid).children(recursive=True))
        launcher.send_signal(kind)
        _, errors = launcher.communicate(timeout=180)
        wait_for(lambda: not any(process.is_running() for process in started), "end of what the launcher started")
        return launcher.returncode, errors

    yield run
    for process in started:
        if process.is_running():
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_ranks_which_end_in_their_own_time(
    kind: int, environment: dict[str, str], stop_when_ready: Stop
) -> None:
    assert stop_when_ready(kind, environment, slower=1) == (75, "stopped at step 7\n")


@pytest.mark.multiprocess
@pytest.mark.parametrize("where", [BY_HOROVODRUN, BY_ITSELF])
def test_a_real_rank_may_take_long_to_stop(where: Sequence[str], stop_when_ready: Stop, clean: dict[str, str]) -> None:
    # horovodrun grants five seconds, and none to the ranks that are still up when the first one is gone
    assert stop_when_ready(signal.SIGTERM, clean, 7, where) == (75, "stopped at step 7\n")


HANGS = """
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(f"[0]<stdout>:{os.getpid()}", flush=True)
    time.sleep(60)
"""
KILLED = "error: the launcher was killed, and its ranks end ; the same command resumes from the last checkpoint"


def test_a_horovodrun_that_hangs_ends_with_its_killed_launcher(
    environment: dict[str, str], stand_in: Callable[[str, str], Path]
) -> None:
    # two SIGTERM, one for each thread of the launcher, left horovodrun waiting in its own handler
    stand_in("horovodrun", HANGS)
    command = [str(LAUNCH), "-np", "2", *BY_HOROVODRUN, "--", "true"]
    launcher = subprocess.Popen(command, env=environment, stdout=-1, stderr=subprocess.DEVNULL, text=True)
    assert launcher.stdout
    runner = psutil.Process(int(launcher.stdout.readline()))
    try:
        launcher.kill()
        runner.wait(timeout=45)
    finally:
        if runner.is_running():
            runner.kill()


@pytest.mark.parametrize("count", ["1", "2"])
def test_the_terminal_of_a_run_under_nohup_may_close(count: str, environment: dict[str, str], tmp_path: Path) -> None:
    code = """
        import signal
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        print("ready", flush=True)
        time.sleep(2)
        print("done", flush=True)
    """
    launcher = subprocess.Popen(
        ["nohup", LAUNCH, "-np", count, "--", sys.executable, "-c", "import time\n" + textwrap.dedent(code)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert launcher.stdout
    assert launcher.stdout.readline() == "ready\n"
    os.killpg(launcher.pid, signal.SIGHUP)
    said = launcher.stdout.read()  # `communicate` would miss what was read together with the first line
    _, errors = launcher.communicate(timeout=60)
    assert (launcher.returncode, said.count("done")) == (0, int(count)), errors


@pytest.mark.multiprocess
@pytest.mark.faults
@pytest.mark.parametrize("where", [BY_HOROVODRUN, BY_ITSELF])
def test_real_ranks_do_not_outlive_a_killed_launcher(
    where: Sequence[str], stop_when_ready: Stop, clean: dict[str, str]
) -> None:
    status, errors = stop_when_ready(signal.SIGKILL, clean, 1, where)
    assert status == -signal.SIGKILL
    assert errors == f"{KILLED}\n"


@pytest.mark.multiprocess
def test_real_ranks_add_up_and_fail_with_their_own_status(clean: dict[str, str]) -> None:
    code = """
        import horovod.tensorflow as hvd, tensorflow as tf
        hvd.init()
        print(float(hvd.allreduce(tf.constant(hvd.rank() + 2.0), op=hvd.Sum)), flush=True)
        if hvd.rank() == 1:
            print("error: no such thing", file=sys.stderr)
            sys.exit(4)
        time.sleep(30)
    """
    shown = launch(*ranks(code, BY_ITSELF), env=clean)
    assert (shown.returncode, shown.stdout) == (4, "5.0\n" * 2)
    assert [line for line in shown.stderr.splitlines() if line.startswith("error")] == ["error: no such thing"]
