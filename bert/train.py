"""The one training loop: pretraining and every task run it.

A run directory holds `config.json` (the resolved configuration with versions), `metrics.jsonl`, `events/`,
`checkpoints/`, `bert_config.json` and `vocab.txt`. Giving the same command again resumes: sample order and dropout are
functions of the step, so the resumed run computes what the uninterrupted one would have.
"""

import contextlib
import dataclasses
import faulthandler
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from bert import batches, checkpoint, files, manifest, metrics, plan, preflight, schedule
from bert.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig, defaults, flatten
from bert.errors import IntegrityError, Stopped, UsageError
from bert.manifest import Manifest
from bert.model import variables
from bert.optim import Optimizer
from bert.records import FeatureSpec
from bert.step import Step, Task
from bert.world import World

# What may differ when a run is resumed: nothing that the weights depend on.
FREE = {"run.directory", "run.log_every", "run.save_every", "run.keep", "run.keep_every", "run.evaluate_every",
        "run.evaluate_sequences", "run.target_accuracy", "run.max_skipped", "run.peak_teraflops", "run.profile",
        "run.stall_seconds", "batch.per_device", "data.skip_bad", "model.recompute_activations"}  # fmt: skip


class Config(Protocol):
    """The sections that the loop reads; a task's configuration may have more."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def batch(self) -> BatchConfig: ...
    @property
    def optimizer(self) -> OptimizerConfig: ...
    @property
    def precision(self) -> PrecisionConfig: ...
    @property
    def run(self) -> RunConfig: ...


class Data(batches.Source, Protocol):
    """Samples, and what is known of them."""

    manifest: Manifest
    spec: FeatureSpec


def train(
    task: Task, config: Config, world: World, *,
    data: Data, heldout: Data | None, vocab: Path, start_from: Path | None, fresh: tuple[str, ...] = (),
) -> dict[str, float]:  # fmt: skip
    """Trains `task` to `config.run.steps`, resuming if the run directory has a checkpoint; returns the last evaluation.

    With nothing to resume, the first weights are those of the run directory `start_from`, but for variables whose name
    begins with one of `fresh`; or random ones. `vocab` is copied into the run directory. Raises Stopped after SIGTERM
    or SIGUSR1, with the state saved; UsageError if the directory belongs to a run with another configuration, or
    another process trains in it.
    """
    checkpoint.check_name(config.run.directory)
    preflight.apart(config.run.directory, data.manifest.path)
    with files.exclusive(config.run.directory) if world.rank == 0 else contextlib.nullcontext():
        return _train(task, config, world, data, heldout, vocab, start_from, fresh)


def _train(
    task: Task, config: Config, world: World, data: Data, heldout: Data | None, vocab: Path, start_from: Path | None,
    fresh: tuple[str, ...],
) -> dict[str, float]:  # fmt: skip
    run, weights = config.run, variables(task.module)
    optimizer = Optimizer(weights, config.optimizer)
    step = Step(task, optimizer, world, config.precision, run.seed)
    samples = batches.Batches(data, config.batch, world, run.seed)
    settings = {key: value for key, value in flatten(config).items() if key != "run.directory"}
    preflight.check(settings, data.manifest, step.state, run.directory, world)
    first = _restore(config, world, step.state, data.manifest)
    if first == 0:
        _begin(config, world, weights, data.manifest, vocab, start_from, fresh)
    log = metrics.Log(run.directory, steps=run.steps, first=first, active=world.rank == 0)
    clock, evaluated = _clock(config, data, world), {}
    saver = checkpoint.Saver(run.directory, run.keep, run.keep_every)

    with _stop_requests() as requested, files.room(run.directory), _watchdog(run.stall_seconds, world) as alive:
        for number, micro_batches in enumerate(samples.iterate(first, run.steps), start=first + 1):
            if _over(step, run):  # before its first update: it had ended
                break
            rate = _rate(number, step, config)
            clock.lap("input")
            alive()
            passed = clock.since_last_asked() if run.hours else 0.0  # else two runs would not have the same bits
            with metrics.profiled(run.directory, number, run.profile if world.rank == 0 else 0):
                measures = step.update(number, micro_batches, rate, bool(requested), passed)
            clock.lap("step", config.batch.total)
            stopping = measures.pop("stop") > 0  # the sum over ranks, so that all of them leave at the same update
            last = number == run.steps or _over(step, run)
            if last or number % run.log_every == 0 or measures["skipped_in_a_row"]:  # what is not finite is not hidden
                log.write(number, "train", measures | {"learning_rate": rate} | clock.rates())
            _check_skipped(number, measures, config, world, saver)
            if heldout and run.evaluate_every and (last or number % run.evaluate_every == 0):
                share = list(batches.evaluation(heldout, config.batch, world, run.evaluate_sequences))
                log.write(number, "heldout", evaluated := step.evaluate(share))
            reached = _reached(evaluated, task.objectives[0], run.target_accuracy)
            ending = stopping or reached or last
            if ending or number % run.save_every == 0:
                _save(saver, number, step.state, world, last=ending)
            if stopping and not last:
                raise Stopped(f"stopped at step {number} of {run.steps}, saved; the same command goes on from there")
            if reached or last:
                break
            clock.lap("other")
    log.close()
    return evaluated


def _clock(config: Config, data: Data, world: World) -> metrics.Clock:
    tokens, predictions = (data.spec.get(name, {"shape": [0]})["shape"][0] for name in ("input_ids", "masked_lm_ids"))
    flops = plan.flops(config.model, tokens, predictions)
    return metrics.Clock(tokens, flops, peak=config.run.peak_teraflops * 1e12 * world.size)


def _reached(evaluated: dict[str, float], objective: str, target: float) -> bool:
    """Whether the last evaluation was good enough to end the run; all ranks have the same figures."""
    return target > 0 and evaluated.get(f"{objective}_accuracy", 0.0) >= target


def _rate(number: int, step: Step, config: Config) -> float:
    """The learning rate of an update; with a budget of hours, the schedule's updates pass by the clock."""
    run, optimizer = config.run, config.optimizer
    done = float(step.seconds) / 3600 / run.hours * run.steps if run.hours else number - 1
    return schedule.polynomial(
        done, peak=optimizer.learning_rate, warmup_steps=optimizer.warmup_steps, steps=run.steps,
        power=optimizer.decay_power, continuous=optimizer.continuous,
    )  # fmt: skip


