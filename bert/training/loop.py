"""The training loop of pretraining and of every task.

A run directory holds `config.json` (the resolved configuration and versions), `metrics.jsonl`, `events/`,
`checkpoints/`, `bert_config.json`, and `vocab.txt` or, of a byte-level BPE, `tokenizer.json`. The same command resumes
a stopped run. Sample order and dropout are functions of the step, so a resumed run computes the same as one that was
never stopped.
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from bert import labels
from bert.core import files
from bert.core.config import ModelConfig, TrainConfig, flatten
from bert.core.errors import IntegrityError, Stopped, UsageError
from bert.core.manifest import Manifest
from bert.core.progress import Progress
from bert.core.stopping import stops
from bert.model import cost, kernels
from bert.model.encoder import variables
from bert.text import sampler
from bert.text.records import Description, FeatureSpec
from bert.training import (
    agreement,
    checkpoint,
    description,
    length,
    metrics,
    optimizer,
    preflight,
    profiler,
    resume,
    sample_statistics,
    schedule,
    selection,
    stored_runs,
)
from bert.training.communicator import Communicator
from bert.training.distributed_optimizer import optimizer_for
from bert.training.division import is_divided
from bert.training.saver import Saver
from bert.training.selection import Selection
from bert.training.step import Step
from bert.training.task import Task
from bert.training.watchdog import watchdog

Measures = dict[str, float]


class Data(sampler.HeldOut, Protocol):
    """Samples, their manifest, and the shapes of their features."""

    manifest: Manifest
    description: Description
    spec: FeatureSpec


@runtime_checkable
class Evaluator(Protocol):
    """Computes the scores of a model on a development set."""

    measure: str  # the score by which checkpoints are compared; greater is better

    def scores(self, step: Step, alive: Callable[[], None]) -> Measures:
        """Return all scores by name, the same on all ranks. All ranks call this.

        alive: to call from time to time, for the watchdog.
        """


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run: what to train, on which data, from which weights."""

    task: Task
    config: TrainConfig
    comm: Communicator
    data: Data
    heldout: Data | Evaluator | None = None
    """samples on which the losses are measured, or an `Evaluator`; for the latter `best.json` names the best
    checkpoint, which is kept, and the run ends when `config.run.patience` is spent"""
    vocab: Path
    """a `vocab.txt` or `tokenizer.json`, which is copied to the run directory"""
    start_from: Path | None = None
    """the run directory of the initial weights; None: random ones"""
    new_heads: tuple[str, ...] = ()
    """those that may be missing in `start_from`, as those may that an import lacks; they are initialised randomly"""
    entries: Mapping[str, Any] = field(default_factory=dict)
    """what is recorded in `config.json`: the name of the `recipe` and, for fine-tuning, what the outputs mean
    (`bert.labels.Head.entries`); a head of the same kind with other classes is not taken from `start_from`"""


def train(training: Training) -> Measures:
    """Train to `config.run.steps`; return the measures of the last evaluation.

    If the run directory has a checkpoint, resume from it. On SIGTERM, SIGINT, SIGUSR1 or SIGHUP, and at `run.stop_at`,
    save the state and raise Stopped. Raise UsageError if the directory holds a run with another configuration, or if
    another process trains in it.
    """
    config, comm, data = training.config, training.comm, training.data
    run, weights = config.run, variables(training.task.module)
    if never := check_early_end(config, training.heldout):
        print_on_first_rank(f"warning: {never}", comm)
    print_on_first_rank(_start_line(config, comm), comm)
    if unfinished := schedule.unfinished(config.optimizer, run.steps):
        print_on_first_rank(f"warning: {unfinished}", comm)
    if unprofiled := profiler.never(run):
        print_on_first_rank(f"warning: {unprofiled}", comm)
    checkpoint.check_name(run.path)
    if comm.rank == 0:
        checkpoint.check_entries(run.path)
    if problem := preflight.before_updates(config, comm, data.manifest.path, sequence_length(config.model, data)):
        print_on_first_rank(f"warning: {problem}", comm)
    lock = files.exclusive(run.path) if comm.rank == 0 else contextlib.nullcontext()
    with (
        lock,
        files.room(run.path),
        stops() as requested,
        stored_runs.mirrored(run, comm),
        watchdog(run.stall_seconds, comm) as alive,
    ):
        learning = optimizer.learning(weights, config.init)
        frozen = {name: weight for name, weight in weights.items() if name not in learning}
        if frozen:
            print_on_first_rank(optimizer.describe(learning, weights, config.optimizer), comm)
        owner = optimizer_for(learning, config.optimizer, config.parallel, comm)
        step = Step(training.task, owner, comm, config.precision, run, config.parallel, frozen)
        trainer = Trainer(training, step, alive, requested)
        settings = {key: value for key, value in flatten(config).items() if key != "run.directory"}
        preflight.same_on_all_ranks(settings, data.manifest, step.state, run.path, comm)
        first, start = resume.restore(config, comm, step.state, data.manifest), training.start_from
        begins = first == 0
        if begins and config.init.step:
            first, start = resume.branch(config, comm, step.state, data.manifest, training.vocab), None
        if begins:
            weights = {name: step.state[name] for name in weights}  # with tensor parallelism, divided variables
            begun = start, training.new_heads, training.entries
            resume.begin(config, comm, weights, data.manifest, training.vocab, *begun)
        if is_divided(step.state):
            preflight.shared(run.path, comm)
        return trainer.run(first, save=begins and first > 0)


