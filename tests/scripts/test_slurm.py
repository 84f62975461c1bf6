"""scripts/slurm.sh, with stand-ins for srun and scontrol that run real local processes and note what they are given."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLURM = ROOT / "scripts" / "slurm.sh"
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do echo "$1" >>"$NOTES"; shift; done
for rank in 0 1; do SLURM_PROCID=$rank "$@" & done
status=0
for job in $(jobs -p); do wait "$job" || status=$?; done
exit $status
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment as a job has it, with the stand-ins."""
    (tmp_path / "bin").mkdir()
    for name, script in (("srun", SRUN), ("scontrol", '#!/bin/sh\necho "scontrol $*" >>"$NOTES"\n')):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "TF_", "VENV"))}
    own = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "NOTES": str(tmp_path / "notes"), "VENV": "/nonexistent",
           "SLURM_JOB_ID": "4711", "SLURM_SUBMIT_DIR": str(tmp_path)}  # fmt: skip
    return kept | own


def slurm(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SLURM, *words], env=env, capture_output=True, text=True, timeout=60)


def test_dry_run_shows_the_command(environment: dict[str, str], tmp_path: Path) -> None:
    shown = slurm("--dry-run", "python", "-m", "bert.pretrain", "a b", env=environment)
    plain = "srun --mpi=pmix --kill-on-bad-exit=0 --wait=300 --cpu-bind=cores"
    assert (shown.returncode, shown.stdout) == (0, f"{plain} python -m bert.pretrain a\\ b \n")
    settings = {"CONTAINER": "bert.sqsh", "MOUNTS": "/data:/data", "MPI": "pmi2"}
    shown = slurm("--dry-run", "true", env=environment | settings)
    inside = f"--container-image=bert.sqsh --container-mounts={tmp_path}:{tmp_path}\\,/data:/data"
    expected = f"{plain.replace('pmix', 'pmi2')} {inside} --container-workdir={tmp_path} true \n"
    assert shown.stdout.replace("\\", "") == expected.replace("\\", "")


def test_every_task_runs_the_command_where_the_job_was_submitted(environment: dict[str, str], tmp_path: Path) -> None:
    done = slurm("sh", "-c", 'pwd; echo "rank $SLURM_PROCID" >&2', env=environment)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}\n" * 2)
    assert sorted(done.stderr.splitlines()) == ["rank 0", "rank 1"]
    assert "scontrol" not in (tmp_path / "notes").read_text()


@pytest.mark.parametrize(("status", "requeued"), [(75, True), (4, False)])
def test_a_job_that_was_stopped_goes_back_into_the_queue(
    status: int, requeued: bool, environment: dict[str, str], tmp_path: Path
) -> None:
    done = slurm("sh", "-c", f"exit {status}", env=environment)
    assert done.returncode == status
    assert ("scontrol requeue 4711" in (tmp_path / "notes").read_text()) == requeued


def test_no_command_is_one_line(environment: dict[str, str]) -> None:
    done = slurm(env=environment)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
