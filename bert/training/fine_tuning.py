"""What fine-tuning runs of every task have in common: where their weights come from, and what is derived for a run."""

import dataclasses
import math
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from bert.core import stores
from bert.core.config import KERNEL_SETTINGS, RUN_SETTINGS, FineTuneConfig, ModelConfig
from bert.core.errors import UsageError
from bert.text import vocabulary
from bert.training import checkpoint
from bert.training.communicator import Communicator

C = TypeVar("C", bound=FineTuneConfig)


def sources(config: FineTuneConfig, flagged: Collection[str], vocab: Path | None) -> tuple[Path, ModelConfig]:
    """Return vocabulary and architecture: the checkpoint's or, with random weights, those that the command gives.

    flagged: fields of the model that the command gives. vocab: the command's vocabulary, if any. Raise UsageError if
    the command does not name the weights, or if it contradicts their architecture.
    """
    if config.init.checkpoint is None:
        raise UsageError("no weights: give --init.checkpoint, a run directory, or none for random weights")
    start_from = config.init.source
    if start_from is None:
        if vocab is None:
            raise UsageError("random weights come without a vocabulary; give --data.vocab")
        return vocab, config.model
    stores.fetch_run(start_from)
    checkpoint.check_description(start_from)
    own = RUN_SETTINGS & {*flagged} | KERNEL_SETTINGS  # which were choices of that run
    return vocab or vocabulary.path_in(start_from), config.model.of_weights(
        start_from, flagged, own, config.init.layers
    )


def resolve(config: C, directory: Path, model: ModelConfig, samples: int, comm: Communicator) -> C:
    """Return the configuration with all derived values filled in.

    directory: of the run, if the command gives none. samples: number of training samples, from which the number of
    updates follows.
    """
    batch = config.batch.divided(comm.replicas.size)
    steps = math.ceil(config.length.epochs * samples / batch.total)
    run = config.run.placed(directory, steps)
    if config.length.evaluations:
        every = max(1, round(samples / batch.total / config.length.evaluations))
        run = dataclasses.replace(run, evaluate_every=every)
    warmup = config.optimizer.warmup_steps or int(config.length.warmup * run.steps)
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=warmup)
    precision = config.precision.resolved(comm.device.is_gpu, comm.device.has_bfloat16)
    return dataclasses.replace(config, model=model, run=run, optimizer=optimizer, precision=precision, batch=batch)
