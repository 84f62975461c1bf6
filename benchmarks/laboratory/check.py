"""Check what a plan needs TensorFlow for: data, scores. It is a process of its own, so that the laboratory stays small.

python -m benchmarks.laboratory.check PLAN
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks.laboratory import plan as plans
from bert.core import cli
from bert.core.errors import InputError, UserError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m benchmarks.laboratory.check`."""

    plan: cli.Positional[Path]
    """file of the plan"""


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.laboratory.check", description=__doc__)
    plan = plans.read(options.plan)
    from benchmarks.laboratory import checks

    parts = [(f"variant {run.name}", functools.partial(checks.check_run, run)) for run in plan.runs.values()]
    for name, score in plan.scores.items():
        for causal in sorted({run.config.model.causal for run in plan.runs.values()}):
            parts.append((f"score {name}", functools.partial(checks.check_score, score, causal)))
    for name, part in parts:
        try:
            part()
        except (UserError, OSError) as error:
            kind = type(error) if isinstance(error, UserError) else InputError
            raise kind(f"{options.plan}: {name}: {error}") from error


if __name__ == "__main__":
    cli.main(main)