def check_early_end(config: TrainConfig, heldout: Data | Evaluator | None) -> str:
    """Return why the run cannot end early as its settings ask, because it evaluates nothing; "" if it can.

    Raise UsageError if the run is to end by a figure that its evaluations do not have.
    """
    run, is_scored = config.run, isinstance(heldout, Evaluator)
    if run.patience and not is_scored:
        raise UsageError("run.patience counts scores on a development set, of which this run has none; leave it out")
    if run.target_accuracy and is_scored:
        raise UsageError("run.target_accuracy is for pretraining; leave it out, or give --run.patience")
    if run.target_accuracy and config.distill.outputs == 0:
        raise UsageError("run.target_accuracy: with distill.outputs 0 there is no accuracy; give one without the other")
    target = f"run.target_accuracy {run.target_accuracy:g}" if run.target_accuracy else ""
    ends = target or (f"run.patience {run.patience}" if run.patience else "")
    evaluates = heldout is not None and run.evaluate_every > 0
    return f"{ends} does not end this run, as nothing is evaluated" if ends and not evaluates else ""


class _RollBack(Exception):
    """Asks to return to the newest checkpoint, because of the spike at update `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Trainer:
    """Make the updates of a run, with learning rates, evaluations, metrics, checkpoints and rollbacks."""

    def __init__(self, training: Training, step: Step, alive: Callable[[], None], requested: Sequence[int]) -> None:
        """alive: to call at every update, for the watchdog. requested: the received signals that ask to stop."""
        config, comm, data, heldout = training.config, training.comm, training.data, training.heldout
        self.config, self.comm, self.step = config, comm, step
        self.data, self.heldout, self.alive, self.requested = data, heldout, alive, requested
        self.selection = Selection(heldout.measure, config.run.patience) if isinstance(heldout, Evaluator) else None
        run = config.run
        replicas = comm.replicas
        self.samples = sampler.BatchSampler(data, config.batch, run.seed, replicas.rank, replicas.size)
        self.saver = Saver(run.path, run.keep, run.keep_every, comm)
        self.saved = 0  # update of the newest checkpoint
        self.rollbacks = 0  # to that checkpoint
        self.evaluation: Measures = {}
        self.weights = list(variables(training.task.module).values())
        head = labels.of(training.entries, run.path)
        self.classes = head.labels if head else ()
        self.without_figures: set[str] = set()  # objectives for which the user was warned

    def run(self, first: int, save: bool = False) -> Measures:
        """Make the updates after update `first`; return the measures of the last evaluation.

        save: first save the state after update `first`, which comes from another run.
        """
        if self.comm.rank == 0:
            self.saver.description = description.hashes(self.config.run.path)  # once: later damage differs
        run = self.config.run
        self.samples.ends = [change.end for change in self.comm.broadcast_object(self._changes())]
        if save:
            self._save(first, wait=True)
        if 0 < run.stop_at <= first < run.steps:  # it is there already
            raise self._stopped(first)
        self.saved, self.clock = first, _clock(self.config, self.data, self.comm)  # the clock starts here
        while True:
            try:
                return self._train_after(first)
            except _RollBack as spike:
                first = self._roll_back(spike.number)

    def _changes(self) -> list[length.Change]:
        return length.changes(self.config.run.path) if self.comm.rank == 0 else []

    def _train_after(self, first: int) -> Measures:
        run, active, offset = self.config.run, self.comm.rank == 0, int(self.step.sample_offset)
        log = metrics.Log(run.path, steps=run.steps, first=first, active=active)
        profile = profiler.Profiler(run, self.comm)
        samples = self.samples.iterate(first + offset, run.steps + offset)
        self.evaluation = {}
        self._take_up_selection(first)
        if run.target_accuracy and first and self._evaluates(first, last=False):
            self.evaluation = self._evaluate()  # the run may have ended with it
        log.progress.deadline = self._deadline()
        with (
            log.progress as progress,
            contextlib.closing(samples),
            contextlib.closing(log),
            contextlib.closing(profile),
        ):
            for number, micro_batches in enumerate(samples, start=first + 1):
                if self._budget_spent() or self._good_enough():  # a finished run was started again
                    break
                rate = self._learning_rate(number)
                with profile.update(number):
                    measures = self._update(number, micro_batches, rate, progress)
                last = number == run.steps or self._budget_spent()
                at_end = last or number == run.stop_at
                # The sum over the ranks: all of them stop at the same update.
                stopping = measures.pop("stop") > 0 or number == run.stop_at
                bad = measures["skipped_in_a_row"] > 0 or measures.get("spike", 0.0) > 0
                if at_end or bad or number % run.log_every == 0:
                    log.write(number, "train", measures | {"learning_rate": rate} | self.clock.rates())
                if bad:
                    self._handle_bad_update(number, measures)
                is_best = False
                if self._evaluates(number, at_end):
                    self.evaluation = self._evaluate()
                    log.write(number, "heldout", self.evaluation)
                    is_best = self._is_best(number)
                finished = last or self._good_enough()
                if finished and active:
                    samples.close()  # its thread reads in advance
                    self._tell_what_was_fed(number, log)
                    self._tell_unspent_hours(number, rate)
                if finished or stopping or is_best or number % run.save_every == 0:
                    self._save(number, wait=finished or stopping or is_best)
                if is_best:
                    self._record_best()
                if stopping and not last:
                    raise self._stopped(number)
                if finished:
                    break
                self.clock.lap("other")
        return self.evaluation

    def _update(self, number: int, micro_batches: Sequence[sampler.Batch], rate: float, progress: Progress) -> Measures:
        clock, per_device = self.clock, self.config.batch.per_device

        def each(done: int, of: int) -> None:
            progress.done, progress.inside = number - 1 + done / of, f"+ {done}/{of}" * (done < of)

        clock.lap("input")
        self.alive()
        # Without a budget the run clock stays at zero, so that two runs have the same bits.
        seconds = clock.since_last_asked() if self.config.budget.hours else 0.0
        measures = self.step.update(
            number,
            micro_batches,
            rate,
            stop=bool(self.requested),
            written=self.saver.has_written_pieces(),
            seconds=seconds,
            before_change=self.saver.release,
            lap=clock.lap,
            each=each,
        )
        progress.done, progress.inside = number, ""
        self.saver.join(measures.pop("written"))
        clock.lap("compute")
        for batch in micro_batches:
            clock.count(per_device, _mask(batch))
        return measures

    def _stopped(self, number: int) -> Stopped:
        run = self.config.run
        planned = number >= run.stop_at > 0
        how = "the command without run.stop_at, or with a later one," if planned else "the same command"
        return Stopped(f"stopped at step {number} of {run.steps}, saved; {how} resumes")

    def _learning_rate(self, number: int) -> float:
        """Return the learning rate of update `number`. With a budget of hours, the schedule follows the run clock."""
        run, optimizer, hours = self.config.run, self.config.optimizer, self.config.budget.hours
        done = float(self.step.seconds) / 3600 / hours * run.steps if hours else number - 1
        return schedule.learning_rate(done, optimizer, run.steps)

    def _deadline(self) -> float:
        """Return the time by `time.monotonic` at which the budget of hours ends; infinity without a budget."""
        hours = self.config.budget.hours
        return time.monotonic() + hours * 3600 - float(self.step.seconds) if hours else math.inf

    def _budget_spent(self) -> bool:
        return 0 < self.config.budget.hours * 3600 <= float(self.step.seconds)

    def _tell_unspent_hours(self, number: int, rate: float) -> None:
        hours, steps, spent = self.config.budget.hours, self.config.run.steps, float(self.step.seconds) / 3600
        if hours and number == steps and (unspent := schedule.unspent(hours, spent, rate, steps)):
            print_on_first_rank(f"warning: {unspent}", self.comm)

    def _take_up_selection(self, first: int) -> None:
        """Restore the selection of the best checkpoint to its state after update `first`, from rank 0's metrics."""
        if self.selection is not None:
            if self.comm.rank == 0:
                self.selection.replay(self.config.run.path, first)
            self.selection = self.comm.broadcast_object(self.selection)
            self._record_best()  # the process may have been killed before

    def _is_best(self, number: int) -> bool:
        """Return whether the last evaluation, after update `number`, is the best so far on the development set."""
        if self.selection is None:
            return False
        is_best = self.selection.add(number, self.evaluation[self.selection.measure])
        if self.selection.is_over():
            best = self.selection.best
            kept_best = f"; {best.measure} {best.value:.4g} after update {best.step} stays the best" if best else ""
            print_on_first_rank(
                f"step {number}: no improvement in {self.selection.since} evaluations{kept_best}", self.comm
            )
        return is_best

    def _record_best(self) -> None:
        """Write `best.json` on rank 0 if the best checkpoint exists."""
        best, run = self.selection.best if self.selection else None, self.config.run.path
        if self.comm.rank == 0 and best and checkpoint.exists(run, best.step) and best != selection.read(run):
            selection.write(run, best)

    def _good_enough(self) -> bool:
        return self._target_reached() or (self.selection is not None and self.selection.is_over())

    def _target_reached(self) -> bool:
        """Return whether the last evaluation reached the target accuracy; all ranks have the same measures."""
        target = self.config.run.target_accuracy
        return target > 0 and self.evaluation.get(f"{self.step.task.names[0]}_accuracy", 0.0) >= target

    def _evaluates(self, number: int, last: bool) -> bool:
        every = self.config.run.evaluate_every
        return self.heldout is not None and every > 0 and (last or number % every == 0)

    def _evaluate(self) -> Measures:
        assert self.heldout is not None
        if isinstance(self.heldout, Evaluator):
            return self.heldout.scores(self.step, self.alive)
        sequences = self.config.run.evaluate_sequences
        replicas = self.comm.replicas
        batches: dict[str, list[sampler.Batch]] = {source: [] for source in self.heldout.sources}
        share = sampler.evaluation(self.heldout, self.config.batch, sequences, replicas.rank, replicas.size)
        for source, batch in share:
            batches[source].append(batch)
        measures = self.step.evaluate(batches)
        for objective in self.step.task.scored.objectives:
            if f"{objective.name}_loss" not in measures and objective.name not in self.without_figures:
                self.without_figures.add(objective.name)
                print_on_first_rank(f"warning: {self.heldout.manifest.path}: {objective.without_figures()}", self.comm)
        return measures

    def _tell_what_was_fed(self, number: int, log: metrics.Log) -> None:
        """Log which samples the updates up to `number` read, including samples that rollbacks skipped."""
        offset = int(self.step.sample_offset)
        labelled = any(objective.learns_labels for objective in self.step.task.objectives)
        try:
            figures = sample_statistics.figures(self.samples, number + offset, self.config.run.steps + offset, labelled)
        except IntegrityError as error:  # a damaged record of another rank, which data.skip_bad lets pass there
            print_on_first_rank(f"warning: what the run was fed is not told: {error}", self.comm)
            return
        log.write(number, "fed", figures, text=sample_statistics.describe(figures, self.classes))
        for line in sample_statistics.warnings(figures):
            print_on_first_rank(f"warning: {line}", self.comm)

    def _handle_bad_update(self, number: int, measures: Measures) -> None:
        """Warn about an update that is not finite, or about a spike.

        Raise IntegrityError after too many in a row. Raise _RollBack if the run is to return to the newest checkpoint.
        """
        run = self.config.run
        spike, in_a_row = measures.get("spike", 0.0) > 0, int(measures["skipped_in_a_row"])
        back = spike and run.on_spike == "rollback" and self.saved > 0
        self.rollbacks += back
        if back:
            outcome = f"back to step {self.saved}"
        else:
            outcome = "the update was skipped" if in_a_row else "the update was made"
        message = f"step {number}: {self._describe_fault(number, measures, spike)}; {outcome}"
        if max(in_a_row, self.rollbacks) >= run.max_skipped:
            self._fail(f"{message}; run.max_skipped {run.max_skipped} is reached")
        if number == run.steps and measures["skipped"] >= number:
            self._fail(f"{message}, as were all others, so nothing was learned")
        if self.comm.rank == 0 and (spike or "loss_scale" not in measures):  # overflows are normal with a loss scale
            print(f"warning: {message}", file=sys.stderr)
        if back:
            raise _RollBack(number)

    def _describe_fault(self, number: int, measures: Measures, spike: bool) -> str:
        run, total = self.config.run, self.config.batch.total
        sample = (number - 1 + int(self.step.sample_offset)) * total
        fault = (
            f"is more than {run.spike_factor:g} times the median of the last ones"
            if spike
            else "or its gradient is not finite"
        )
        samples = f"samples {sample} to {sample + total - 1} in the order of seed {run.seed}"
        return f"the loss {measures['loss']:.6g} {fault}; {samples}"

    def _fail(self, message: str) -> NoReturn:
        run = self.config.run
        self.saver.wait()
        saved = checkpoint.steps(run.path)
        newest = self.comm.broadcast_object(str(saved[-1]) if saved else "no checkpoint")
        raise IntegrityError(
            f"{message}; newest checkpoint: {newest}; start another run "
            f"with --init.checkpoint {run.path} and a lower --optimizer.learning_rate"
        )

    def _roll_back(self, number: int) -> int:
        """Restore the newest checkpoint, and skip all samples up to and including update `number`; return its step."""
        offset, seconds = int(self.step.sample_offset), float(self.step.seconds)
        self.saver.wait()
        first = resume.restore(self.config, self.comm, self.step.state, self.data.manifest)
        self.step.sample_offset.assign(offset + number - first)
        self.step.seconds.assign(seconds)  # time that was spent counts
        return first

    def _save(self, number: int, wait: bool) -> None:
        self.saved, self.rollbacks = number, 0
        if self.config.run.deterministic or not self.comm.device.is_gpu:  # else sums depend on the order of additions
            agreement.check(self.weights, number, self.comm)
        self.saver.save(number, self.step.state)
        if wait:
            self.saver.wait()
            self.comm.broadcast_object(None)  # the other ranks wait: launchers end all ranks soon after the first ends