def _over(step: Step, run: RunConfig) -> bool:
    return run.hours > 0 and float(step.seconds) >= run.hours * 3600


def _check_skipped(
    step: int, measures: dict[str, float], config: Config, world: World, saver: checkpoint.Saver
) -> None:
    """Raises IntegrityError when too many updates in a row had to be skipped; warns of each."""
    in_a_row, most = int(measures["skipped_in_a_row"]), config.run.max_skipped
    if in_a_row == 0:
        return
    first = (step - 1) * config.batch.total
    what = (
        f"step {step}: the gradient is not finite (loss {measures['loss']}; samples {first} to "
        f"{first + config.batch.total - 1} in the order of seed {config.run.seed}), so the update was skipped"
    )
    if in_a_row >= most:
        saver.wait()
        saved = [str(folder) for folder in checkpoint.steps(config.run.directory)]
        last = world.share((saved or ["no checkpoint"])[-1])
        raise IntegrityError(
            f"{what}, the last of {in_a_row} in a row; saved before: {last}; begin another run with --init.checkpoint "
            f"{config.run.directory} and a lower optimizer.learning_rate"
        )
    if "loss_scale" not in measures and world.rank == 0:  # where overflows are expected, and counted
        print(f"warning: {what}", file=sys.stderr)


def _restore(config: Config, world: World, state: checkpoint.Variables, data: Manifest) -> int:
    """Brings every rank to the run's newest checkpoint, if it has one; returns its step, or 0."""
    step = None
    if world.rank == 0:
        checkpoint.sweep(config.run.directory)
    if world.rank == 0 and checkpoint.steps(config.run.directory):
        _check_same(config, data)
        step = checkpoint.restore(config.run.directory, state)
        print(f"resuming {config.run.directory} after step {step}", file=sys.stderr)
    reached: int = world.share(step) or 0
    if reached:
        world.broadcast(list(state.values()))
    return reached


