"""A run that is killed, stopped or stalled, at any moment and any number of times, ends with the same bits."""

import signal
import subprocess
import time
from pathlib import Path
from random import Random

import psutil
import pytest

from tests.training import LENGTH, ROOT, STEPS, checkpoints, command, errors, measured, pretrain, same_bits, weights

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
KILLS = 10


def start(line: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def after_updates(process: subprocess.Popen[str], count: int) -> None:
    """Wait until the run has logged so many updates, or has ended."""
    assert process.stderr
    for line in process.stderr:
        count -= line.startswith("train ")
        if count == 0:
            return


def same_run(one: Path, two: Path, step: int = STEPS) -> None:
    same_bits(weights(one, step), weights(two, step))
    assert measured(one) == measured(two)


@pytest.mark.slow
def test_ten_kills_do_not_change_the_result(straight: Path, dataset: Path, tmp_path: Path) -> None:
    run, draw, starting = tmp_path / "run", Random(11), 0.0
    for number in range(KILLS):
        began = time.monotonic()
        with start(command(dataset, run, *LENGTH)) as process:
            if number % 4 == 3:  # before its first update
                time.sleep(draw.uniform(0, starting))
            else:
                after_updates(process, 1)
                starting = time.monotonic() - began
                after_updates(process, draw.randint(1, 9))
                time.sleep(draw.uniform(0, 0.03))  # within an update, a save, an evaluation
            process.kill()
        assert process.returncode == -signal.SIGKILL, f"the run was over before kill {number}"
    done = pretrain(dataset, run, *LENGTH)
    assert done.returncode == 0 and "resuming" in done.stderr, done.stderr
    same_run(straight, run)
    assert checkpoints(run) == checkpoints(straight)


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_killed_launcher_and_killed_ranks_do_not_change_the_result(dataset: Path, tmp_path: Path) -> None:
    length = ["--run.steps", "60", "--run.save_every", "7"]
    undisturbed = pretrain(dataset, tmp_path / "straight", *length, ranks=2)
    assert undisturbed.returncode == 0, undisturbed.stderr
    line = command(dataset, tmp_path / "run", *length, ranks=2)
    with start(line) as launcher:
        after_updates(launcher, 10)
        launcher.kill()
    with start([str(ROOT / "scripts" / "again.sh"), "3", *line]) as launcher:  # resumes by itself
        for rank in ("1", "0"):
            after_updates(launcher, 10)
            kill_rank(launcher.pid, rank)
        said = launcher.communicate()[1]
    assert launcher.returncode == 0 and said.count("warning: ended with status 137") == 1, said  # the other was read
    same_run(tmp_path / "straight", tmp_path / "run", 60)


# Rank 1, which holds half of the model, is killed within update 10.
HALF_LOST = """
    import os, signal
    from bert.training import step
    micro_batches = step.Step._accumulate
    updates = []
    def accumulate(self, *arguments):
        updates.append(1)
        if len(updates) == 10 and self.comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return micro_batches(self, *arguments)
    step.Step._accumulate = accumulate
"""


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_killed_part_of_a_model_does_not_change_the_result(dataset: Path, tmp_path: Path) -> None:
    flags = ["--run.steps", "21", "--run.save_every", "7", "--parallel.tensor", "2", "--model.num_attention_heads", "4"]
    undisturbed = pretrain(dataset, tmp_path / "straight", *flags, ranks=2)
    assert undisturbed.returncode == 0, undisturbed.stderr
    killed = pretrain(dataset, tmp_path / "run", *flags, ranks=2, patch=HALF_LOST)
    assert killed.returncode != 0 and checkpoints(tmp_path / "run") == ["step-00000007"]
    assert errors(killed.stderr) and "Traceback" not in killed.stderr, killed.stderr
    again = pretrain(dataset, tmp_path / "run", *flags, ranks=2)
    assert again.returncode == 0 and "after step 7\n" in again.stderr, again.stderr
    same_run(tmp_path / "straight", tmp_path / "run", 21)


def kill_rank(launcher: int, rank: str) -> None:
    """Kill the process itself, not its launcher."""
    below = psutil.Process(launcher).children(recursive=True)
    ranks = [one for one in below if "python" in one.name() and one.environ().get("HOROVOD_RANK") == rank]
    [one] = [one for one in ranks if not any(word.endswith("scripts/launcher") for word in one.cmdline())]
    one.kill()


# Each patch kills the process during its second save.
DYING = """
    import os, signal
    from pathlib import Path
    from bert.storage import workspace
    from bert.training import checkpoint, step
    saves, save, steps, write = [], checkpoint.save, checkpoint.steps, checkpoint.tf.raw_ops.SaveV2
    publish, remove = workspace.Workspace.publish, workspace.shutil.rmtree
    def count(*arguments, **named):
        saves.append(arguments)
        return save(*arguments, **named)
    checkpoint.save = count
    def die():
        if len(saves) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
"""
BOUNDARIES = {  # place of the kill: patch, and step of the newest complete checkpoint after it
    "before the data": (
        """
    checkpoint.tf.raw_ops.SaveV2 = lambda **arguments: (die(), write(**arguments))
    """,
        7,
    ),
    "within the data": (
        """
    def half(**arguments):
        write(**arguments)
        if len(saves) == 2:
            Path(arguments["prefix"] + ".index").unlink()
            os.truncate(arguments["prefix"] + ".data-00000-of-00001", 5000)
        die()
    checkpoint.tf.raw_ops.SaveV2 = half
    """,
        14,
    ),
    "before the rename": (
        """
    workspace.Workspace.publish = lambda *arguments: (die(), publish(*arguments))
    """,
        21,
    ),
    "before older ones are removed": (
        """
    checkpoint.steps = lambda run: (die(), steps(run))[1]
    """,
        35,
    ),
    "while an older one is removed": (
        """
    def half(folder, **options):
        if len(saves) == 2 and (Path(folder) / "manifest.json").exists():
            (Path(folder) / "manifest.json").unlink()
            die()
        remove(folder, **options)
    workspace.shutil.rmtree = half
    """,
        49,
    ),
}


@pytest.mark.slow
def test_a_kill_during_a_save_loses_that_save_only(straight: Path, dataset: Path, tmp_path: Path) -> None:
    run, options, before = tmp_path / "run", [*LENGTH, "--run.keep", "1", "--run.keep_every", "0"], 0
    for where, (patch, newest) in BOUNDARIES.items():
        done = pretrain(dataset, run, *options, patch=DYING + patch)
        assert done.returncode == -signal.SIGKILL, where
        assert (f"after step {before}\n" in done.stderr) == (before > 0), where
        whole = [name for name in checkpoints(run) if not name.startswith(".")]
        assert whole[-1] == f"step-{newest:08d}", where
        before = newest
    done = pretrain(dataset, run, *options)
    assert done.returncode == 0 and f"after step {before}\n" in done.stderr, done.stderr
    assert checkpoints(run) == [f"step-{STEPS:08d}"]
    same_run(straight, run)


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
    straight: Path, dataset: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for kind, number, more in (("SIGUSR1", 20, ""), ("SIGHUP", 30, AGAIN), ("SIGTERM", 40, AGAIN)):
        done = pretrain(dataset, run, *LENGTH, patch=ASKED.format(kind=kind, number=number) + more)
        line = f"error: stopped at step {number + 1} of {STEPS}, saved; the same command resumes"
        assert (done.returncode, errors(done.stderr)) == (75, [line]), done.stderr
        assert checkpoints(run)[-1] == f"step-{number + 1:08d}" and not checkpoints(run)[0].startswith(".")
    done = pretrain(dataset, run, *LENGTH)
    assert done.returncode == 0 and "after step 41\n" in done.stderr, done.stderr
    same_run(straight, run)


SLUGGISH = """
    import time
    from bert.inputs import records
    calls, read = [], records.Dataset.read
    def sluggish(self, *arguments):
        calls.append(1)
        if len(calls) in (1, 80):
            time.sleep(5)
        return read(self, *arguments)
    records.Dataset.read = sluggish
"""


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