def print_on_first_rank(line: str, comm: Communicator) -> None:
    """Print a line about the run on rank 0, unless it is empty."""
    if line and comm.rank == 0:
        print(line, file=sys.stderr)


def _start_line(config: TrainConfig, comm: Communicator) -> str:
    """Return a line about the device, the precision, the micro-batches, and how gradients are summed."""
    precision, batch = config.precision, config.batch
    parts = [comm.device.describe(), precision.compute, "XLA" if precision.xla else "no XLA"]
    parts += [f"residual stream in {precision.residual}"] if precision.residual != "float32" else []
    parts += [kernel.called(config.model) for kernel in kernels.asked_by(config.model)]
    if config.init.frozen_encoder:
        parts.append("encoder frozen")
    elif config.init.frozen_layers:
        parts.append(f"embeddings and the first {config.init.frozen_layers} layers frozen")
    parts += ["deterministic"] if comm.device.is_gpu and config.run.deterministic else []
    replicas, holder = comm.replicas.size, "rank" if comm.parts.count == 1 else "replica"
    parts += [f"model in {comm.parts.count} parts"] if comm.parts.count > 1 else []
    parts.append(f"{batch.accumulation(replicas)} x {batch.per_device} sequences per {holder} and update")
    if (reducer := comm.reducer()) and replicas > 1:
        kind = "float16" if precision.compress else "float32"
        parts.append(f"gradients of {replicas} {holder}s summed in {kind} by {comm.library} with {reducer}")
        parts += ["during the backward pass"] if config.parallel.overlap else []
        parts += ["sharded optimizer"] if config.parallel.shard_optimizer else []
    return f"device: {'; '.join(parts)}"


