"""Fine-tune BERT for classification, several labels, regression, multiple choice or tagging.

    python -m tasks.train RECIPE --data.folder FOLDER --init.checkpoint RUN [--section.field VALUE ...]
    python -m tasks.train classify --data.train TRAIN.tsv --data.dev DEV.tsv --data.text sentence --data.label label ...

RECIPE is a function of tasks/recipes.py. FOLDER is the data set of that name as it is distributed. The recipes
classify, multilabel, regress, choose and tag take your own files. RUN is the directory of a pretraining run, an import,
or an earlier fine-tuning, whose head is taken if it has the same labels. The development set, if there is one, is
scored during training, and the best checkpoint is kept; of multilabel, thresholds are chosen at the end
(tasks.thresholds). The same command resumes a stopped run. tasks.predict and tasks.evaluate need only the run
directory.
"""

from collections.abc import Collection
from pathlib import Path

from bert.core import cli
from tasks.config import TaskConfig
from tasks.recipes import RECIPES


def run(recipe: str, config: TaskConfig, flagged: Collection[str] | None = None) -> Path:
    """Train a recipe with a configuration; return the run directory.

    flagged: fields of the model that are given; None: those in which it differs from the recipe. Raise as `fine_tune`.
    """
    from tasks import datasets
    from tasks.training import fine_tune, prepare

    datasets.sources(config.data)  # a missing file is an error before anything is built
    longest = ("data.length", config.data.length)
    if flagged is None:
        flagged = cli.changed(RECIPES[recipe]().model, config.model)
    return fine_tune("tasks", recipe, config, flagged, vocab=config.data.vocab, longest=longest, prepare=prepare)


def main(argv: list[str]) -> None:
    """Run the command."""
    recipe, config = cli.choose(argv, RECIPES, prog="python -m tasks.train", description=__doc__)
    run(recipe, config, cli.flags_in(argv, "model"))


if __name__ == "__main__":
    cli.main(main, resumes=True)
