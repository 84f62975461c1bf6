"""Fine-tune BERT for classification, regression, multiple choice or tagging.

    python -m tasks.train RECIPE --data.folder FOLDER --init.checkpoint RUN [--section.field VALUE ...]
    python -m tasks.train classify --data.train TRAIN.tsv --data.dev DEV.tsv --data.text sentence --data.label label ...

RECIPE is a function of tasks/recipes.py. FOLDER is the data set of that name as it is distributed. The recipes
classify, regress, choose and tag take your own files. RUN is the directory of a pretraining run, an import, or an
earlier fine-tuning, whose head is taken if it has the same labels. The development set, if there is one, is scored
during training, and the best checkpoint is kept. The same command resumes a stopped run. tasks.predict and
tasks.evaluate need only the run directory.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert import cli, paths
from bert.config import BatchConfig, ModelConfig
from bert.errors import UsageError
from bert.inputs import records
from bert.inputs.sampler import Batch
from bert.inputs.tokenization import tokenizer_for
from bert.model import losses
from bert.model.encoder import Mode
from bert.model.parts import WHOLE, Parts
from bert.training import fine_tuning, loop, prediction, preflight
from bert.training.distributed import connect
from bert.training.step import Step
from tasks import datasets, features, inputs
from tasks.datasets import Kind
from tasks.model import facts, trained_labels
from tasks.recipes import RECIPES

CHUNK = 4096  # records whose labels are read at once


class Objective:
    """The objective of a task: the loss of its kind, as a mean over the weights of a batch."""

    def __init__(self, kind: Kind, config: ModelConfig, seed: int, parts: Parts = WHOLE) -> None:
        self.kind, self.module = kind, kind.model(config, seed, parts)
        self.objectives: tuple[str, ...] = (kind.head,)
        self.counts_correct = not kind.labels.regression

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Return the sum of the weights."""
        return {self.kind.head: tf.reduce_sum(self.kind.weights(batch))}

    def measure(self, batch: Batch, mode: Mode) -> dict[str, losses.Measure]:
        """Return the summed loss and the number of right answers."""
        return {self.kind.head: self.kind.measure(self.module(batch, mode), batch)}

    def predict(self, batch: Batch, mode: Mode) -> dict[str, tf.Tensor]:
        """Return the logits."""
        return {"logits": self.module(batch, mode)}


class DevelopmentSet:
    """The scores on a development set; the first metric of the task tells which checkpoint is the best."""

    def __init__(self, kind: Kind, data: records.Dataset, batch: BatchConfig) -> None:
        self.kind, self.data, self.batch, self.measure = kind, data, batch, kind.metrics[0]
        self._gold: dict[str, np.ndarray] = {}

    def scores(self, step: Step, alive: Callable[[], None]) -> loop.Measures:
        """Return all metrics, as fractions."""
        logits = prediction.predict(step, self.data, self.batch, alive, by_position=self.kind.head == "tags")["logits"]
        return dict(self.kind.scores(logits, self._expected()).values)

    def _expected(self) -> dict[str, np.ndarray]:
        """Return the features that are not the model's input, of all records."""
        if not self._gold:
            indices = np.arange(len(self.data))
            parts = [self.data.read(indices[begin : begin + CHUNK]) for begin in range(0, len(indices), CHUNK)]
            names = [name for name in self.data.spec if name not in inputs.NAMES]
            self._gold = {name: np.concatenate([part[name].numpy() for part in parts]) for name in names}
        return self._gold


def main(argv: list[str]) -> None:
    """Run the command."""
    recipe, config = cli.choose(argv, RECIPES, prog="python -m tasks.train", description=__doc__)
    datasets.sources(config.data)  # a missing file is an error before anything is built
    vocab, model = fine_tuning.sources(config, RECIPES[recipe](), config.data.vocab)
    if config.data.length > model.max_position_embeddings:
        raise UsageError(
            f"data.length {config.data.length} is more than the model's {model.max_position_embeddings} positions; "
            "lower it"
        )
    comm = connect(config.run, config.parallel)
    folder = fine_tuning.on_rank_zero(
        lambda: features.build(
            config.data, tokenizer_for(vocab, model), vocab, paths.workdir(), trained_labels(config.init.source)
        ),
        comm,
    )
    data, kind = records.Dataset(folder, "train"), features.kind(config.data, folder)
    model = dataclasses.replace(model, vocab_size=data.description.vocab_size)
    run = fine_tuning.resolve(config, paths.workdir() / "tasks" / recipe, model, len(data), comm)
    loop.tell(run.batch.change(config.batch), comm)
    preflight.parts(model, run.run, comm)
    preflight.memory(model, run.parallel, comm)
    has_dev = data.manifest.count("dev") > 0
    loop.train(
        Objective(kind, model, run.run.seed, comm.parts),
        run,
        comm,
        data=data,
        heldout=DevelopmentSet(kind, records.Dataset(folder, "dev"), run.batch) if has_dev else None,
        vocab=vocab,
        start_from=run.init.source,
        new_heads=("pooler", kind.head),
        facts={"recipe": recipe} | facts(kind),
    )


if __name__ == "__main__":
    cli.main(main)
