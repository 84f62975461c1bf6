"""Report a whole pipeline: scores with and without pretraining, training curves, and one answered question.

    python -m squad.report --pretraining PHASE1 PHASE2 --pretrained RUN --random RUN --dataset DEV.json --output DIR

PHASE1, PHASE2, ... are run directories of bert.pretrain, in order. The other two are run directories of squad.train
with predictions.json, the answers to DEV.json. Writes report.json and curves.png to DIR and prints a table.
"""

import itertools
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from bert.core import cli, files, ranges
from bert.core.errors import IntegrityError
from bert.core.ranges import Range
from bert.report import Metrics, Plotted, as_json, draw, read_metrics
from squad import examples, metric
from squad.examples import Dataset, Example

BOLD, PLAIN = "\033[1m", "\033[0m"


@dataclass(frozen=True, kw_only=True)
class Options:
    pretraining: tuple[Path, ...]
    """run directories of the pretraining phases, in order"""
    pretrained: Path
    """run directory of fine-tuning from pretrained weights, with predictions.json"""
    random: Path
    """run directory of fine-tuning from random weights, with predictions.json"""
    dataset: Path
    """the dataset that predictions.json answers"""
    output: Path
    """output folder for report.json and curves.png"""
    require_exact_match: Annotated[float, Range(0, 100)] = 0.0
    """minimum exact match of the pretrained model, in percent; less is an error"""
    require_gain: Annotated[float, Range(-100, 100)] = 0.0
    """minimum gain in F1 by pretraining, in percentage points; less is an error"""

    def __post_init__(self) -> None:
        ranges.check(self)


def summarize(options: Options, dataset: Dataset, phases: list[Metrics]) -> dict[str, Any]:
    """Return the figures of report.json."""
    scores = {
        start: asdict(metric.score(dataset.examples, metric.read_predictions(run / "predictions.json")))
        for start, run in (("pretrained", options.pretrained), ("random", options.random))
    }
    pretraining = [
        {"name": run.name} | as_json(metrics.figures())
        for run, metrics in zip(options.pretraining, phases, strict=True)
    ]
    return {"pretraining": pretraining, "squad": scores}


def table(summary: dict[str, Any]) -> str:
    """Return the figures as text."""
    rows = [f"{'pretraining':<24}{'steps':>8}{'tokens/s':>12}{'MLM acc.':>12}{'NSP acc.':>12}"]
    for phase in summary["pretraining"]:
        accuracies = "".join(f"{float(phase.get(key, 'nan')):>12.1f}" for key in ("mlm_accuracy", "nsp_accuracy"))
        speed = float(phase.get("tokens_per_second", "nan"))
        rows.append(f"{phase['name']:<24}{phase['steps']:>8,}{speed:>12,.0f}{accuracies}")
    rows.append(f"\n{'questions':<24}{'count':>8}{'EM':>12}{'F1':>12}")
    for start, score in summary["squad"].items():
        name = f"from {start} weights"
        rows.append(f"{name:<24}{score['total']:>8,}{score['exact_match']:>12.1f}{score['f1']:>12.1f}")
    return "\n".join(rows)


def example_of(dataset: Dataset, right: dict[str, str], wrong: dict[str, str]) -> Example:
    """Return the first question that only the pretrained model answers correctly, or else the first question."""

    def solves(question: Example, predictions: dict[str, str]) -> bool:
        return any(metric.exact_match(predictions.get(question.id, ""), gold.text) for gold in question.answers)

    distinguishing = (
        question for question in dataset.examples if solves(question, right) and not solves(question, wrong)
    )
    return next(distinguishing, dataset.examples[0])


def show(dataset: Dataset, question: Example, answer: str, bold: bool) -> str:
    """Return the question and its passage, with the answer marked at a gold answer or else at its first occurrence."""
    passage = dataset.passages[question.passage]
    starts = [gold.start for gold in question.answers if passage.startswith(answer, gold.start)]
    start = starts[0] if starts else passage.find(answer)
    before, after = (BOLD, PLAIN) if bold else ("[[", "]]")
    marked = f"{passage[:start]}{before}{answer}{after}{passage[start + len(answer) :]}"
    return f"question   {question.question}\npassage    {marked}"


def check(scores: dict[str, dict[str, float]], options: Options) -> None:
    """Raise IntegrityError if the scores are below the required ones."""
    score, gain = scores["pretrained"]["exact_match"], scores["pretrained"]["f1"] - scores["random"]["f1"]
    remedy = f"check the losses in {options.output / 'curves.png'}"
    if score < options.require_exact_match:
        raise IntegrityError(f"exact match is {score:.1f}, below {options.require_exact_match:g}; {remedy}")
    if gain < options.require_gain:
        raise IntegrityError(f"pretraining gained {gain:.1f} points of F1, below {options.require_gain:g}; {remedy}")


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m squad.report", description=__doc__)
    dataset = examples.read_dataset(options.dataset)
    phases = [read_metrics(run) for run in options.pretraining]
    summary = summarize(options, dataset, phases)
    options.output.mkdir(parents=True, exist_ok=True)
    report, curves = options.output / "report.json", options.output / "curves.png"
    files.write_json(report, summary)
    begins = itertools.accumulate((metrics.last_step for metrics in phases), initial=0)
    runs = zip(options.pretraining, phases, begins, strict=False)
    draw([Plotted(run.name, metrics, begin) for run, metrics, begin in runs], curves)
    right, wrong = (metric.read_predictions(run / "predictions.json") for run in (options.pretrained, options.random))
    question = example_of(dataset, right, wrong)
    print(f"{table(summary)}\n\n{show(dataset, question, right[question.id], bold=sys.stdout.isatty())}\n")
    print(f"curves     {curves}\nreport     {report}")
    check(summary["squad"], options)


if __name__ == "__main__":
    cli.main(main)
