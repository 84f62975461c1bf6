"""Fine-tune BERT for classification, several labels, regression, multiple choice, tagging or embeddings.

    python -m tasks.train RECIPE --data.folder FOLDER --init.checkpoint RUN [--section.field VALUE ...]
    python -m tasks.train classify --data.train TRAIN.tsv --data.dev DEV.tsv --data.text sentence --data.label label ...
    python -m tasks.train --config FILE [--section.field VALUE ...]

RECIPE is a function of tasks/recipes.py. FOLDER is the data set of that name as it is distributed. The recipes
classify, multilabel, regress, choose, tag, embed, simcse_* and tsdae take your own files. RUN is the directory of a
pretraining run, an import, or an earlier fine-tuning, whose head is taken if it has the same labels. The development
set, if there is one, is scored during training, and the best checkpoint is kept; of multilabel, thresholds are chosen
at the end (tasks.thresholds). The same command resumes a stopped run. tasks.predict and tasks.evaluate need only the
run directory. FILE, .yaml or .json or config.json of a run, has the recipe and flags; flags of the command override it.
Names of other programs, such as transformers' --num_train_epochs, are taken for the same settings (docs/training.md).
"""

from collections.abc import Collection
from pathlib import Path

from bert.core import cli, config_file, unused_flags
from tasks.config import TaskConfig
from tasks.recipes import RECIPES

PROG = "python -m tasks.train"


def run(recipe: str, config: TaskConfig, flagged: Collection[str] | None = None) -> Path:
    """Train a recipe with a configuration; return the run directory.

    flagged: fields of the model that are given; None: the fields that differ from the recipe. Raise as `fine_tune`.
    """
    from tasks import datasets, preparing, training

    datasets.check_read(config.data)
    datasets.sources(config.data)  # a missing file is an error before anything is built
    longest = ("data.length", config.data.length)
    if flagged is None:
        flagged = cli.changed(RECIPES[recipe]().model, config.model)
    prepare = preparing.OTHERS.get(config.data.task, preparing.prepare)
    return training.fine_tune(
        "tasks", recipe, config, flagged, vocab=config.data.vocab, longest=longest, prepare=prepare
    )


def main(argv: list[str]) -> None:
    """Run the command."""
    given = config_file.given(argv, TaskConfig, prog=PROG)
    with given.named():
        recipe, config = cli.choose(given.words, RECIPES, prog=PROG, description=__doc__)
        unused_flags.check(config, given.flags(given.words))
    run(recipe, config, given.model_flags(given.words))


if __name__ == "__main__":
    cli.main(main, resumes=True)
