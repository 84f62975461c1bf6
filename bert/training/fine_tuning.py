"""What fine-tuning runs of every task have in common: where their weights come from, and what is derived for a run."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bert.config import FineTuneConfig, ModelConfig
from bert.errors import UsageError, UserError
from bert.inputs import vocabulary
from bert.training import checkpoint, resume
from bert.training.distributed import Communicator

C = TypeVar("C", bound=FineTuneConfig)
T = TypeVar("T")


def sources(config: FineTuneConfig, recipe: FineTuneConfig, vocab: Path | None) -> tuple[Path, ModelConfig]:
    """Return the vocabulary and the architecture: those of the checkpoint, or with random weights of the command.

    vocab: the vocabulary of the command, if it gives one. Raise UsageError if the command does not say where the
    weights come from, or gives an architecture beside a checkpoint.
    """
    if config.init.checkpoint is None:
        raise UsageError("no weights: give --init.checkpoint, a run directory, or none for random weights")
    start_from = config.init.source
    if start_from is None:
        if vocab is None:
            raise UsageError("random weights come without a vocabulary; give --data.vocab")
        return vocab, config.model
    if config.model != recipe.model:
        raise UsageError(f"model.* has no effect: the architecture is that of {start_from}; leave it out")
    checkpoint.check_description(start_from)
    model = ModelConfig.load(start_from / "bert_config.json")
    model = dataclasses.replace(model, fused_attention=False)  # a choice of that run
    return vocab or vocabulary.path_in(start_from), model


def resolve(config: C, directory: Path, model: ModelConfig, samples: int, comm: Communicator) -> C:
    """Return the configuration with everything derived filled in.

    directory: of the run, if the command gives none. samples: number of training samples, which gives the length of
    the run.
    """
    batch = config.batch.divided(comm.replicas.size)
    steps = math.ceil(config.length.epochs * samples / batch.total)
    run = resume.place(config.run, directory, steps=steps)
    if config.length.evaluations:
        every = max(1, round(samples / batch.total / config.length.evaluations))
        run = dataclasses.replace(run, evaluate_every=every)
    warmup = config.optimizer.warmup_steps or int(config.length.warmup * run.steps)
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=warmup)
    precision = config.precision.resolved(comm.device.is_gpu, comm.device.has_bfloat16)
    return dataclasses.replace(config, model=model, run=run, optimizer=optimizer, precision=precision, batch=batch)


def on_rank_zero(make: Callable[[], T], comm: Communicator) -> T:
    """Call `make` on rank 0 and return its result on every rank; if it fails, every rank raises its error."""
    result: T | Exception | None = None
    if comm.rank == 0:
        try:
            result = make()
        except (UserError, OSError) as error:
            result = error
    result = comm.broadcast_object(result)
    if isinstance(result, Exception):
        raise result
    assert result is not None
    return result
