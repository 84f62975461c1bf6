"""What a plan needs TensorFlow for is checked here: data, initial weights, scores."""

import dataclasses
from pathlib import Path

from benchmarks.laboratory import plan as plans
from benchmarks.laboratory.plan import Run, Score
from bert import evaluate, masked_evaluation, pretrain, pretraining
from bert.core import cli
from bert.core.errors import InputError, UsageError
from bert.hardware import devices
from bert.text import records
from extensions.minimal_pairs import minimal_pairs, reading
from tasks import datasets
from tasks.recipes import RECIPES


def check_run(run: Run) -> None:
    """Raise the error that the data or the initial weights of a run would cause."""
    directory = dataclasses.replace(run.config.run, directory=Path("checked"))
    phase = dataclasses.replace(run.phase, config=dataclasses.replace(run.config, run=directory))
    (phase,) = pretraining.with_architectures(pretrain.placed([phase], ""))
    config = phase.config
    if config.init.checkpoint is None:
        raise UsageError(f"{phase.name} needs trained weights; give --init.checkpoint")
    assert config.data.train is not None, "`placed` checks it"
    data, heldout = pretraining.datasets(config.data.train, config)
    resolved = pretraining.resolve(config, data, devices.choose(config.run.device), 1)
    resolved.batch.accumulation(1)
    if heldout is None or not config.run.evaluate_every:
        raise InputError(
            f"{config.data.train}: nothing is held out, or run.evaluate_every is 0; runs are compared by it"
        )


def check_score(score: Score, causal: bool) -> None:
    """Raise the error that the words of a score, or the files that it reads, would cause."""
    words = plans.split(score.flags)
    if score.command == "minimal_pairs":
        options = cli.parse(minimal_pairs.Options, ["RUN", *words], prog="bert.minimal_pairs", description=None)
        if options.output or options.picture:
            raise UsageError("--output and --picture are for the laboratory to give; leave them out")
        if options.score != "auto" and (options.score == "causal") != causal:
            raise UsageError(f"--score {options.score} is not for {'causal' if causal else 'masked'} language models")
        reading.read(options.data)
        return
    if score.command == "evaluate":
        evaluated = cli.parse(evaluate.Options, ["RUN", *words], prog="bert.evaluate", description=None)
        if evaluated.data is None:
            raise UsageError("give --data, the folder of the samples")
        samples = records.samples(evaluated.data, evaluated.split, 0)
        masked_evaluation.check_shares(evaluated.mask_shares, samples, evaluated.data)
        return
    _, config = cli.choose(words, RECIPES, prog="tasks.train", description=None)
    for path in datasets.sources(config.data).values():
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
