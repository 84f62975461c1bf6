"""The one training loop: pretraining and every task run it.

A run directory holds `config.json` (the resolved configuration with versions), `metrics.jsonl`, `events/`,
`checkpoints/`, `bert_config.json` and `vocab.txt`. Giving the same command again resumes: sample order and dropout are
functions of the step, so the resumed run computes what the uninterrupted one would have.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bert import plan
from bert.config import (
    BatchConfig,
    BudgetConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
    RunConfig,
    flatten,
)
from bert.errors import IntegrityError, Stopped
from bert.inputs import sampler
from bert.inputs.records import FeatureSpec
from bert.model.encoder import variables
from bert.storage import files
from bert.storage.manifest import Manifest
from bert.training import checkpoint, metrics, preflight, resume, schedule
from bert.training.distributed import Communicator
from bert.training.optimizer import Optimizer
from bert.training.profiler import Profiler
from bert.training.signals import stops, watchdog
from bert.training.step import Step, Task


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
    @property
    def budget(self) -> BudgetConfig: ...


class Data(sampler.Source, Protocol):
    """Samples, and what is known of them."""

    manifest: Manifest
    spec: FeatureSpec


def train(
    task: Task,
    config: Config,
    comm: Communicator,
    *,
    data: Data,
    heldout: Data | None,
    vocab: Path,
    start_from: Path | None,
    fresh: tuple[str, ...] = (),
    recipe: str | None = None,
) -> dict[str, float]:
    """Trains `task` to `config.run.steps`, resuming if the run directory has a checkpoint; returns the last evaluation.

    With nothing to resume, the first weights are those of the run directory `start_from`, or random ones; so are those
    of the heads in `fresh`, and of those that an import says it lacks, where `start_from` has none. `vocab` is copied
    into the run directory, and the name of the `recipe` is kept there. Raises Stopped after SIGTERM or SIGUSR1, with
    the state saved; UsageError if the directory belongs to a run with another configuration, or another process trains
    in it.
    """
    run, weights = config.run, variables(task.module)
    if comm.rank == 0:
        print(_start_line(config, comm), file=sys.stderr)
    checkpoint.check_name(run.directory)
    preflight.apart(run.directory, data.manifest.path)
    preflight.fused_attention(config.model, config.precision, data.spec["input_ids"]["shape"][0])
    alone = files.exclusive(run.directory) if comm.rank == 0 else contextlib.nullcontext()
    with alone, files.room(run.directory), watchdog(run.stall_seconds, comm) as alive, stops() as requested:
        step = Step(task, Optimizer(weights, config.optimizer), comm, config.precision, run)
        samples = sampler.BatchSampler(data, config.batch, run.seed, comm.rank, comm.size)
        settings = {key: value for key, value in flatten(config).items() if key != "run.directory"}
        preflight.check(settings, data.manifest, step.state, run.directory, comm)
        first = resume.restore(config, comm, step.state, data.manifest)
        if first == 0:
            resume.begin(config, comm, weights, data.manifest, vocab, start_from, fresh, recipe)
        saver = checkpoint.Saver(run.directory, run.keep, run.keep_every)
        loop = _Loop(config, comm, step, data, samples, heldout, _clock(config, data, comm), saver, alive, first)
        while True:
            try:
                return _updates(loop, first, requested)
            except _Spike as spike:
                first = _roll_back(loop, spike.number)


@dataclasses.dataclass
class _Loop:
    """What the updates work with."""

    config: Config
    comm: Communicator
    step: Step
    data: Data
    samples: sampler.BatchSampler
    heldout: Data | None
    clock: metrics.Clock
    saver: checkpoint.Saver
    alive: Callable[[], None]
    """tells the watchdog so"""
    saved: int
    """update after which the newest checkpoint was written"""
    rollbacks: int = 0
    """since then"""


class _Spike(Exception):
    """Update `number` is to be forgotten, with those since the last checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _updates(loop: _Loop, first: int, requested: list[int]) -> dict[str, float]:
    """Makes the updates behind number `first`; returns the last evaluation."""
    config, run, step, clock = loop.config, loop.config.run, loop.step, loop.clock
    log = metrics.Log(run.directory, steps=run.steps, first=first, active=loop.comm.rank == 0)
    passed, evaluated = int(step.skipped_updates), {}
    samples = loop.samples.iterate(first + passed, run.steps + passed)
    profiler = Profiler(run, loop.comm)
    if loop.heldout and run.target_accuracy and run.evaluate_every and first and first % run.evaluate_every == 0:
        evaluated = _evaluate(loop.heldout, loop)  # which may have ended the run
    with contextlib.closing(samples), contextlib.closing(log), contextlib.closing(profiler):
        for number, micro_batches in enumerate(samples, start=first + 1):
            if _over(step, config) or _reached(evaluated, loop):  # before its first update: it had ended
                break
            rate = _rate(number, step, config)
            clock.lap("input")
            loop.alive()
            spent = clock.since_last_asked() if config.budget.hours else 0.0  # else two runs had not the same bits
            with profiler.update(number):
                measures = step.update(number, micro_batches, rate, bool(requested), spent, clock.lap)
            clock.lap("compute")
            for batch in micro_batches:
                clock.count(config.batch.per_device, batch["input_mask"].numpy())
            stopping = measures.pop("stop") > 0  # the sum over ranks, so that all of them leave at the same update
            last = number == run.steps or _over(step, config)
            faulty = measures["skipped_in_a_row"] > 0 or measures.get("spike", 0.0) > 0
            if last or faulty or number % run.log_every == 0:  # a fault is not hidden
                log.write(number, "train", measures | {"learning_rate": rate} | clock.rates())
            _judge(loop, number, measures)
            if loop.heldout and run.evaluate_every and (last or number % run.evaluate_every == 0):
                log.write(number, "heldout", evaluated := _evaluate(loop.heldout, loop))
            reached = _reached(evaluated, loop)
            ending = stopping or reached or last
            if ending or number % run.save_every == 0:
                _save(loop, number, last=ending)
            if stopping and not last:
                raise Stopped(f"stopped at step {number} of {run.steps}, saved; the same command goes on from there")
            if reached or last:
                break
            clock.lap("other")
    return evaluated


