"""scripts/launch.sh on several hosts: the real horovodrun, with an ssh that stays on this one under other names."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tensorflow as tf

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
    assert [text for text in done.stderr.splitlines() if "error" in text.lower()] == ["error: no such thing"]


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


SIZES = [
    "--model.hidden_size",
    "20",
    "--model.num_attention_heads",
    "5",
    "--model.intermediate_size",
    "28",
    "--model.num_hidden_layers",
    "1",
    "--batch.total",
    "6",
    "--batch.per_device",
    "3",
    "--run.steps",
    "40",
    "--run.log_every",
    "1",
    "--run.save_every",
    "7",
]


@pytest.fixture
def records(run_module: Any, tmp_path: Path) -> Path:
    """A small folder of samples, from invented books."""
    at = tmp_path
    for module, *arguments in (
        (
            "synthetic",
            "--output",
            at / "source",
            "--articles",
            3,
            "--books",
            4,
            "--train_questions",
            7,
            "--dev_questions",
            5,
        ),
        ("books", "--source", at / "source" / "books", "--output", at / "books"),
        ("documents", "--source", at / "books", "--output", at / "documents", "--workers", 1),
        ("shards", "--source", at / "documents", "--output", at / "shards", "--shards", 2),
        ("vocab", "--source", at / "shards", "--output", at / "vocab", "--size", 300),
        (
            "tfrecords",
            "--source",
            at / "shards",
            "--vocab",
            at / "vocab" / "vocab.txt",
            "--output",
            at / "records",
            "--max_seq_length",
            32,
            "--max_predictions_per_seq",
            5,
            "--dupe_factor",
            1,
            "--workers",
            1,
        ),
    ):
        done = run_module(f"data.{module}", *arguments, timeout=300)
        assert done.returncode == 0, f"{module}: {done.stderr[-2000:]}"
    return at / "records"


def weights(run: Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(run / "checkpoints" / "step-00000040" / "variables"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.multiprocess
def test_a_stop_saves_on_both_hosts_and_the_run_goes_on_to_the_same_bits(
    hosts: dict[str, str], records: Path, tmp_path: Path
) -> None:
    def train(where: str, run: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "bert.pretrain",
            "demo_phase1",
            "--data.train",
            str(records),
            "--run.directory",
            str(tmp_path / run),
            *SIZES,
        ]
        return subprocess.Popen(line(where, *command), cwd=ROOT, env=hosts, stdout=-1, stderr=-1, text=True)

    two = "localhost:1,node-c.invalid:1"
    stopped, log = train(two, "run"), tmp_path / "run" / "metrics.jsonl"
    while stopped.poll() is None and not (log.exists() and len(log.read_bytes().splitlines()) > 3):
        time.sleep(0.005)
    stopped.send_signal(signal.SIGTERM)
    _, errors = stopped.communicate(timeout=300)
    assert stopped.returncode == 75, errors
    assert [text[:22] for text in errors.splitlines() if text.startswith("error: ")] == ["error: stopped at step"]
    again, straight = train(two, "run"), train("localhost:2", "straight")
    for process in (again, straight):
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors
    resumed, whole = weights(tmp_path / "run"), weights(tmp_path / "straight")
    assert resumed.keys() == whole.keys()
    for name, value in whole.items():
        assert value.tobytes() == resumed[name].tobytes(), name
