"""A run that is stopped, stalled or frozen ends with the same bits; kills are in test_soak.py and test_kill_sweep."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.training import (
    LENGTH,
    ROOT,
    STEPS,
    checkpoints,
    command,
    errors,
    measured,
    pretrain,
    same_bits,
    train_here,
    weights,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def start(line: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def after_updates(process: subprocess.Popen[str], count: int) -> None:
    """Wait until the run has logged this many updates, or has ended."""
    assert process.stderr
    for line in process.stderr:
        count -= line.startswith("train ")
        if count == 0:
            return


def same_run(one: Path, two: Path) -> None:
    same_bits(weights(one, STEPS), weights(two, STEPS))
    assert measured(one) == measured(two)


# Rank 1, which holds half of the model, is killed within the first update that finds a whole checkpoint.
HALF_LOST = """
    import os, signal
    from bert.training.accumulation import Accumulator
    micro_batches = Accumulator.add
    def accumulate(self, *arguments):
        if self.comm.rank == 1 and os.path.exists({checkpoint!r}):
            os.kill(os.getpid(), signal.SIGKILL)
        return micro_batches(self, *arguments)
    Accumulator.add = accumulate
"""


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_killed_part_of_a_model_ends_the_others_in_one_line(dataset: Path, tmp_path: Path) -> None:
    flags = ["--run.steps", "21", "--run.save_every", "7", "--parallel.tensor", "2", "--model.num_attention_heads", "4"]
    patch = HALF_LOST.format(checkpoint=str(tmp_path / "run" / "checkpoints" / "step-00000007"))
    killed = pretrain(dataset, tmp_path / "run", *flags, ranks=2, patch=patch)
    # On a slow disk the parts of the next checkpoint may be begun; they are joined only after an update of both ranks.
    whole = [name for name in checkpoints(tmp_path / "run") if not name.startswith(".")]
    assert killed.returncode != 0 and whole == ["step-00000007"]
    assert errors(killed.stderr) and "Traceback" not in killed.stderr, killed.stderr


ASKED = """
    import atexit, os, signal, time
    from bert.training import checkpoint, step
    def ask(): os.kill(os.getpid(), signal.{kind})
    asked, update, save = [], step.Step.update, checkpoint.save
    def asking(self, number, *arguments, **named):
        if number == {number}:
            asked.append(ask())
        return update(self, number, *arguments, **named)
    step.Step.update = asking
"""
AGAIN = """
    def impatient(*arguments, **named):
        if asked:
            ask()
            time.sleep(0.5)
        return save(*arguments, **named)
    checkpoint.save = impatient
    atexit.register(ask)
"""


def test_a_run_asked_to_stop_during_an_update_and_again_while_it_saves(
    straight: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    for kind, number in (("SIGUSR1", 6), ("SIGHUP", 14)):  # test_stopping.py has each signal
        done = pretrain(dataset, run, *LENGTH, patch=ASKED.format(kind=kind, number=number) + AGAIN)
        line = f"stopped at step {number + 1} of {STEPS}, saved; the same command resumes"
        assert (done.returncode, errors(done.stderr)) == (75, [line]), done.stderr
        assert checkpoints(run)[-1] == f"step-{number + 1:08d}" and not checkpoints(run)[0].startswith(".")
    train_here(dataset, run, *LENGTH)
    assert "after step 15\n" in capsys.readouterr().err
    same_run(straight, run)


SLUGGISH = """
    import time
    from bert.text import records
    calls, read = [], records.Dataset.read
    def sluggish(self, *arguments):
        calls.append(1)
        if len(calls) in (1, 24):
            time.sleep(5)
        return read(self, *arguments)
    records.Dataset.read = sluggish
"""


@pytest.mark.thorough
def test_a_stalled_reader_is_reported_and_waited_for(straight: Path, dataset: Path, tmp_path: Path) -> None:
    done = pretrain(dataset, tmp_path / "run", *LENGTH, "--run.stall_seconds", "1.5", patch=SLUGGISH)
    assert done.returncode == 0, done.stderr
    assert "warning: rank 0: no update for 1.5 seconds\n" in done.stderr
    assert done.stderr.count(" in sluggish") == 2  # before the first update, and among them
    same_run(straight, tmp_path / "run")


def test_a_frozen_run_continues(straight: Path, dataset: Path, tmp_path: Path) -> None:
    # The watchdog may or may not warn: it was frozen too, and an update may come before it checks.
    with start(command(dataset, tmp_path / "run", *LENGTH, "--run.stall_seconds", "1.5")) as process:
        after_updates(process, 1)
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        process.communicate()
    assert process.returncode == 0
    same_run(straight, tmp_path / "run")