def _roll_back(loop: _Loop, number: int) -> int:
    """Forgets the updates up to `number` since the last checkpoint, and passes over their samples; returns its step."""
    step = loop.step
    passed, seconds = int(step.skipped_updates), float(step.seconds)
    loop.saver.wait()
    first = resume.restore(loop.config, loop.comm, step.state, loop.data.manifest)
    step.skipped_updates.assign(passed + number - first)
    step.seconds.assign(seconds)  # was spent all the same
    return first


def _start_line(config: Config, comm: Communicator) -> str:
    """What the run computes on, in which precision, and how gradients are summed."""
    precision, model = config.precision, config.model
    facts = [comm.device.describe(), precision.compute, "XLA" if precision.xla else "no XLA"]
    facts += ["attention by cuDNN"] if model.fused_attention else []
    facts += ["deterministic"] if comm.device.is_gpu and config.run.deterministic else []
    batch = config.batch
    facts.append(f"{batch.accumulation(comm.size)} x {batch.per_device} sequences a rank and update")
    if reducer := comm.reducer():
        kind = "float16" if precision.compress else "float32"
        facts.append(f"gradients of {comm.size} ranks summed in {kind} by Horovod with {reducer}")
    return f"device: {'; '.join(facts)}"


def _clock(config: Config, data: Data, comm: Communicator) -> metrics.Clock:
    predictions = data.spec.get("masked_lm_ids", {"shape": [0]})["shape"][0]

    def flops(tokens: int, sequences: float) -> float:
        states = plan.states_read(predictions) * sequences if predictions else None
        return plan.flops(config.model, tokens, predictions * sequences, states)

    return metrics.Clock(flops, comm.size, peak=config.run.peak_teraflops * 1e12)


def _evaluate(heldout: Data, loop: _Loop) -> dict[str, float]:
    share = sampler.evaluation(
        heldout, loop.config.batch, loop.config.run.evaluate_sequences, loop.comm.rank, loop.comm.size
    )
    return loop.step.evaluate(list(share))


def _reached(evaluated: dict[str, float], loop: _Loop) -> bool:
    """Whether the last evaluation was good enough to end the run; all ranks have the same figures."""
    target = loop.config.run.target_accuracy
    return target > 0 and evaluated.get(f"{loop.step.task.objectives[0]}_accuracy", 0.0) >= target


def _rate(number: int, step: Step, config: Config) -> float:
    """The learning rate of an update; with a budget of hours, the schedule's updates pass by the clock."""
    run, optimizer, hours = config.run, config.optimizer, config.budget.hours
    done = float(step.seconds) / 3600 / hours * run.steps if hours else number - 1
    return schedule.polynomial(
        done,
        peak=optimizer.learning_rate,
        warmup_steps=optimizer.warmup_steps,
        steps=run.steps,
        power=optimizer.decay_power,
        continuous=optimizer.continuous,
    )


def _over(step: Step, config: Config) -> bool:
    return 0 < config.budget.hours * 3600 <= float(step.seconds)


def _judge(loop: _Loop, number: int, measures: dict[str, float]) -> None:
    """Warns of an update that is not finite or a spike.

    Raises IntegrityError when too many in a row were skipped, _Spike when the run is to go back.
    """
    run, total, spike = loop.config.run, loop.config.batch.total, measures.get("spike", 0.0) > 0
    in_a_row = int(measures["skipped_in_a_row"])
    skipped = in_a_row > 0
    if not spike and not skipped:
        return
    back = spike and run.on_spike == "rollback" and loop.saved > 0
    loop.rollbacks += back
    sample = (number - 1 + int(loop.step.skipped_updates)) * total
    fault = f"is more than {run.spike_factor:g} times the last ones" if spike else "or its gradient is not finite"
    outcome = f"back to step {loop.saved}" if back else "the update was skipped" if skipped else "the update was made"
    what = (
        f"step {number}: the loss {measures['loss']:.6g} {fault}; samples {sample} to {sample + total - 1} in the "
        f"order of seed {run.seed}; {outcome}"
    )
    if max(in_a_row, loop.rollbacks) >= run.max_skipped:
        loop.saver.wait()
        newest = loop.comm.broadcast_object(next(map(str, reversed(checkpoint.steps(run.directory))), "no checkpoint"))
        raise IntegrityError(
            f"{what}, the last of {run.max_skipped}; saved before: {newest}; begin another run with --init.checkpoint "
            f"{run.directory} and a lower optimizer.learning_rate"
        )
    if loop.comm.rank == 0 and (spike or "loss_scale" not in measures):  # where overflows are expected, and counted
        print(f"warning: {what}", file=sys.stderr)
    if back:
        raise _Spike(number)


def _save(loop: _Loop, number: int, last: bool) -> None:
    loop.saved, loop.rollbacks = number, 0
    if loop.comm.rank == 0:
        loop.saver.save(number, loop.step.state)
    if last:
        loop.saver.wait()
        loop.comm.broadcast_object(None)  # the others wait: launchers end all ranks soon after the first one has ended
