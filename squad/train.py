"""Fine-tune BERT to find the answer to a question in a passage.

    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint RUN [--section.field VALUE ...]
    python -m squad.train RECIPE --data.train_file TRAIN.json --init.checkpoint none --data.vocab vocab.txt
    python -m squad.train --config FILE [--section.field VALUE ...]

RECIPE is a function of squad/recipes.py. RUN is the directory of a pretraining run, an import, or an earlier
fine-tuning; none starts from random weights. If RUN has no head for questions, this is reported, and the head is
initialised randomly. The same command resumes a stopped run. squad.predict needs only the run directory. FILE, .yaml or
.json or config.json of a run, has the recipe and flags; flags of the command override it. Names of other programs, such
as transformers' --num_train_epochs, are taken for the same settings (docs/training.md).
"""

from collections.abc import Collection
from pathlib import Path

from bert.core import cli, config_file, unused_flags
from bert.core.errors import UsageError
from squad.config import SquadConfig
from squad.recipes import RECIPES

PROG = "python -m squad.train"


def run(recipe: str, config: SquadConfig, flagged: Collection[str] | None = None) -> Path:
    """Train a recipe with a configuration; return the run directory.

    flagged: fields of the model that are given; None: the fields that differ from the recipe. Raise as `fine_tune`
    does, and UsageError without `data.train_file`.
    """
    if config.data.train_file is None:
        raise UsageError("no questions: give --data.train_file, a SQuAD training set")
    from squad.training import prepare
    from tasks.training import fine_tune

    longest = ("windows.max_seq_length", config.windows.max_seq_length)
    if flagged is None:
        flagged = cli.changed(RECIPES[recipe]().model, config.model)
    return fine_tune("squad", recipe, config, flagged, vocab=config.data.vocab, longest=longest, prepare=prepare)


def main(argv: list[str]) -> None:
    """Run the command."""
    given = config_file.given(argv, SquadConfig, prog=PROG)
    with given.named():
        recipe, config = cli.choose(given.words, RECIPES, prog=PROG, description=__doc__)
        unused_flags.check(config, given.flags(given.words))
    run(recipe, config, given.model_flags(given.words))


if __name__ == "__main__":
    cli.main(main, resumes=True)
