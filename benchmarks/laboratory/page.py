"""The page of a plan: what the runs learned at each scored checkpoint, as tables and a picture for each measure."""

import math
import os
import shlex
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.laboratory.plan import Plan
from benchmarks.laboratory.trials import EVENTS, TRAINING, Leg, Trial, trials
from benchmarks.steps import commit, cpu
from bert.core import charts, files, outputs
from bert.core.errors import Stopped
from bert.hardware import nvidia

NAME = "page.md"
LOSS = "held-out loss"
# By degrees of freedom, from 1 on; for more than there are, the last one, which is a little too large.
STUDENT_95 = (12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216)
AXES = ("updates", "tokens", "seconds")
NOTES = """\
Accuracies and scores are in percent. Tokens are without padding. Seconds are the tokens divided by the speed of the
variant, the median of what was logged, so that starts, evaluations and other programs on the machine do not count.
+- is the deviation of a sample of seeds (divided by n - 1). The interval of a difference is that of Student for pairs
of equal seeds, 95 %: it says what other seeds might give, and two seeds say little. The intervals of single runs
(Wilson, 95 %) say what other pairs of sentences might give."""


class Point(NamedTuple):
    """A run at a scored checkpoint."""

    at: dict[str, float]  # by the names in AXES
    measures: dict[str, float]  # loss; accuracies and scores in percent


Curves = dict[str, dict[int, list[Point]]]  # by variant and seed; the points in order of updates


def measures(trial: Trial, leg: Leg, plan: Plan) -> dict[str, float]:
    """Return all measures of a run at a checkpoint by name."""
    by_name = {LOSS: leg.heldout["loss"]} if leg.is_finite else {}
    for key, value in leg.heldout.items():
        if key.endswith("_accuracy"):  # "mlm_accuracy/books" is of one source
            by_name[f"held-out {key.removesuffix('_accuracy')} accuracy"] = value
    for name, score in plan.scores.items():
        if scored := trial.scored(leg.step, name):
            if score.command == "minimal_pairs":
                by_name[name] = scored.figures["mean_of_paradigms"]
            elif score.command == "evaluate":
                by_name |= dict(_evaluated(name, scored.figures))
            else:
                by_name |= {f"{name} {metric}": value for metric, value in scored.figures.items()}
    return by_name


