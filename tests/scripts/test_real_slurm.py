"""scripts/slurm.sh in a SLURM of two nodes on this machine, where Debian's slurm-wlm and munge are installed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training import ROOT, command, losses, same_bits, weights, write_dataset
from tests.waiting import wait_for

LENGTH = ["--run.steps", "160", "--run.save_every", "7"]
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="needs SLURM: apt-get install slurm-wlm munge"),
]
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={at}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool-%n
SlurmctldPidFile={at}/ctld.pid
SlurmdPidFile={at}/%n.pid
SlurmctldLogFile={at}/ctld.log
SlurmdLogFile={at}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SchedulerParameters=bf_interval=1,sched_interval=1
MpiDefault=none
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""


class Cluster:
    """A SLURM with two nodes."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.environment = os.environ | {"SLURM_CONF": str(at / "slurm.conf"), "BERT_WORKDIR": str(at / "work")}

    def run(self, *words: object) -> str:
        done = subprocess.run(list(map(str, words)), env=self.environment, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, log: Path, *words: object, options: tuple[str, ...] = ()) -> str:
        """Submit a job of two ranks on two nodes; return its number."""
        place = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--output={log}"]
        return self.run("sbatch", "--parsable", *place, *options, "scripts/slurm.sh", *words)

    def state(self, job: str) -> str:
        return re.search(r"JobState=(\w+)", self.run("scontrol", "show", "job", job))[1]  # type: ignore[index]

    def wait_until_over(self, job: str) -> str:
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: self.state(job) in over, "end of the job", seconds=300)
        return self.state(job)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    at = tmp_path_factory.mktemp("slurm")
    for folder in ("state", "spool-n1", "spool-n2", "work"):
        (at / folder).mkdir()
    host = socket.gethostname().split(".")[0]
    settings = {"host": host, "at": at, "user": os.environ.get("USER", "root"), "ports": free_ports(3)}
    (at / "slurm.conf").write_text(CONFIGURATION.format(**settings))
    (at / "key").write_bytes(os.urandom(128))
    (at / "key").chmod(0o600)
    made = Cluster(at)
    munged = ["munged", "--foreground", "--force", f"--socket={at}/munge.socket", f"--key-file={at}/key"]
    munged += [f"--pid-file={at}/munge.pid", f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed"]
    commands = (munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"])
    processes = []
    try:
        for words in commands:
            processes.append(subprocess.Popen(words, env=made.environment, stderr=subprocess.DEVNULL))
            wait_for((at / "munge.socket").exists, "socket of munge", processes[0])
        wait_for(lambda: made.run("sinfo", "-h", "-o", "%D %t") == "2 idle", "two idle nodes", processes[1])
        yield made
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def said(log: Path) -> list[str]:
    """The lines of a job's output, without those of updates."""
    return [line for line in log.read_text().splitlines() if not line.startswith(("train ", "heldout ", "device: "))]


def has(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text()


def test_a_job_survives_a_stop_and_a_killed_rank_and_ends_with_the_bits_of_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    dataset = write_dataset(tmp_path / "data")
    plain, log = tmp_path / "plain.log", tmp_path / "job.log"
    other = cluster.submit(plain, *command(dataset, tmp_path / "plain", *LENGTH))
    assert cluster.wait_until_over(other) == "COMPLETED", plain.read_text()
    job = cluster.submit(log, *command(dataset, tmp_path / "run", *LENGTH))
    wait_for(lambda: has(log, "train 20/"), "update 20", seconds=300)
    cluster.run("scancel", "--signal=USR1", job)  # as before the time is over, or when it is preempted
    wait_for(lambda: has(log, f"job {job} was stopped and saved: back into the queue"), "requeue", seconds=60)
    wait_for(lambda: has(log, "resuming "), "second session", seconds=300)
    wait_for(lambda: has(log, "train 90/"), "update 90", seconds=300)
    begun = time.monotonic()
    ranks = cluster.run("pgrep", "-f", f"^[^ ]*python.*--run.directory {tmp_path}/run").split()
    os.kill(int(ranks[-1]), signal.SIGKILL)
    wait_for(lambda: has(log, f"job {job} failed with status 137, 1 of at most 3 times"), "its failure", seconds=60)
    assert time.monotonic() - begun < 30
    assert cluster.wait_until_over(job) == "COMPLETED", log.read_text()
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")
    same_bits(weights(tmp_path / "run", 160), weights(tmp_path / "plain", 160))
    assert not list((cluster.at / "work").glob("*.failures"))


def test_a_mistake_is_one_line_and_ends_the_job_with_its_code(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    job = cluster.submit(log, *command(tmp_path / "nothing", tmp_path / "run", *LENGTH))
    assert cluster.wait_until_over(job) == "FAILED"
    assert "ExitCode=3:0" in cluster.run("scontrol", "show", "job", job)
    (line,) = said(log)
    assert line.startswith(f"error: {tmp_path}/nothing")


def test_a_job_whose_ranks_always_die_is_given_up(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    job = cluster.submit(log, "bash", "-c", "[ $HOROVOD_RANK = 0 ] || kill -9 $$; sleep 100")
    assert cluster.wait_until_over(job) == "FAILED"
    assert said(log)[-1] == f"error: job {job} failed 4 times in succession ; its messages are above"
    assert log.read_text().count("back into the queue") == 3


def test_each_task_has_the_cores_that_were_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    words = ("bash", "-c", "echo cores $SLURM_CPUS_PER_TASK $HOROVOD_RANK of $HOROVOD_SIZE at $HOROVOD_LOCAL_RANK")
    job = cluster.submit(log, *words, options=("--cpus-per-task=2",))
    assert cluster.wait_until_over(job) == "COMPLETED", log.read_text()
    assert sorted(said(log)) == ["cores 2 0 of 2 at 0", "cores 2 1 of 2 at 0"]