def _begin(
    config: Config,
    world: World,
    weights: checkpoint.Variables,
    data: Manifest,
    vocab: Path,
    start_from: Path | None,
    fresh: tuple[str, ...],
) -> None:
    """Gives every rank the first weights, and the run directory its description."""
    if world.rank == 0:
        if start_from is not None:
            checkpoint.load_weights(start_from, weights, fresh)
        directory = config.run.directory
        facts = {"config": flatten(config), "data": manifest.content_hash(data.path), "versions": manifest.versions()}
        files.write_json(directory / "config.json", facts)
        config.model.save(directory / "bert_config.json")
        shutil.copyfile(vocab, directory / "vocab.txt")
    world.broadcast(list(weights.values()))


def _check_same(config: Config, data: Manifest) -> None:
    """Refuses to go on with a run whose configuration or data differ in anything that its weights depend on."""
    path = config.run.directory / "config.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        before = defaults(type(config)) | facts["config"]
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); put it back, or start a new run") from error
    hashed = manifest.content_hash(data.path)
    before["the data's hash"] = facts.get("data", hashed)
    resolved = flatten(config) | {"the data's hash": hashed}
    differing = sorted(key for key in resolved.keys() | before.keys() if resolved.get(key) != before.get(key))
    if changed := [key for key in differing if key not in FREE]:
        listed = ", ".join(f"{key} was {before.get(key)}, now {resolved.get(key)}" for key in changed)
        where = path.parent
        raise UsageError(f"{where}: holds a run of another configuration ({listed}); give another --run.directory")


def _save(saver: checkpoint.Saver, step: int, state: checkpoint.Variables, world: World, last: bool) -> None:
    if world.rank == 0:
        saver.save(step, state)
    if last:
        saver.wait()
        world.share(None)  # the others wait: launchers end all ranks soon after the first one has ended


@contextlib.contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """A list that signals to stop are added to while the block runs."""
    received: list[int] = []
    before = {kind: signal.signal(kind, lambda number, _: received.append(number)) for kind in STOP_SIGNALS}
    try:
        yield received
    finally:
        for kind, handler in before.items():  # once asked it is ending; asked again, it must still end with 75
            signal.signal(kind, signal.SIG_IGN if received else handler)


@contextlib.contextmanager
def _watchdog(seconds: float, world: World) -> Iterator[Callable[[], None]]:
    """Shows all stacks if the function that it gives is not called for so long, while the block runs; ends the process
    if it has waited twice that for another rank, which Horovod itself was not seen to do.

    Not by faulthandler.dump_traceback_later, which walks the stacks of running threads without the interpreter's lock:
    that has crashed runs that were only slow.
    """
    called, ended = threading.Event(), threading.Event()

    def watch() -> None:
        shown = False
        while not ended.is_set():
            if called.wait(seconds):
                called.clear()
                shown = False
                continue
            who = f"rank {world.rank}"
            if not shown:
                print(f"warning: {who}: no update for {seconds:g} seconds", file=sys.stderr, flush=True)
                faulthandler.dump_traceback()
                shown = True
            if late := world.late(2 * seconds):
                said = f"{late} hung while it waited for {2 * seconds:g} seconds; the same command resumes"
                print(f"error: {who}: {said}", file=sys.stderr, flush=True)
                os._exit(1)  # the main thread is within Horovod, and will not come back

    watcher = threading.Thread(target=watch, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield called.set
    finally:
        ended.set()
        called.set()
        watcher.join()


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def place(run: RunConfig, default: Path, steps: int) -> RunConfig:
    """`run` with its directory and length filled in where the command left them open."""
    directory = default if run.directory == Path() else run.directory
    return dataclasses.replace(run, directory=directory, steps=run.steps or steps)