def _evaluated(name: str, figures: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield losses, and accuracies in percent, of bert.evaluate."""
    for key, value in figures.items():
        objective, _, source = key.partition("/")
        objective = objective.replace("_", " ")
        if objective.endswith(("loss", "accuracy")):
            label = " ".join(filter(None, [name, source, objective]))
            yield label, value


def curves(plan: Plan, output: Path) -> Curves:
    """Return the points of all runs."""
    legs: dict[str, dict[int, tuple[Trial, list[Leg]]]] = {name: {} for name in plan.variants}
    for trial in trials(plan, output):
        if legs_of_trial := [leg for step in trial.run.marks if (leg := trial.leg(step))]:
            legs[trial.run.name][trial.seed] = trial, legs_of_trial
    return {name: dict(_points(of_variant, plan)) for name, of_variant in legs.items()}


def _points(of_variant: dict[int, tuple[Trial, list[Leg]]], plan: Plan) -> Iterator[tuple[int, list[Point]]]:
    """Yield the points of each seed of a variant; all its runs compute the same, so they have one speed."""
    speed = statistics.median([legs[-1].tokens_per_second for _, legs in of_variant.values()] or [1.0])
    for seed, (trial, legs) in of_variant.items():
        places = ({"updates": leg.step, "tokens": leg.tokens, "seconds": leg.tokens / speed} for leg in legs)
        yield seed, [Point(at, measures(trial, leg, plan)) for at, leg in zip(places, legs, strict=True)]


def value_at(points: Sequence[Point], axis: str, place: float, measure: str) -> float | None:
    """Return a measure at a number of updates, tokens or seconds of a run.

    Between two checkpoints it is interpolated along the logarithm. None if the run has no two checkpoints around it.
    """
    measured = [(point.at[axis], point.measures[measure]) for point in points if measure in point.measures]
    if not measured or not measured[0][0] <= place <= measured[-1][0]:
        return None
    places, values = zip(*measured, strict=True)
    return float(np.interp(math.log(place), np.log(places), values))


def _digits(measure: str) -> int:
    return 3 if measure.endswith(" loss") else 2


def difference(values: dict[int, float], others: dict[int, float], digits: int) -> str:
    """Return the mean difference between two variants over the seeds that both have, with its interval."""
    pairs = [values[seed] - others[seed] for seed in values if seed in others]
    if len(pairs) < 2:
        return f"{pairs[0]:+.{digits}f}" if pairs else ""
    quantile = STUDENT_95[min(len(pairs) - 1, len(STUDENT_95)) - 1]
    half = quantile * statistics.stdev(pairs) / math.sqrt(len(pairs))
    mean = statistics.fmean(pairs)
    return f"{mean:+.{digits}f} ({mean - half:+.{digits}f} to {mean + half:+.{digits}f})"


def shown(values: Sequence[float], digits: int) -> str:
    """Return mean and deviation."""
    if not values:
        return ""
    deviation = f" +- {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{deviation}"


def write(plan: Plan, output: Path, command: str, failures: dict[str, str]) -> None:
    """Write the page and its pictures. failures: of runs, by their names."""
    by_variant = curves(plan, output)
    points = [point for runs in by_variant.values() for run in runs.values() for point in run]
    names = list(dict.fromkeys(name for point in points for name in point.measures))
    parts = [f"# {plan.title}", _head(command), *_failures(failures)]
    if names:
        for number, name in enumerate(names):
            draw(by_variant, name, output / f"curve-{number}.png")
        parts += [*_equal(by_variant, names), *_curves(by_variant, names), *_paradigms(plan, output)]
    parts += [_runs(plan, output, by_variant, names), _commands(plan, output)]
    with files.atomic_write(output / NAME) as stream:
        stream.write("\n\n".join(parts) + "\n")


def draw(by_variant: Curves, measure: str, path: Path) -> None:
    """Draw a measure over updates, tokens and seconds: a line of the means for each variant, a point for each run."""
    with charts.plots(path, 3, width=14) as row:
        for axes, axis in zip(row, AXES, strict=True):
            for number, (name, runs) in enumerate(by_variant.items()):
                colour = charts.COLOURS[number % len(charts.COLOURS)]
                axes.plot([], [], color=colour, label=charts.plain(name))
                for points in runs.values():
                    places = [point.at[axis] for point in points if measure in point.measures]
                    values = [point.measures[measure] for point in points if measure in point.measures]
                    axes.plot(places, values, "o-", color=colour, markersize=3, linewidth=0.6, alpha=0.6)
                if means := list(_means(runs, axis, measure)):
                    axes.plot(*zip(*means, strict=True), color=colour)
            axes.set(xlabel=axis, xscale="log")
        row[0].set_title(charts.plain(measure))
        row[0].legend(frameon=False, fontsize=8)


def _means(runs: dict[int, list[Point]], axis: str, measure: str) -> Iterator[tuple[float, float]]:
    """Yield the means over the seeds, place and value, of each checkpoint that all of them have."""
    for points in zip(*runs.values(), strict=False):
        if all(measure in point.measures for point in points):
            yield (
                statistics.fmean(point.at[axis] for point in points),
                statistics.fmean(point.measures[measure] for point in points),
            )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def _equal(by_variant: Curves, names: Sequence[str]) -> Iterator[str]:
    """Yield the tables at equal updates, tokens and seconds: at the last place that all variants have reached."""
    first, *others = by_variant
    yield f"## What was learned\n\n{NOTES}"
    for axis in AXES:
        rows = []
        for name in names:
            place, at = _together(by_variant, axis, name)
            if at:
                means = [shown(list(values.values()), _digits(name)) for values in at.values()]
                differences = [difference(at[other], at[first], _digits(name)) for other in others]
                rows.append([name, f"{place:,.0f}", str(len(at[first])), *means, *differences])
        header = ["measure", axis, "seeds", *by_variant, *(f"{other} less {first}" for other in others)]
        if rows:
            yield f"At equal {axis}:\n\n{_table(header, rows)}"


def _together(by_variant: Curves, axis: str, measure: str) -> tuple[float, dict[str, dict[int, float]]]:
    """Return the last place that all compared runs have reached, and a measure there by variant and seed.

    Compared are the seeds for which all variants have the most scored checkpoints. The measures are empty if there is
    no such place.
    """
    places = {
        variant: {
            seed: [point.at[axis] for point in points if measure in point.measures] for seed, points in of.items()
        }
        for variant, of in by_variant.items()
    }
    shared = set.intersection(*(set(of) for of in places.values()))
    reached = {seed: min(len(of[seed]) for of in places.values()) for seed in sorted(shared)}
    most = max(reached.values(), default=0)
    seeds = [seed for seed, count in reached.items() if count == most > 0]
    place = min((of[seed][-1] for of in places.values() for seed in seeds), default=0.0)
    values: dict[str, dict[int, float]] = {}
    for variant, of_variant in by_variant.items():
        at = {seed: value_at(of_variant[seed], axis, place, measure) for seed in seeds}
        values[variant] = {seed: value for seed, value in at.items() if value is not None}
    return place, values if seeds and all(len(of) == len(seeds) for of in values.values()) else {}


def _curves(by_variant: Curves, names: Sequence[str]) -> Iterator[str]:
    header = ["updates", *(f"{variant}, {axis}" for variant in by_variant for axis in AXES[1:])]
    rows = [
        [f"{step:,.0f}", *(_mean_at(runs, step, axis) for runs in by_variant.values() for axis in AXES[1:])]
        for step in _steps(by_variant)
    ]
    yield f"## Curves\n\nWhat each checkpoint took, in the mean over seeds:\n\n{_table(header, rows)}"
    for number, name in enumerate(names):
        rows = []
        for step in _steps(by_variant):
            row = [f"{step:,.0f}"]
            for runs in by_variant.values():
                values = [point.measures[name] for point in _at(runs, step) if name in point.measures]
                row += [shown(values, _digits(name)), str(len(values))]
            if any(row[1::2]):
                rows.append(row)
        header = ["updates", *(word for variant in by_variant for word in (variant, "seeds"))]
        yield f"### {name}\n\n![{name}](curve-{number}.png)\n\n{_table(header, rows)}"


def _steps(by_variant: Curves) -> list[float]:
    return sorted({point.at["updates"] for runs in by_variant.values() for points in runs.values() for point in points})


def _at(runs: dict[int, list[Point]], step: float) -> list[Point]:
    return [point for points in runs.values() for point in points if point.at["updates"] == step]


def _mean_at(runs: dict[int, list[Point]], step: float, axis: str) -> str:
    places = [point.at[axis] for point in _at(runs, step)]
    return f"{statistics.fmean(places):,.0f}" if places else ""


def _paradigms(plan: Plan, output: Path) -> Iterator[str]:
    """Yield the accuracy of each paradigm at the last checkpoint of each run that has one."""
    for name, score in plan.scores.items():
        by_variant: dict[str, list[dict[str, Any]]] = {variant: [] for variant in plan.variants}
        for trial in trials(plan, output):
            if scored := trial.scored(trial.run.marks[-1], name):
                by_variant[trial.run.name].append(scored.figures.get("paradigms", {}))
        paradigms = sorted({paradigm for runs in by_variant.values() for run in runs for paradigm in run})
        if score.command != "minimal_pairs" or not paradigms:
            continue
        rows = [
            [paradigm, *(shown([run[paradigm]["accuracy"] for run in runs], 2) for runs in by_variant.values())]
            for paradigm in paradigms
        ]
        yield f"### {name}: paradigms at the end\n\n{_table(['paradigm', *by_variant], rows)}"


def _runs(plan: Plan, output: Path, by_variant: Curves, names: Sequence[str]) -> str:
    """Return the table of all runs: how far they are, speed, how often they were started, and their last measures."""
    events = _events(output)
    rows = []
    for trial in trials(plan, output):
        own = [event for event in events if (event["variant"], event["seed"]) == (trial.run.name, trial.seed)]
        training = [event for event in own if event["what"] == TRAINING]
        starts = sum(event["event"] == "begin" for event in training)
        failed = sum(event.get("code", 0) not in (0, Stopped.exit_code) and event["code"] > 0 for event in training)
        legs = [leg for step in trial.run.marks if (leg := trial.leg(step))]
        hours = sum(event.get("seconds", 0.0) for event in own) / 3600
        row = [trial.run.name, str(trial.seed), f"{trial.newest():,} of {trial.run.config.run.steps:,}"]
        row += [f"{legs[-1].tokens:,.0f}", f"{legs[-1].tokens_per_second:,.0f}"] if legs else ["", ""]
        row += [str(starts), str(starts - failed - len(legs)), f"{hours:.2f}"]
        last = by_variant[trial.run.name].get(trial.seed, [])
        row += [_single(trial, legs[-1].step, name, last[-1].measures.get(name)) if legs else "" for name in names]
        rows.append(row)
    header = ["variant", "seed", "updates", "tokens", "tokens/s", "starts", "of them interrupted", "hours with scores"]
    return f"## Runs\n\n{_table([*header, *names], rows)}"


def _single(trial: Trial, step: int, name: str, value: float | None) -> str:
    """Return a measure of one run, with the interval that a score of minimal pairs has."""
    if value is None:
        return "not finite" * (name == LOSS)
    scored = trial.scored(step, name)
    if scored is None or "all" not in scored.figures:
        return f"{value:.{_digits(name)}f}"
    every = scored.figures["all"]
    return f"{value:.2f} ({every['low']:.1f} to {every['high']:.1f})"


def _events(output: Path) -> list[dict[str, Any]]:
    path = output / EVENTS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    events = []
    for line in lines:
        try:
            events.append(files.parse_json(line))
        except ValueError:  # cut off by a kill
            continue
    return events


def _head(command: str) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in outputs.versions().items())
    gpus = nvidia.nvidia_smi("--query-gpu=name", "--format=csv,noheader").split("\n")[0] or "no GPU"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    machine = f"{cpu()}, {os.cpu_count()} cores, {memory:.0f} GiB, {gpus}"
    return f"```\n{command}\n```\n\n{machine}. {versions}; commit {commit()}. {time.strftime('%Y-%m-%d')}."


def _failures(failures: dict[str, str]) -> Iterator[str]:
    if failures:
        yield "## Failed\n\n" + "\n".join(f"- {why}" for why in failures.values())


def _commands(plan: Plan, output: Path) -> str:
    lines = []
    for run in plan.runs.values():
        first = next(trial for trial in trials(plan, output) if trial.run == run)
        lines.append(shlex.join(first.command(run.marks[-1])))
    lines += [f"{name}: {score.words}" for name, score in plan.scores.items()]
    listed = "\n".join(lines)
    return f"## Commands\n\nOf the first seed, and up to the end:\n\n```\n{listed}\n```"
