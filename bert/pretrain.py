"""Pretrain BERT: masked language model and, if the data have it, next-sentence or sentence-order prediction.

The recipes gpt2_* pretrain a causal model, as GPT-2 is: each token is predicted from those before it.

    python -m bert.pretrain RECIPE --data.train DIR... [--init.checkpoint RUN] [--section.field VALUE ...]
    python -m bert.pretrain --config FILE [--section.field VALUE ...]
    scripts/launch.sh -np N -- python -m bert.pretrain RECIPE ...

RECIPE is a name of bert/recipes.py: of a recipe, whose phases run one after the other, or of one phase. Of several
phases, --data.train has a folder for each, --run.directory RUN stands for RUN/phase1 and RUN/phase2, and
--phase2.section.field is a flag of one phase; other flags are for all. RUN is the run directory of an earlier phase, or
an import, which gives the architecture; heads that an import lacks are reported and initialised randomly. The same
command resumes a stopped run. FILE, .yaml or .json or config.json of a run, has the recipe and flags; flags of the
command override it. Names of other programs, such as transformers' --learning_rate, are taken for the same settings
(docs/training.md).
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bert import recipes
from bert.core import cli, paths, ranges, rows
from bert.core.config import PretrainConfig
from bert.core.errors import InputError, UsageError
from bert.core.progress import is_first_rank
from bert.core.ranges import Range
from bert.recipes import Phase
from bert.text import vocabulary

PROG = "python -m bert.pretrain"
FORM = "bert.convert.run:check_model"  # raises InputError for a model that other programs have no form for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command beside the recipe's flags."""

    print: Annotated[int, Range(1, 1_000_000)] | None = None
    """print what the run would be on this number of ranks (tokens, micro-batches, memory, traffic), and do not train"""
    smoke: cli.Switch = False
    """train a miniature of the recipe, in a run directory of its own, to check that it runs"""

    def __post_init__(self) -> None:
        ranges.check(self)


def placed(phases: Sequence[Phase], ending: str) -> list[Phase]:
    """Fill in the phases' run directories. A phase after the first gets the run before it for its initial weights.

    ending: appended to the names of default directories. Raise UsageError if a phase has no data.
    """
    in_folders: list[Phase] = []
    for phase in phases:
        config = phase.config
        run = config.run.placed(paths.workdir() / "pretrain" / f"{phase.name}{ending}", steps=0)
        init = config.init
        if in_folders:
            init = dataclasses.replace(init, checkpoint=in_folders[-1].config.run.path)
        if config.data.train is None:
            stage = "tokens" if config.model.causal else "tfrecords"
            several = f", one for each phase of {len(phases)}" if len(phases) > 1 else ""
            raise UsageError(f"no data: give --data.train, a folder made by python -m data.{stage}{several}")
        in_folders.append(dataclasses.replace(phase, config=dataclasses.replace(config, run=run, init=init)))
    return in_folders


def run(recipe: str, config: PretrainConfig, flagged: frozenset[str] | None = None) -> Path:
    """Train a recipe of one phase with a configuration; return the run directory.

    flagged: fields of the model that the user gives; None: those that differ from the recipe. Raise as the command
    does.
    """
    (part,) = recipes.RECIPES[recipe].phases
    if flagged is None:
        flagged = cli.changed(part.config.model, config.model)
    phases = placed([dataclasses.replace(part, config=config, flagged=flagged)], "")
    _start(phases, "")
    return phases[0].config.run.path


def _start(phases: Sequence[Phase], recorded: str) -> None:
    first = phases[0]
    if first.config.init.checkpoint is None:
        raise UsageError(f"{first.name} needs trained weights; give --init.checkpoint RUN, or none for random weights")
    from bert import pretraining

    if first.config.init.source is None:
        _tell_form(phases[-1])
    pretraining.start(phases, recorded)


def _tell_form(phase: Phase) -> None:
    """Warn, on one rank, if other programs have no format for the model that a phase begins."""
    vocab = vocabulary.path_in(phase.config.data.train or Path())
    if not is_first_rank() or not vocab.exists():  # such as one in an object store
        return
    try:
        rows.load(FORM)(phase.config.model, vocab, phase.config.run.path / "bert_config.json")
    except InputError as error:
        print(f"note: the model cannot go out to Hugging Face's format: {error}", file=sys.stderr)


def main(argv: list[str]) -> None:
    """Run the command."""
    options, argv, more_help = cli.extract(Options, argv, prog=PROG)
    small, description = options.smoke, f"{__doc__}\n{more_help}\n"
    phases = placed(recipes.choose(argv, prog=PROG, description=description, small=small), "_smoke" if small else "")
    if options.print is not None:
        from bert import pretraining

        print(pretraining.describe_all(phases, options.print))
        return
    _start(phases, " --smoke" if small else "")


if __name__ == "__main__":
    cli.main(main, resumes=True)
