"""The commands that start the ranks on hosts that a user names: horovodrun and mpirun."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

import command_line
import place
import processes
import settings
import supervisor

OWN = ("-np", "-H", "--ssh-port", "--network-interfaces", "-x")
LAUNCHER = str(settings.SCRIPTS / "launcher.sh")
BIND, RANK, HERE = [LAUNCHER, "bind"], [LAUNCHER, "rank"], [LAUNCHER, "here"]

# Up to MOST_BY_GLOO ranks launch.sh waits long enough for all of them: at the start each asks for every other one, and
# ranks that share few cores come one after the other (docs/launch.md has figures).
GLOO_SECONDS = 30  # Horovod's default
GLOO_SECONDS_PER_RANK = 4
MOST_BY_GLOO = 64


def launch(words: Sequence[str]) -> NoReturn:
    """Run ranks on this host, or by horovodrun on those that -H names."""
    options = command_line.parse("launch.sh", OWN, words)
    ranks = command_line.number_of_ranks("launch.sh", options)
    wait_for_all(ranks)
    hosts, named = options.values.get("-H"), options.values.get("--network-interfaces")
    runner = ["horovodrun", "-np", str(ranks), "--disable-cache", "-H", hosts] if hosts else [*HERE, str(ranks)]
    if port := hosts and options.values.get("--ssh-port"):
        runner += ["--ssh-port", port]
    if named:
        os.environ[place.INTERFACES] = named  # for each rank, which takes one that its host has
        settings.set_defaults(NCCL_SOCKET_IFNAME=named)
        mine = place.own_interface()
        if not mine and not options.dry_run:
            command_line.fail("launch.sh", f"--network-interfaces {named}: {place.missing_interface()}")
        if hosts:
            runner += ["--network-interfaces", mine or named]  # horovodrun fails with names that are not on this host
    if hosts:
        # Gloo by name: a Horovod with MPI would start the ranks by mpirun, which these options are not for.
        runner.append("--gloo")
        if interfaces := os.environ.get("NCCL_SOCKET_IFNAME"):
            runner += ["env", f"NCCL_SOCKET_IFNAME={interfaces}"]  # over what horovodrun sets it to
    _start("launch.sh", options, runner, by_gloo=True)


def wait_for_all(ranks: int) -> None:
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
        require_mpi("mpirun.sh")
    _start("mpirun.sh", options, [*runner, "-x", "BERT_LAUNCH"], by_gloo=False)


def _start(script: str, options: command_line.Options, runner: Sequence[str], by_gloo: bool) -> NoReturn:
    """Run the ranks: `runner`, and behind it their command. Run a single rank on this host without `runner`."""
    ranks = command_line.number_of_ranks(script, options)
    number = supervisor.UNNUMBERED if runner[:2] == HERE else supervisor.HOROVODRUN
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
    supervisor.supervise(ranks, command, extra, by_gloo, number)


def require_mpi(script: str) -> None:
    """Refuse a Horovod in the virtual environment without MPI: each of its ranks would run as the only one."""
    for library in settings.venv().glob("lib/python3*/site-packages/horovod/tensorflow/mpi_lib*.so"):
        if "libmpi" not in subprocess.run(["ldd", library], stdout=subprocess.PIPE, text=True).stdout:
            command_line.fail(script, f"the Horovod in {settings.venv()} has no MPI")
