"""Flags of a training command that have no effect beside its other settings: they are refused, not ignored.

A recipe may have such a setting, because another flag can make it count. A flag that the command gives was meant.
"""

from collections.abc import Collection, Iterator

from bert.core.config import FineTuneConfig, ModelConfig, TrainConfig, Weights, flatten, may_change
from bert.core.errors import UsageError


def check(config: TrainConfig, flags: Collection[str]) -> None:
    """Raise UsageError for the first of the flags that has no effect in a configuration.

    flags: names of the flags that the command gives, such as `batch.total`. In a run that has begun, check only flags
    that may change. A command with most settings written out, such as a model card's, repeats a run; do not check it.
    """
    if len(flags) > len(flatten(config)) / 2:
        return
    directory = config.run.directory
    if directory is not None and (directory / "config.json").exists():
        flags = {*flags} & (may_change(config) | {"optimizer.warmup_steps"})  # the run keeps others
    for flag, reason in _ignored(config):
        if flag in flags:
            raise UsageError(f"--{flag} {reason}")


def _ignored(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Yield each flag that has no effect, with the reason and the remedy."""
    batch, run = config.batch, config.run
    if batch.per_device > batch.max_per_device:
        yield (
            "batch.max_per_device",
            f"{batch.max_per_device} has no effect beside batch.per_device {batch.per_device}; give "
            "--batch.per_device 0 as well",
        )
    if run.keep_every % run.save_every:
        yield (
            "run.keep_every",
            f"{run.keep_every} is not a multiple of run.save_every {run.save_every}, so most of these updates have no "
            "checkpoint to keep; give a multiple, or another --run.save_every",
        )
    if run.spike_factor == 0 and run.on_spike != "warn":
        yield "run.on_spike", f"{run.on_spike} has no effect with run.spike_factor 0, which detects none; leave it out"
    yield from _of_learning(config)
    yield from config.distill.ignored()
    if config.init.checkpoint is Weights.RANDOM:  # else the weights give the architecture
        yield from _of_architecture(config.model)
    elif config.init.source is not None:
        yield "model.position_initializer", "has no effect: --init.checkpoint RUN has them; leave it out"
    if isinstance(config, FineTuneConfig):
        yield from _of_fine_tuning(config)


def _of_learning(config: TrainConfig) -> Iterator[tuple[str, str]]:
    optimizer = config.optimizer
    if optimizer.clip_norm > (largest := optimizer.kind.largest_norm):
        yield (
            "optimizer.clip_norm",
            f"{optimizer.clip_norm:g} has no effect with optimizer.name {optimizer.name}, which clips to a norm of "
            f"{largest:g} at most; leave it out",
        )
    if optimizer.schedule == "stable" and not optimizer.decay_start:
        yield "optimizer.decay_power", "has no effect without optimizer.decay_start: the rate does not fall; give both"
    if config.init.frozen_encoder:
        yield "optimizer.layer_decay", "has no effect with init.frozen_encoder: heads have the full rate; leave it out"


def _of_architecture(model: ModelConfig) -> Iterator[tuple[str, str]]:
    if model.positions != "rotary":
        for name in ("rotary_base", "local_rotary_base"):
            yield f"model.{name}", "has no effect without model.positions rotary; leave it out"
    if not model.local_window:
        for name in ("global_every", "local_rotary_base"):
            yield f"model.{name}", "has no effect without model.local_window; leave it out"


def _of_fine_tuning(config: FineTuneConfig) -> Iterator[tuple[str, str]]:
    length = config.length
    yield from config.lora.ignored()
    if length.evaluations:
        yield (
            "run.evaluate_every",
            f"has no effect beside length.evaluations {length.evaluations:g}, evaluations in an epoch; give "
            "--length.evaluations 0 as well",
        )
    has_share = length.warmup > 0 and (config.run.steps == 0 or int(length.warmup * config.run.steps) > 0)
    if has_share and not config.optimizer.warmup_steps:
        yield (
            "optimizer.warmup_steps",
            f"0 leaves the warm-up to length.warmup {length.warmup:g}, a share of the updates; give --length.warmup 0",
        )
    yield "run.evaluate_sequences", "is for pretraining: a development set is scored as a whole; leave it out"