def sequence_length(model: ModelConfig, data: Data) -> int:
    """Return the number of tokens T of a sample that the model reads; samples of a causal model have one token more."""
    length: int = data.spec["input_ids"]["shape"][-1]
    return length - model.causal


def _mask(batch: sampler.Batch) -> np.ndarray:
    """Return a mask [rows, T]: 1 for tokens, 0 for padding. A stream of tokens has no padding."""
    mask = batch["input_mask"] if "input_mask" in batch else tf.ones_like(batch["input_ids"][:, 1:])
    return np.asarray(mask).reshape(-1, mask.shape[-1])  # of multiple choice, each choice is a row


def _clock(config: TrainConfig, data: Data, comm: Communicator) -> metrics.Clock:
    predictions = data.spec.get("masked_lm_ids", {"shape": [0]})["shape"][0]

    def flops(tokens: int, sequences: float) -> float:
        if config.model.causal:
            return cost.flops(config.model, tokens, predictions=tokens)
        states = cost.states_read(predictions) * sequences if predictions else None
        return cost.flops(config.model, tokens, predictions * sequences, states, further=config.further)

    peak = config.run.peak_teraflops * 1e12 * comm.parts.count  # of the devices that compute a micro-batch together
    return metrics.Clock(flops, comm.replicas.size, peak=peak)
