"""What a whole journey came to: figures with and without pretraining, its curves, and one question answered.

    python -m squad.report --pretraining PHASE1 PHASE2 --pretrained RUN --random RUN --dataset DEV.json --output DIR

PHASE1, PHASE2, ... are run directories of bert.pretrain in order; the two others are run directories of squad.train
that hold predictions.json, the answers to DEV.json. Writes report.json and curves.png into DIR, and prints the same as
a table.
"""

import itertools
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert import cli
from bert.errors import IntegrityError
from bert.report import Curve, Lines, draw, figures, read_metrics
from bert.storage import files
from squad import examples, metric
from squad.examples import Dataset, Example

BOLD, PLAIN = "\033[1m", "\033[0m"


@dataclass(frozen=True, kw_only=True)
class Options:
    pretraining: tuple[Path, ...]
    """run directories of the pretraining's phases, in order"""
    pretrained: Path
    """run directory of the fine-tuning from pretrained weights, with predictions.json"""
    random: Path
    """the same from random weights"""
    dataset: Path
    """the questions that were answered"""
    output: Path
    """folder for report.json and curves.png"""
    require_exact_match: float = 0.0
    """fail if the pretrained model has less"""
    require_gain: float = 0.0
    """fail if the pretrained model's F1 is not so much above the random one's"""


def summarize(options: Options, dataset: Dataset, phases: list[Lines]) -> dict[str, Any]:
    """The figures of report.json."""
    scores = {
        start: asdict(metric.score(dataset.examples, metric.read_predictions(run / "predictions.json")))
        for start, run in (("pretrained", options.pretrained), ("random", options.random))
    }
    pretraining = [{"name": run.name} | figures(lines) for run, lines in zip(options.pretraining, phases, strict=True)]
    return {"pretraining": pretraining, "squad": scores}


def table(found: dict[str, Any]) -> str:
    """The figures for a person."""
    rows = [f"{'pretraining':<24}{'steps':>8}{'tokens/s':>12}{'MLM acc.':>12}{'NSP acc.':>12}"]
    for phase in found["pretraining"]:
        accuracies = f"{phase['mlm_accuracy']:>12.1%}{phase['nsp_accuracy']:>12.1%}"
        rows.append(f"{phase['name']:<24}{phase['steps']:>8,}{phase['tokens_per_second']:>12,}{accuracies}")
    rows.append(f"\n{'questions':<24}{'count':>8}{'EM':>12}{'F1':>12}")
    for start, score in found["squad"].items():
        name = f"from {start} weights"
        rows.append(f"{name:<24}{score['total']:>8,}{score['exact_match']:>12.1f}{score['f1']:>12.1f}")
    return "\n".join(rows)


def example_of(dataset: Dataset, right: dict[str, str], wrong: dict[str, str]) -> Example:
    """A question that shows what pretraining did: the first that only the pretrained model answers, else the first."""

    def solves(question: Example, predictions: dict[str, str]) -> bool:
        return any(metric.exact_match(predictions.get(question.id, ""), gold.text) for gold in question.answers)

    telling = (question for question in dataset.examples if solves(question, right) and not solves(question, wrong))
    return next(telling, dataset.examples[0])


def show(dataset: Dataset, question: Example, answer: str, bold: bool) -> str:
    """The question, and its passage with the answer marked where a gold answer stands, or where it occurs first."""
    passage = dataset.passages[question.passage]
    places = [gold.start for gold in question.answers if passage.startswith(answer, gold.start)]
    start = places[0] if places else passage.find(answer)
    before, after = (BOLD, PLAIN) if bold else ("[[", "]]")
    marked = f"{passage[:start]}{before}{answer}{after}{passage[start + len(answer) :]}"
    return f"question   {question.question}\npassage    {marked}"


def check(scores: dict[str, dict[str, float]], options: Options) -> None:
    """Raises IntegrityError if the journey led nowhere."""
    reached, gain = scores["pretrained"]["exact_match"], scores["pretrained"]["f1"] - scores["random"]["f1"]
    where = f"{options.output / 'report.json'} ; look at the losses in curves.png"
    if reached < options.require_exact_match:
        raise IntegrityError(f"exact match is {reached:.1f}, not {options.require_exact_match:g}: {where}")
    if gain < options.require_gain:
        raise IntegrityError(f"pretraining brought {gain:.1f} points of F1, not {options.require_gain:g}: {where}")


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m squad.report", description=__doc__)
    dataset = examples.read(options.dataset)
    phases = [read_metrics(run) for run in options.pretraining]
    found = summarize(options, dataset, phases)
    options.output.mkdir(parents=True, exist_ok=True)
    report, curves = options.output / "report.json", options.output / "curves.png"
    files.write_json(report, found)
    begins = itertools.accumulate((lines[-1]["step"] for lines in phases), initial=0)
    runs = zip(options.pretraining, phases, begins, strict=False)
    draw([Curve(run.name, lines, begin) for run, lines, begin in runs], curves)
    right, wrong = (metric.read_predictions(run / "predictions.json") for run in (options.pretrained, options.random))
    question = example_of(dataset, right, wrong)
    print(f"{table(found)}\n\n{show(dataset, question, right[question.id], bold=sys.stdout.isatty())}\n")
    print(f"curves     {curves}\nreport     {report}")
    check(found["squad"], options)


if __name__ == "__main__":
    cli.main(main)
