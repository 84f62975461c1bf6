"""scripts/slurm.sh and slurm_phases.sh, with stand-ins for SLURM's commands that run real processes and take notes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLURM, PHASES = ROOT / "scripts" / "slurm.sh", ROOT / "scripts" / "slurm_phases.sh"
BIND = f"{ROOT}/scripts/launcher.sh bind"
StandIn = Callable[[str, str], Path]

SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >>"$NOTES"; shift; done
export SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1
for rank in 0 1; do
    export SLURM_PROCID=$rank SLURM_LOCALID=$rank
    { "$@" 2>&3 | sed "s/^/$rank: /"; exit "${PIPESTATUS[0]}"; } 3> >(sed "s/^/$rank: /" >&2) &
done
status=0
for job in $(jobs -p); do wait "$job" || status=$?; done
sleep 0.3
exit $status
"""
# Prints the number of the job; with HELD it refuses a job that depends on another, as where dependencies are off.
SBATCH = """#!/bin/bash
echo "sbatch $*" >>"$NOTES"
[[ -z ${HELD:-} || $* != *--dependency* ]] || { echo "sbatch: error: Job dependency problem" >&2; exit 1; }
echo "$((4710 + $(grep -c ^sbatch "$NOTES")));cluster"
"""
PLAIN = "srun --mpi=none --label --kill-on-bad-exit=1 --cpu-bind="
RANK = f"{ROOT}/scripts/launcher.sh rank"


@pytest.fixture
def environment(environment: dict[str, str], stand_in: StandIn, tmp_path: Path) -> dict[str, str]:
    """An environment as a job has it, with the stand-ins."""
    stand_in("srun", SRUN)
    stand_in("sbatch", SBATCH)
    for name in ("scontrol", "scancel"):
        stand_in(name, f'#!/bin/sh\necho "{name} $*" >>"$NOTES"\n')
    (tmp_path / "notes").touch()
    return environment | {"NOTES": str(tmp_path / "notes"), "SLURM_JOB_ID": "4711", "SLURM_SUBMIT_DIR": str(ROOT)}


def slurm(*words: str, env: dict[str, str], script: Path = SLURM) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *words], env=env, capture_output=True, text=True, timeout=300)


def test_dry_run_shows_the_settings_and_the_command(environment: dict[str, str]) -> None:
    shown = slurm("--dry-run", "python", "-m", "bert.pretrain", "a b", env=environment)
    expected = ["TF_CPP_MIN_LOG_LEVEL=2", f"{PLAIN}cores {RANK} python -m bert.pretrain 'a b'"]
    assert (shown.returncode, shown.stdout.splitlines()) == (0, expected)
    shown = slurm("--dry-run", "--bind", "--nccl-debug", "INFO", "--", "true", env=environment | {"MPI": "pmi2"})
    assert shown.stdout.splitlines() == [
        "NCCL_DEBUG=INFO",
        "TF_CPP_MIN_LOG_LEVEL=2",
        f"{PLAIN.replace('=none', '=pmi2')}none {BIND} {RANK} true",
    ]


def test_many_ranks_meet_by_mpi_and_each_has_the_cores_that_the_job_asked_for(environment: dict[str, str]) -> None:
    for nodes, mpi in (("8(x8)", "none"), ("8(x8),1", "pmix")):
        job = {"SLURM_TASKS_PER_NODE": nodes, "SLURM_CPUS_PER_TASK": "12"}
        shown = slurm("--dry-run", "true", env=environment | job)
        expected = f"{PLAIN.replace('=none', f'={mpi}')}cores --cpus-per-task=12 {RANK} true"
        assert shown.stdout.splitlines()[-1] == expected


