"""One run with one seed: its folder, its legs of training from one scored checkpoint to the next, its scores.

OUTPUT/VARIANT/seed-S/run/                    the run directory of bert.pretrain
OUTPUT/VARIANT/seed-S/step-N/training.json    what a leg that is finished says
OUTPUT/VARIANT/seed-S/step-N/NAME.json        a score
OUTPUT/VARIANT/seed-S/log.txt                 what all commands printed
"""

import contextlib
import dataclasses
import json
import math
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.laboratory.children import Children, reason
from benchmarks.laboratory.plan import Plan, Run, split
from bert.core import checked_json, files, journal
from bert.core.errors import Stopped, UsageError, UserError

STEP = re.compile(r"step-([0-9]+)")
EVENTS = "journal.jsonl"
TRAINING = "training"


@dataclass(frozen=True, kw_only=True)
class Leg:
    """What is known of a run at a scored checkpoint."""

    step: int
    tokens: float
    """that were read from the first update on, without padding"""
    tokens_per_second: float
    """of the updates, without padding: the median of the intervals that were logged, of the whole run so far"""
    heldout: dict[str, float]
    """losses and accuracies, those that are finite"""
    settings: dict[str, Any]
    """all that the weights depend on, as `Run.settings` has it"""
    scale: int = 1
    """of an accuracy that is perfect; earlier versions wrote fractions, without this entry"""

    @property
    def is_finite(self) -> bool:
        """Return whether the held-out loss is finite."""
        return "loss" in self.heldout


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A score of a checkpoint."""

    command: str
    seconds: float
    """that it took"""
    figures: dict[str, Any]
    """what the command wrote"""
    scale: int = 1
    """as in `Leg`"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A variant with a seed."""

    run: Run
    seed: int
    folder: Path

    @property
    def directory(self) -> Path:
        return self.folder / "run"

    @property
    def name(self) -> str:
        return f"{self.run.name}, seed {self.seed}"

    def command(self, stop: int) -> list[str]:
        """Return the command that trains up to update `stop`."""
        own = {"seed": self.seed, "directory": self.directory, "stop_at": stop}
        return ["python", "-m", "bert.pretrain", *self.run.words, *flags_of(own, "run.")]

    def leg(self, step: int) -> Leg | None:
        """Return what is known at update `step`, if the run has been there."""
        leg: Leg | None = _read(self.folder / f"step-{step:08d}" / "training.json", Leg)
        if leg:
            ours = self.run.settings()
            if changed := [key for key in leg.settings if key in ours and leg.settings[key] != ours[key]]:
                was = ", ".join(f"{key} was {leg.settings[key]}, now {ours[key]}" for key in changed)
                raise UsageError(f"{self.name} is there with other flags ({was}); give the new variant another name")
        return leg

    def scored(self, step: int, name: str) -> Scored | None:
        """Return a score of the checkpoint of update `step`, if there is one."""
        scored: Scored | None = _read(self.folder / f"step-{step:08d}" / f"{name}.json", Scored)
        return scored

    def newest(self) -> int:
        """Return the update of the newest checkpoint; 0 if there is none."""
        matches = (STEP.fullmatch(path.name) for path in (self.directory / "checkpoints").glob("step-*"))
        return max((int(match[1]) for match in matches if match), default=0)


