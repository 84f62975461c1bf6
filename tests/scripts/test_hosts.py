"""scripts/launch.sh on several hosts: the real horovodrun, with an ssh that stays on this one under other names."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests import training
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "scripts" / "launch.sh"
StandIn = Callable[[str, str], Path]

# Runs what ssh would run there, where `uname -n` is the host's name, which no address of this machine has. As with ssh,
# what runs there is in a session of its own, and when ssh is ended it goes on until it writes into the closed pipe.
SSH = """
    import os, pathlib, subprocess, sys, threading
    words, plain = sys.argv[1:], []
    while words:
        word = words.pop(0)
        if word in ("-o", "-p", "-i") and len(plain) < 2:
            words.pop(0)
        else:
            plain.append(word)
    there = pathlib.Path(__file__).parent / plain[0]
    there.mkdir(exist_ok=True)
    (there / "uname").write_text(f"#!/bin/sh\\necho {plain[0]}\\n")
    (there / "uname").chmod(0o755)
    command = " ".join(plain[1:]).replace(" PATH=", f" PATH={there}:")
    remote = subprocess.Popen(["sh", "-c", command], stdin=-3, stdout=-1, stderr=-1, start_new_session=True)
    def copy(source, target):
        while piece := os.read(source.fileno(), 4096):
            os.write(target, piece)
    threads = [threading.Thread(target=copy, args=pair) for pair in ((remote.stdout, 1), (remote.stderr, 2))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    sys.exit(remote.wait())
"""


@pytest.fixture
def hosts(clean: dict[str, str], stand_in: StandIn) -> dict[str, str]:
    """An environment in which node-b.invalid and node-c.invalid can be reached by ssh."""
    return clean | {"PATH": f"{stand_in('ssh', SSH).parent}:{Path(sys.executable).parent}:{clean['PATH']}"}


def line(where: str, *command: str) -> list[str]:
    """The launcher's command line for two ranks there."""
    return [str(LAUNCH), "-np", "2", "-H", where, "--network-interfaces", "lo", "--", *command]


def test_hosts_that_cannot_be_reached_are_one_line(environment: dict[str, str], stand_in: StandIn) -> None:
    # As observed of horovodrun 0.28.1: each host on standard output, a traceback on standard error, and status 1.
    said = "".join(f"ssh not successful for host {host}:\\nPermission denied\\n\\n" for host in ("node-c", "node-b"))
    stand_in("horovodrun", f"print('{said}')\nraise RuntimeError('could not connect to some hosts via ssh')\n")
    done = subprocess.run(line("node-b:1,node-c:1", "true"), env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no ssh without a password to node-b node-c ; try it as: ssh node-b true\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Unable to find a set of common task-to-task communication interfaces: []", "the hosts share no name of a"),
        ("No interface is found for address 127.0.0.1.", "all hosts of -H are this one ; leave out"),
    ],
)
def test_interfaces_that_horovodrun_cannot_use_are_one_line(
    said: str, expected: str, environment: dict[str, str], stand_in: StandIn
) -> None:
    stand_in("horovodrun", f"raise Exception({said!r})\n")  # as of horovodrun 0.28.1
    done = subprocess.run(line("node-b:1,node-c:1", "true"), env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {expected}") and done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("where", [["-H", "localhost:1,node-c.invalid:1"], []])
def test_each_host_takes_the_interface_that_it_has(where: list[str], hosts: dict[str, str]) -> None:
    def launch(interfaces: str) -> subprocess.CompletedProcess[str]:
        command = [str(LAUNCH), "-np", "2", *where, "--network-interfaces", interfaces, "--"]
        code = "import os; print(os.environ['HOROVOD_GLOO_IFACE'])"
        return subprocess.run(
            [*command, sys.executable, "-c", code], env=hosts, capture_output=True, text=True, timeout=200
        )

    done = launch("eth77,lo")  # as if lo were what this host has in the place of eth77
    assert (done.returncode, done.stdout) == (0, "lo\nlo\n"), done.stderr
    absent = launch("eth77,eth78")
    assert (absent.returncode, absent.stdout) == (2, "") and absent.stderr.count("\n") == 1
    assert "--network-interfaces eth77,eth78: no such network interface here, but lo" in absent.stderr


def test_a_rank_whose_host_has_no_such_interface_says_so(clean: dict[str, str]) -> None:
    command = [str(ROOT / "scripts" / "launcher.sh"), "rank", "true"]
    env = clean | {"BERT_LAUNCH": "@launch", "BERT_INTERFACES": "eth77"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    error, report = done.stderr.splitlines()
    assert (done.returncode, report) == (2, "@launch ended 2")
    assert error.startswith(f"error: {os.uname().nodename}: no such network interface here, but lo")


@pytest.mark.multiprocess
def test_ranks_of_two_hosts_find_each_other_and_their_failure_is_theirs(hosts: dict[str, str]) -> None:
    code = """
        import os, sys, subprocess, time
        import horovod.tensorflow as hvd, tensorflow as tf
        hvd.init()
        host = subprocess.run(["uname", "-n"], capture_output=True, text=True).stdout.strip()
        total = float(hvd.allreduce(tf.constant(hvd.rank() + 2.0), op=hvd.Sum))
        print(f"rank {hvd.rank()} of {hvd.local_size()} there: {total}, node-c: {host == 'node-c.invalid'},",
              f"threads: {os.environ['OMP_NUM_THREADS']}", flush=True)
        hvd.allreduce(tf.constant(0.0))
        if hvd.rank() == 1:
            print("error: no such thing", file=sys.stderr)
            sys.exit(4)
        time.sleep(60)
    """
    command = line("localhost:1,node-c.invalid:1", sys.executable, "-c", textwrap.dedent(code))
    done = subprocess.run(command, env=hosts, capture_output=True, text=True, timeout=300)
    cores = len(os.sched_getaffinity(0))
    assert sorted(done.stdout.splitlines()) == [
        f"rank 0 of 1 there: 5.0, node-c: False, threads: {cores}",
        f"rank 1 of 1 there: 5.0, node-c: True, threads: {cores}",
    ]
    assert done.returncode == 4
    assert [text for text in done.stderr.splitlines() if text.startswith("error")] == ["error: no such thing"]


@pytest.mark.multiprocess
def test_without_a_rank_here_a_signal_ends_all_and_says_so(hosts: dict[str, str]) -> None:
    loop = "while :; do echo $HOROVOD_RANK; sleep 0.2; done"  # ends by a signal only, not if its output is closed
    command = line("node-b.invalid:1,node-c.invalid:1", "sh", "-c", loop)
    launcher, seen = subprocess.Popen(command, env=hosts, stdout=-1, stderr=-1, text=True), set[str]()
    assert launcher.stdout
    while seen != {"0", "1"}:
        seen.add(launcher.stdout.readline().strip())
        assert launcher.poll() is None
    started = psutil.Process(launcher.pid).children(recursive=True)
    launcher.send_signal(signal.SIGTERM)
    _, errors = launcher.communicate(timeout=180)
    assert launcher.returncode not in (0, 75)
    assert errors.startswith("error: ended before the ranks saved") and errors.count("\n") == 1, errors
    assert not psutil.wait_procs(started, timeout=60)[1]


@pytest.mark.multiprocess
def test_a_stop_saves_on_both_hosts_and_the_run_goes_on_to_the_same_bits(hosts: dict[str, str], tmp_path: Path) -> None:
    records = training.write_dataset(tmp_path / "records")
    hosts |= {name: os.environ[name] for name in ("XLA_FLAGS", "TF_XLA_FLAGS")}  # which make compilation short

    def train(where: str, run: str) -> subprocess.Popen[str]:
        command = training.command(records, tmp_path / run, "--run.steps", "40", "--run.save_every", "7")
        return subprocess.Popen(line(where, *command), cwd=ROOT, env=hosts, stdout=-1, stderr=-1, text=True)

    two = "localhost:1,node-c.invalid:1"
    stopped, log = train(two, "run"), tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: log.exists() and len(log.read_bytes().splitlines()) > 3, "three updates", stopped, seconds=300)
    stopped.send_signal(signal.SIGTERM)
    _, errors = stopped.communicate(timeout=300)
    assert stopped.returncode == 75, errors
    assert [text[:15] for text in errors.splitlines() if text.startswith(("error: ", "stopped "))] == [
        "stopped at step"
    ]
    again, straight = train(two, "run"), train("localhost:2", "straight")
    for process in (again, straight):
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors
    training.same_bits(training.weights(tmp_path / "straight", 40), training.weights(tmp_path / "run", 40))
