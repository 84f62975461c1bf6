"""Train the runs of a plan, score them at log-spaced checkpoints, and write one page with tables and curves.

    python -m benchmarks.laboratory PLAN.toml [--output FOLDER] [--check]

The plan (docs/laboratory.md) names variants of a recipe of bert.pretrain, seeds, and scores. It is checked wholly
before anything is trained. One command runs at a time. All variants of the first seed reach a checkpoint before one of
them goes on, then come those of the next seed; the page is written anew after each checkpoint. After SIGTERM, Ctrl-C or
a kill the same command goes on; what is complete is not repeated.
"""

import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.laboratory import page
from benchmarks.laboratory import plan as plans
from benchmarks.laboratory.children import Children
from benchmarks.laboratory.trials import Laboratory
from bert.core import cli, files, paths
from bert.core.errors import Stopped, UserError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m benchmarks.laboratory`."""

    plan: cli.Positional[Path]
    """TOML file"""
    output: Path | None = None
    """folder for runs, scores and page; default: in the work folder, named after the plan"""
    check: cli.Switch = False
    """check the plan, and train nothing"""


def tell(line: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)


def work(laboratory: Laboratory, command: str) -> dict[str, str]:
    """Do what is left, and write the page; return the errors of runs that failed, by their names."""
    failures: dict[str, str] = {}
    try:
        for trial, step in laboratory.left():
            if trial.name in failures:
                continue
            try:
                laboratory.advance(trial, step)
            except Stopped:
                raise
            except UserError as error:  # the other runs go on
                failures[trial.name] = str(error)
                tell(f"failed: {error}")
                continue
            (leg,) = filter(None, [trial.leg(step)])
            figures = page.measures(trial, leg, laboratory.plan)
            shown = ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
            tell(f"{trial.name}: update {step:,} of {trial.run.config.run.steps:,}: {shown}")
            page.write(laboratory.plan, laboratory.output, command, failures)
    finally:
        page.write(laboratory.plan, laboratory.output, command, failures)
    return failures


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog=plans.PROG, description=__doc__)
    plan, children = plans.read(options.plan), Children()
    output = options.output or paths.workdir() / "laboratory" / options.plan.stem
    children.listen()
    with files.exclusive(output), files.room(output):
        laboratory = Laboratory(plan=plan, output=output, children=children)
        if options.check or laboratory.left():
            words = [sys.executable, "-m", "benchmarks.laboratory.check", str(options.plan)]
            if code := children.run(words):
                children.check()
                raise SystemExit(code)  # it has said why
        if options.check:
            return
        failures = work(laboratory, f"{plans.PROG} {shlex.join(argv)}")
    print(output / page.NAME)
    if failures:
        raise UserError(f"{len(failures)} runs failed: {next(iter(failures.values()))}")


if __name__ == "__main__":
    cli.main(main)
