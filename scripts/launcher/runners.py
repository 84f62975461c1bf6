"""The commands that start the ranks: horovodrun, mpirun, srun, and sbatch for both phases of a recipe."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import command_line
import processes
import settings
import supervisor

OWN = ("-np", "-H", "--ssh-port", "--network-interfaces", "-x")
LAUNCHER = str(settings.SCRIPTS / "launcher.sh")
BIND, RANK = [LAUNCHER, "bind"], [LAUNCHER, "rank"]
PHASES = "slurm_phases.sh"

# Up to MOST_BY_GLOO ranks launch.sh waits long enough for all of them: at the start each asks for every other one, and
# ranks that share few cores come one after the other (docs/launch.md has figures).
GLOO_SECONDS = 30  # Horovod's default
GLOO_SECONDS_PER_RANK = 4
MOST_BY_GLOO = 64


def launch(words: Sequence[str]) -> NoReturn:
    """Run ranks by horovodrun."""
    options = command_line.parse("launch.sh", OWN, words)
    _wait_for_all(command_line.number_of_ranks("launch.sh", options))
    runner = ["horovodrun", "-np", options.values.get("-np", ""), "--disable-cache"]
    for flag in ("-H", "--ssh-port", "--network-interfaces"):
        if value := options.values.get(flag):
            runner += [flag, value]
    # Gloo by name: a Horovod with MPI would start the ranks by mpirun, which these options are not for.
    runner.append("--gloo")
    if interfaces := os.environ.get("NCCL_SOCKET_IFNAME"):
        runner += ["env", f"NCCL_SOCKET_IFNAME={interfaces}"]  # over what horovodrun sets it to
    _start("launch.sh", options, runner)


def _wait_for_all(ranks: int) -> None:
    """Have Gloo wait for that many ranks, unless the user says how long; warn where MPI is the way."""
    if (seconds := GLOO_SECONDS_PER_RANK * min(ranks, MOST_BY_GLOO)) > GLOO_SECONDS:
        settings.set_defaults(HOROVOD_GLOO_TIMEOUT_SECONDS=str(seconds))
    if ranks > MOST_BY_GLOO:
        print(
            f"warning: {ranks} ranks may not find each other in time by Gloo ; from {MOST_BY_GLOO + 1} ranks on use "
            "scripts/mpirun.sh or scripts/slurm.sh",
            file=sys.stderr,
        )


def mpirun(words: Sequence[str]) -> NoReturn:
    """Run ranks by Open MPI's mpirun, with the command that Horovod documents (docs/mpi.rst)."""
    options = command_line.parse("mpirun.sh", OWN, words)
    runner = ["mpirun", "--allow-run-as-root", "--tag-output", "-np", options.values.get("-np", "")]
    if hosts := options.values.get("-H"):
        runner += ["-H", hosts]
    # Open MPI binds each rank to one core unless told not to. NCCL moves the gradients, TCP everything else.
    runner += ["--bind-to", "none", "--map-by", "slot", "--mca", "pml", "ob1", "--mca", "btl", "^openib"]
    if port := options.values.get("--ssh-port"):
        runner += ["--mca", "plm_rsh_args", f"-p {port}"]
    if interfaces := options.values.get("--network-interfaces"):
        runner += ["--mca", "btl_tcp_if_include", interfaces]
        settings.set_defaults(NCCL_SOCKET_IFNAME=interfaces)
    for name in sorted({*settings.passed_on(), *command_line.passed_names("mpirun.sh", options)} - {"BERT_LAUNCH"}):
        runner += ["-x", name]
    if not options.dry_run:
        _require_mpi("mpirun.sh")
    _start("mpirun.sh", options, [*runner, "-x", "BERT_LAUNCH"])


def _start(script: str, options: command_line.Options, runner: Sequence[str]) -> NoReturn:
    """Run the ranks by the command that takes theirs behind it; a single one on this host without it."""
    ranks = command_line.number_of_ranks(script, options)
    extra = command_line.passed_names(script, options)
    alone = ranks == 1 and not options.values.get("-H")
    command = [*([] if alone else runner), *(BIND if options.bind else []), *([] if alone else RANK), *options.command]
    if alone and not options.bind:
        settings.limit_threads(settings.cores_per_rank(1))
    if options.dry_run:
        command_line.show(command)
        sys.exit()
    if not shutil.which(command[0]):
        command_line.fail(script, f"no {command[0]} here: make setup installs horovodrun, and an MPI brings mpirun")
    if alone:
        processes.replace(command)
    supervisor.supervise(ranks, command, extra)


def _require_mpi(script: str) -> None:
    """Refuse a Horovod in the virtual environment without MPI: each of its ranks would run as the only one."""
    for library in settings.venv().glob("lib/python3*/site-packages/horovod/tensorflow/mpi_lib*.so"):
        if "libmpi" not in subprocess.run(["ldd", library], stdout=subprocess.PIPE, text=True).stdout:
            command_line.fail(script, f"the Horovod in {settings.venv()} has no MPI")


def slurm(words: Sequence[str]) -> NoReturn:
    """Run the command in every task of this SLURM job; put the job back into the queue if it was stopped."""
    options = command_line.parse("slurm.sh", (), words)
    here = os.getcwd()
    # Ranks that have stopped wait for the one that saves; if one dies, the others are ended after five minutes.
    run = ["srun", f"--mpi={os.environ.get('MPI') or 'pmix'}", "--kill-on-bad-exit=0", "--wait=300"]
    run.append(f"--cpu-bind={'none' if options.bind else 'cores'}")
    if image := os.environ.get("CONTAINER"):
        more = f",{os.environ['MOUNTS']}" if os.environ.get("MOUNTS") else ""
        run += [f"--container-image={image}", f"--container-mounts={here}:{here}{more}", f"--container-workdir={here}"]
        if ours := sorted(setting.variable for setting in settings.SETTINGS.values() if setting.variable in os.environ):
            run.append(f"--container-env={','.join(ours)}")  # they override what the image sets
    run += [*(BIND if options.bind else []), *options.command]
    if options.dry_run:
        command_line.show(run)
        sys.exit()
    if not image:
        _require_mpi("slurm.sh")
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for srun
    status = processes.status_of(processes.start(run))
    if status == processes.STOPPED and (job := os.environ.get("SLURM_JOB_ID")):
        print(f"job {job} was stopped and saved: back into the queue", file=sys.stderr)
        subprocess.run(["scontrol", "requeue", job], check=False)
    sys.exit(status)


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
    if re.search("_phase[12]$", recipe):
        command_line.fail(PHASES, f"{recipe} is one phase; both are {recipe[:-7]}")
    os.chdir(settings.SCRIPTS.parent)
    work = Path(os.environ.get("BERT_WORKDIR") or "workdir")
    records, training = _training_words(rest, work)

    def submit(phase: int, *dependency: str) -> str | None:
        """Submit a phase, or show it; return the number of its job, or None if sbatch refuses it."""
        name = f"{recipe}_phase{phase}"
        start = [] if phase == 1 else ["--init.checkpoint", str(work / f"pretrain/{recipe}_phase1")]
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


def _training_words(words: Sequence[str], work: Path) -> tuple[dict[str, str], list[str]]:
    """Return the folder of each phase's records, and the flags of both trainings."""
    records = {"--data1": str(work / "tfrecords/seq128"), "--data2": str(work / "tfrecords/seq512")}
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
