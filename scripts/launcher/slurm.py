"""A training run as a job of SLURM: every task of it is a rank. Both phases of a recipe are two jobs."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import command_line
import processes
import runners
import settings
import supervisor

if TYPE_CHECKING:
    from bert.recipes import Phase

PHASES = "slurm_phases.sh"
FAILURES = 3  # in succession after which a job is not put back into the queue
KEPT_FAILURES = "slurm-{job}.failures"  # the file with their number, in the work folder


def run(words: Sequence[str]) -> NoReturn:
    """Run the command in every task of this job; put the job back into the queue if it was stopped or a rank died."""
    options = command_line.parse("slurm.sh", (), words)
    ranks = sum(settings.tasks_per_node(os.environ.get("SLURM_TASKS_PER_NODE", "1")))
    mpi = os.environ.get("MPI") or ("none" if ranks <= runners.MOST_BY_GLOO else "pmix")
    if mpi == "none":
        runners.wait_for_all(ranks)
    # The ranks report by separate lines, so each task's lines must stay whole. A rank that stopped on request ends
    # with 0 for srun (`processes.rank`); any other end of one ends all, because the others would wait for it.
    command = ["srun", f"--mpi={mpi}", "--label", "--kill-on-bad-exit=1"]
    command.append(f"--cpu-bind={'none' if options.bind else 'cores'}")
    if cores := os.environ.get("SLURM_CPUS_PER_TASK"):
        command.append(f"--cpus-per-task={cores}")  # from 22.05 on, srun does not take it from the job
    here = os.getcwd()
    image = os.environ.get("CONTAINER")
    if image:
        more = f",{os.environ['MOUNTS']}" if os.environ.get("MOUNTS") else ""
        inside = [f"--container-image={image}", f"--container-mounts={here}:{here}{more}"]
        command += [*inside, f"--container-workdir={here}"]
        ours = {setting.variable for setting in settings.SETTINGS.values()} & os.environ.keys()
        told = sorted({*ours, "BERT_LAUNCH", *([processes.RENDEZVOUS] if mpi == "none" else [])})
        command.append(f"--container-env={','.join(told)}")  # they override what the image sets
    command += [*(runners.BIND if options.bind else []), *runners.RANK, *options.command]
    if options.dry_run:
        command_line.show(command)
        sys.exit()
    if not image and mpi != "none":
        runners.require_mpi("slurm.sh")
    with supervisor.explain_if_killed():
        status = supervisor.Supervisor(ranks, os.environ, supervisor.SRUN).run(command, by_gloo=mpi == "none")
    _requeue(status)
    sys.stdout.flush()
    sys.exit(status)


def _requeue(status: int) -> None:
    """Put a job that was stopped back into the queue, or one that a rank's death ended, unless that happens too often.

    The number of deaths in succession is kept in the work folder, because a requeued job begins anew.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return
    note = Path(os.environ.get("BERT_WORKDIR") or "workdir") / KEPT_FAILURES.format(job=job)
    if status == processes.STOPPED:
        why = "was stopped and saved"
        note.unlink(missing_ok=True)
    elif status in processes.DOCUMENTED:
        note.unlink(missing_ok=True)
        return
    else:
        failures = 1 + (int(note.read_text()) if note.exists() else 0)
        if failures > FAILURES:
            note.unlink(missing_ok=True)
            print(f"error: job {job} failed {failures} times in succession ; its messages are above", file=sys.stderr)
            return
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(str(failures))
        why = f"failed with status {status}, {failures} of at most {FAILURES} times"
    print(f"job {job} {why}: back into the queue", file=sys.stderr, flush=True)
    subprocess.run(["scontrol", "requeue", job], check=False)


def phases(words: Sequence[str]) -> NoReturn:
    """Submit both phases of a recipe; phase 2 waits for phase 1 and starts from all its weights."""
    if words[:1] in (["-h"], ["--help"]):
        command_line.print_help(PHASES)
    if "--" not in words:
        command_line.fail(PHASES, "no -- between sbatch's options and the recipe")
    split = list(words).index("--")
    ours = words[split + 1 :]
    options = command_line.parse(PHASES, (), ours)
    flags = [word for word in ours[: len(ours) - len(options.command)] if word != "--dry-run"]
    recipe, *rest = options.command
    both = _phases_of(recipe)
    os.chdir(settings.SCRIPTS.parent)
    work = Path(os.environ.get("BERT_WORKDIR") or "workdir")
    records, training = _training_words(rest, [str(work / f"tfrecords/seq{phase.sequence}") for phase in both])

    def submit(phase: int, *dependency: str) -> str | None:
        """Submit a phase, or show it; return the number of its job, or None if sbatch refuses it."""
        name, after = both[phase - 1].name, both[phase - 1].after
        start = ["--init.checkpoint", str(work / "pretrain" / after)] if after else []
        command = ["sbatch", "--parsable", f"--job-name={name}", *words[:split], *dependency]
        command += ["scripts/slurm.sh", *flags, "python", "-m", "bert.pretrain", name]
        command += ["--data.train", records[f"--data{phase}"], "--run.directory", str(work / "pretrain" / name)]
        command += [*start, *training]
        if options.dry_run:
            command_line.show(command)
            return "JOB"
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            return None
        job = done.stdout.strip().split(";")[0]  # JOB;CLUSTER where there are several
        print(f"{name} is job {job}", flush=True)
        return job

    first = submit(1)
    if first is None:
        command_line.fail(PHASES, "phase 1 was not accepted; sbatch's message is above")
    if submit(2, f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes") is None:
        subprocess.run(["scancel", first], check=False)
        command_line.fail(PHASES, f"phase 2 was not accepted, so phase 1 (job {first}) is cancelled")
    sys.exit()


def _phases_of(recipe: str) -> "tuple[Phase, ...]":
    """Return the two phases of a recipe. This is all that the launchers take from the product."""
    sys.path.append(str(settings.SCRIPTS.parent))
    from bert.recipes import RECIPES

    found = RECIPES.get(recipe)
    if found is None:
        command_line.fail(PHASES, f"no recipe {recipe}; python -m bert.pretrain --help lists them")
    if found.part_of:
        command_line.fail(PHASES, f"{recipe} is one phase; both are {found.part_of}")
    if len(found.phases) != 2:
        command_line.fail(PHASES, f"{recipe} has one phase; give bert.pretrain {recipe} to scripts/slurm.sh")
    return found.phases


def _training_words(words: Sequence[str], folders: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the folder of each phase's records, and the flags of both trainings. folders: the default ones."""
    records = dict(zip(("--data1", "--data2"), folders, strict=True))
    training: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in records:
            if not rest:
                command_line.fail(PHASES, f"{word} needs a folder")
            records[word] = rest.pop(0)
        elif word.startswith(("--data.train", "--run.directory", "--init.checkpoint")):
            command_line.fail(PHASES, f"{word} differs between the phases and cannot be given for both")
        else:
            training.append(word)
    return records, training