def test_a_rank_knows_its_place_among_nodes_of_different_sizes(environment: dict[str, str]) -> None:
    place = {"SLURM_PROCID": "6", "SLURM_NODEID": "2", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2),3,1"}
    told = {"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "BERT_RENDEZVOUS_PORT": "4242", "BERT_LAUNCH": "@"}
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "GLOO_IFACE")
    code = f"import os; print(*(os.environ['HOROVOD_' + name] for name in {names}))"
    words = [str(ROOT / "scripts" / "launcher.sh"), "rank", sys.executable, "-c", code]
    done = subprocess.run(words, env=environment | place | told, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["6", "8", "1", "3", "2", "3", "lo"]


def test_in_a_container_our_settings_win_over_those_of_the_image(environment: dict[str, str]) -> None:
    image = {"CONTAINER": "bert.sqsh", "MOUNTS": "/data:/data", "HOROVOD_CYCLE_TIME": "3"}
    shown = slurm("--dry-run", "--bind", "--nccl-debug", "INFO", "true", env=environment | image)
    inside = f"--container-image=bert.sqsh --container-mounts={ROOT}:{ROOT},/data:/data --container-workdir={ROOT}"
    told = "BERT_LAUNCH,BERT_RENDEZVOUS_PORT,HOROVOD_CYCLE_TIME,NCCL_DEBUG"
    expected = f"{PLAIN}none {inside} --container-env={told} {BIND} {RANK} true"
    assert shown.stdout.splitlines()[-1] == expected


def test_every_task_runs_the_command_where_the_job_was_submitted(environment: dict[str, str], tmp_path: Path) -> None:
    copy = tmp_path / "slurm_script"  # SLURM runs a copy
    copy.write_bytes(SLURM.read_bytes())
    copy.chmod(0o755)
    done = slurm("sh", "-c", 'pwd; echo "rank $SLURM_PROCID" >&2', env=environment, script=copy)
    assert (done.returncode, done.stdout) == (0, f"{ROOT}\n" * 2)
    assert sorted(done.stderr.splitlines()) == ["rank 0", "rank 1"]
    assert "scontrol" not in (tmp_path / "notes").read_text()
    elsewhere = slurm("true", env=environment | {"SLURM_SUBMIT_DIR": str(tmp_path)}, script=copy)
    assert elsewhere.returncode == 2 and elsewhere.stderr.startswith("error: ") and elsewhere.stderr.count("\n") == 1


def test_bound_tasks_know_their_place_on_the_node(environment: dict[str, str]) -> None:
    # Each rank writes its line at once: the lines of two ranks that print word by word are mixed.
    code = "import os; os.write(1, f'{len(os.sched_getaffinity(0))} {os.environ[\"OMP_NUM_THREADS\"]}\\n'.encode())"
    done = slurm("--bind", sys.executable, "-c", code, env=environment)
    cores = len(os.sched_getaffinity(0))
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2
    assert all(int(word) <= max(1, (cores + 1) // 2) for word in done.stdout.split()) or "unbound" in done.stderr


@pytest.mark.parametrize("status", [75, 4])
def test_a_job_that_was_stopped_goes_back_into_the_queue(
    status: int, environment: dict[str, str], tmp_path: Path
) -> None:
    done = slurm("sh", "-c", f"exit {status}", env=environment)
    assert done.returncode == status
    assert ("scontrol requeue 4711" in (tmp_path / "notes").read_text()) == (status == 75)


@pytest.mark.slow
def test_a_job_whose_ranks_die_goes_back_into_the_queue_three_times_in_succession(
    environment: dict[str, str], tmp_path: Path
) -> None:
    work = {"BERT_WORKDIR": str(tmp_path / "work")}
    for code, requeued in ((137, True), (137, True), (75, True), (1, True), (137, True), (1, True), (1, False)):
        (tmp_path / "notes").write_text("")
        done = slurm("sh", "-c", f"exit {code}", env=environment | work)
        assert done.returncode == code
        assert ("scontrol requeue 4711" in (tmp_path / "notes").read_text()) == requeued
    assert "failed 4 times in succession" in done.stderr and not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("script", [SLURM, ROOT / "scripts" / "mpirun.sh"])
def test_a_horovod_without_mpi_is_refused_for_its_ranks_would_not_meet(
    script: Path, environment: dict[str, str], stand_in: StandIn, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    library = venv / "lib/python3.11/site-packages/horovod/tensorflow/mpi_lib.cpython-311-x86_64-linux-gnu.so"
    library.parent.mkdir(parents=True)
    library.touch()
    stand_in("mpirun", f"#!/bin/sh\ntouch {tmp_path}/started\n")
    words = ["-np", "2", "--", "true"] if script != SLURM else ["touch", str(tmp_path / "started")]
    for linked in ("libpthread.so.0", "libmpi.so.40"):
        stand_in("ldd", f"print('{linked} => /usr/lib/{linked}')\n")
        done = slurm(*words, env=environment | {"VENV": str(venv), "MPI": "pmix"}, script=script)
        assert (done.returncode, (tmp_path / "started").exists()) == ((0, True) if "mpi" in linked else (2, False))
        assert "mpi" in linked or ("no MPI" in done.stderr and done.stderr.count("\n") == 1)


def test_no_command_is_one_line(environment: dict[str, str]) -> None:
    done = slurm(env=environment)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def job(phase: int, options: str, records: str, more: str) -> str:
    """sbatch's arguments for a phase of bert_large."""
    name = f"bert_large_phase{phase}"
    return (
        f"--parsable --job-name={name} --nodes=4 {options}scripts/slurm.sh --bind --fusion-mb 64 python -m"
        f" bert.pretrain {name} --data.train {records} --run.directory w/pretrain/{name} {more}--batch.per_device 8"
    )


WORDS = ["--nodes=4", "--", "--bind", "--fusion-mb", "64", "bert_large", "--data2", "/r 2", "--batch.per_device", "8"]


def test_phase_2_waits_for_phase_1_and_starts_from_it(environment: dict[str, str], tmp_path: Path) -> None:
    done = slurm(*WORDS, env=environment | {"BERT_WORKDIR": "w"}, script=PHASES)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["bert_large_phase1 is job 4711", "bert_large_phase2 is job 4712"]
    after = "--dependency=afterok:4711 --kill-on-invalid-dep=yes "
    assert (tmp_path / "notes").read_text().splitlines() == [
        f"sbatch {job(1, '', 'w/tfrecords/seq128', '')}",
        f"sbatch {job(2, after, '/r 2', '--init.checkpoint w/pretrain/bert_large_phase1 ')}",
    ]


def test_dry_run_shows_both_phases_and_submits_none(environment: dict[str, str], tmp_path: Path) -> None:
    words = [*WORDS[:2], "--dry-run", *WORDS[2:]]
    done = slurm(*words, env=environment | {"BERT_WORKDIR": "w"}, script=PHASES)
    after = "--dependency=afterok:JOB --kill-on-invalid-dep=yes "
    settings = ["HOROVOD_FUSION_THRESHOLD=67108864", "TF_CPP_MIN_LOG_LEVEL=2"]
    assert done.stdout.splitlines() == [
        *settings,
        f"sbatch {job(1, '', 'w/tfrecords/seq128', '')}",
        *settings,
        f"sbatch {job(2, after, '/r 2', '--init.checkpoint w/pretrain/bert_large_phase1 ')}".replace("/r 2", "'/r 2'"),
    ]
    assert not (tmp_path / "notes").read_text()


def test_if_phase_2_is_refused_phase_1_does_not_stay(environment: dict[str, str], tmp_path: Path) -> None:
    done = slurm(*WORDS, env=environment | {"HELD": "yes"}, script=PHASES)
    assert done.returncode == 2 and (tmp_path / "notes").read_text().splitlines()[-1] == "scancel 4711"
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == done.stderr.splitlines()[1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes=2 bert_large", "--"),
        ("-- bert_large_phase1", "both are bert_large"),
        ("-- bert_large_24h", "has one phase"),
        ("-- bert_larg", "no recipe bert_larg;"),
        ("-- --fast bert_large", "--fast"),
        ("-- bert_large --data1", "--data1"),
        ("-- bert_large --run.directory d", "--run.directory"),
        ("--", "no command"),
    ],
)
def test_wrong_phases_are_one_line_and_submit_nothing(
    words: str, said: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = slurm(*words.split(), env=environment, script=PHASES)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and said in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "notes").read_text()