def flags_of(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the values as flags of a command."""
    return [word for name, value in values.items() for word in (f"--{prefix}{name}", str(value))]


def _read(path: Path, kind: type[Any]) -> Any:
    if not path.exists():
        return None
    content = checked_json.read(path, kind, what="written by the laboratory", remedy="delete it to have it made again")
    if content.scale != journal.SCALE:
        raise UsageError(f"{path}: its scores are from 0 to 1, as earlier versions had them; give another --output")
    return content


def trials(plan: Plan, output: Path) -> list[Trial]:
    """Return all runs of the first seed, then all runs of the second, and so on."""
    every = [(run, seed) for seed in plan.seeds for run in plan.runs.values()]
    return [Trial(run=run, seed=seed, folder=output / run.name / f"seed-{seed}") for run, seed in every]


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """Trains and scores."""

    plan: Plan
    output: Path
    children: Children

    def left(self) -> list[tuple[Trial, int]]:
        """Return what is to be trained or scored, and up to which update, in this order.

        Of one seed all variants reach a checkpoint before one of them goes on, so that what is there can be compared.
        Raise UsageError if what is there was made by another plan.
        """
        missing = []
        for seed in self.plan.seeds:
            of_seed = [trial for trial in trials(self.plan, self.output) if trial.seed == seed]
            for number in range(self.plan.checkpoints):
                at = [(trial, trial.run.marks[number]) for trial in of_seed if number < len(trial.run.marks)]
                missing += [(trial, step) for trial, step in at if self._lacks(trial, step)]
        return missing

    def _lacks(self, trial: Trial, step: int) -> bool:
        """Return whether a run is to be trained up to update `step`, or to be scored there.

        What a run lacks at an update that it has passed remains lacking.
        """
        is_done = trial.leg(step) is not None and not list(self._missing(trial, step))
        return not is_done and trial.newest() <= step

    def _missing(self, trial: Trial, step: int) -> Iterator[str]:
        """Yield the names of the scores that a run lacks at update `step`."""
        leg = trial.leg(step)
        if leg and not leg.is_finite:  # there is nothing to score
            return
        for name, score in self.plan.scores.items():
            if score.at == "each" or step == trial.run.marks[-1]:
                scored = trial.scored(step, name)
                if scored is None:
                    yield name
                elif scored.command != score.words:
                    raise UsageError(f"score {name} was computed by {scored.command}; give the new one another name")

    def advance(self, trial: Trial, step: int) -> None:
        """Train a run up to update `step` and score it there.

        Raise Stopped if a signal came, or another UserError if a command fails.
        """
        folder = trial.folder / f"step-{step:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        if trial.leg(step) is None:
            self._run(trial, TRAINING, step, trial.command(step))
            checked_json.write(folder / "training.json", dataclasses.asdict(self._leg(trial, step)))
        if missing := list(self._missing(trial, step)):
            with self._model(trial, step) as model:
                for name in missing:
                    self._score(trial, step, name, model)

    @contextlib.contextmanager
    def _model(self, trial: Trial, step: int) -> Iterator[Path]:
        """Yield the run directory that is scored: of a run with optimizer.ema, one with the average of its weights."""
        if trial.newest() != step:
            raise UserError(f"{trial.directory}: its newest checkpoint is not that of update {step}")
        if not trial.run.config.optimizer.ema:
            yield trial.directory
            return
        averaged = trial.folder / ".average"
        shutil.rmtree(averaged, ignore_errors=True)  # of a process that was killed
        words = ["python", "-m", "bert.average", str(trial.directory), "--ema", "true", "--output", str(averaged)]
        self._run(trial, "average", step, words)
        try:
            yield averaged
        finally:
            shutil.rmtree(averaged)

    def _score(self, trial: Trial, step: int, name: str, model: Path) -> None:
        score, begun = self.plan.scores[name], time.monotonic()
        compute = {"minimal_pairs": self._pairs, "evaluate": self._evaluate, "tasks": self._task}[score.command]
        figures = compute(trial, step, name, model)
        seconds = time.monotonic() - begun
        content = Scored(command=score.words, seconds=seconds, figures=figures, scale=journal.SCALE)
        checked_json.write(trial.folder / f"step-{step:08d}" / f"{name}.json", dataclasses.asdict(content))

    def _leg(self, trial: Trial, step: int) -> Leg:
        lines = list(journal.intact(trial.directory / journal.NAME))
        total = files.read_json(trial.directory / "config.json")["config"]["batch.total"]
        training = [line for line in lines if line["split"] == "train" and line["step"] <= step]
        heldout = [line for line in lines if line["split"] == "heldout" and line["step"] == step]
        if not training or not heldout:
            raise UserError(
                f"{trial.directory / journal.NAME}: has no line of update {step}; give the plan other checkpoints"
            )
        tokens, before, rates = 0.0, 0, []
        for line in training:
            real = line["tokens_per_second"] * (1 - line["padding"])
            tokens += (line["step"] - before) * total * real / line["sequences_per_second"]
            before = line["step"]
            rates.append(real)
        measures = {key: value for key, value in heldout[-1].items() if key not in ("step", "split")}
        measures = {key: value for key, value in measures.items() if math.isfinite(value)}
        return Leg(
            step=step,
            tokens=tokens,
            tokens_per_second=statistics.median(rates),
            heldout=measures,
            settings=trial.run.settings(),
            scale=journal.SCALE,
        )

    def _flags(self, name: str) -> list[str]:
        """Return the flags of a score."""
        return split(self.plan.scores[name].flags)

    def _pairs(self, trial: Trial, step: int, name: str, model: Path) -> dict[str, Any]:
        written = trial.folder / f".{name}.json"
        words = ["python", "-m", "bert.minimal_pairs", str(model), *self._flags(name), "--output", str(written)]
        self._run(trial, name, step, words)
        figures: dict[str, Any] = files.read_json(written)
        written.unlink()
        if model == trial.directory and Path(figures["checkpoint"]).name != f"step-{step:08d}":
            raise UserError(f"{trial.name}: {figures['checkpoint']} was scored instead of that of update {step}")
        return figures

    def _evaluate(self, trial: Trial, step: int, name: str, model: Path) -> dict[str, Any]:
        log = trial.folder / "log.txt"
        begin = log.stat().st_size if log.exists() else 0
        self._run(trial, name, step, ["python", "-m", "bert.evaluate", str(model), *self._flags(name)])
        with open(log, "rb") as stream:
            stream.seek(begin)
            printed = [line for line in stream.read().decode(errors="replace").splitlines() if line.startswith("{")]
        figures: dict[str, Any] = files.parse_json(printed[-1])
        return figures

    def _task(self, trial: Trial, step: int, name: str, model: Path) -> dict[str, Any]:
        tuned = trial.folder / f".{name}"
        words = ["python", "-m", "tasks.train", *self._flags(name), "--run.seed", str(trial.seed)]
        own = ["--init.checkpoint", str(model), "--run.directory", str(tuned)]
        self._run(trial, name, step, [*words, *own])
        lines = list(journal.intact(tuned / journal.NAME))
        evaluated = [line for line in lines if line["split"] == "heldout"]
        if not evaluated:
            raise UserError(f"{trial.name}: {name} has no development set; give one")
        shutil.rmtree(tuned)  # as large as the run itself
        return {key: value for key, value in evaluated[-1].items() if key not in ("step", "split", "loss")}

    def _run(self, trial: Trial, what: str, step: int, words: list[str]) -> None:
        """Run a command of a run. Raise Stopped if it did not end because of a signal, UserError if it failed."""
        log = trial.folder / "log.txt"
        begin, started = log.stat().st_size if log.exists() else 0, time.time()
        note = {"variant": trial.run.name, "seed": trial.seed, "what": what, "until": step}
        self._note(note | {"event": "begin", "time": round(started)})
        code = self.children.run([sys.executable, *words[1:]], log)
        is_done = code in (0, Stopped.exit_code) and trial.newest() == step if what == TRAINING else code == 0
        why = "" if is_done else reason(log, begin)
        self._note(note | {"event": "end", "seconds": round(time.time() - started, 1), "code": code, "error": why})
        if is_done:
            return
        self.children.check()
        if code == Stopped.exit_code:  # somebody asked the command itself
            raise Stopped(f"stopped: {trial.name}: {why}")
        raise UserError(f"{trial.name}: {what} up to update {step} ended with code {code}: {why}; see {log}")

    def _note(self, event: dict[str, Any]) -> None:
        with open(self.output / EVENTS, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(event) + "\n")
