"""Compare fine-tuning on tasks with transformers in a plain PyTorch loop: scores over seeds, speed.

    python -m benchmarks.task_scores --checkpoint workdir/minilm --data glue --tasks cola mrpc rte --seeds 1 2 3 4 5 \\
        --peer_python .venv-parity/bin/python --output workdir/benchmarks/tasks
    python -m benchmarks.task_scores --tasks classify --train TRAIN.tsv --dev DEV.tsv --checkpoint ...

`--data` has a folder for each task, as GLUE names them, or is the folder of RACE or of CoNLL-2003. `--train` and
`--dev` are your own files, for the recipes classify, regress, choose or tag.

For each seed both start from the encoder of `--checkpoint` (from `python -m bert.convert import`) and the same randomly
initialised head. They have the same examples, number of updates, batch size, learning rates, hyperparameters and
threads, and run one after the other. Each makes its own tokens, draws its own order in each epoch and its own dropout.
`tasks.evaluate` scores both on the development set. Prints a line of JSON for each run, and a table: mean and deviation
over the seeds, and the standard error of the difference of the means. Figures of speed need `--order grouped`: ours
groups by length, and a shuffled batch has more padding.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks.fine_tuning import Comparison, learning, measured, run_peer, train_ours, write_start
from bert.core import cli, files
from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from bert.core.ranges import Range
from bert.text.records import Dataset
from bert.text.tokenization import tokenizer_for
from tasks import datasets, features, loading, scoring
from tasks import model as trained
from tasks.config import TaskConfig, TaskData
from tasks.examples import Skipped
from tasks.recipes import RECIPES
from tasks.stored import ExampleKind

SIDES = ("ours", "transformers")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Comparison):
    """Flags of `python -m benchmarks.task_scores`."""

    data: Path | None = None
    """folder of the data sets"""
    train: Path | None = None
    """your own training examples, instead of --data"""
    dev: Path | None = None
    """your own examples to score, with --train"""
    tasks: tuple[str, ...] = ("cola", "mrpc", "rte")
    """recipes of tasks/recipes.py"""
    seeds: tuple[Annotated[int, Range(0, 2**31)], ...] = (1, 2, 3, 4, 5)
    """seeds for the head, the order and dropout"""
    epochs: Annotated[float, Range(0, 1e6, above=True)] = 3.0
    """passes over the training examples"""
    dev_limit: Annotated[int, Range(0, 10**9)] = 0
    """number of development examples to score, from the first on; 0: all"""
    length: Annotated[int, Range(0, 65_536)] = 0
    """tokens of an input; 0: those of the recipe"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.data is None) == (self.train is None) or (self.train is None) != (self.dev is None):
            raise UsageError("give either --data, or --train and --dev")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """One task with one seed."""

    options: Options
    task: str
    seed: int
    folder: Path
    config: TaskConfig
    records: Path
    kind: ExampleKind

    @property
    def steps(self) -> int:
        """Number of updates."""
        return math.ceil(self.options.epochs * len(Dataset(self.records, "train")) / self.options.batch)


def prepare(options: Options, task: str, seed: int) -> Work:
    """Write the records of a task, and the run directory that both start from."""
    config, vocab = RECIPES[task](), options.checkpoint / "vocab.txt"
    model = ModelConfig.load(options.checkpoint / "bert_config.json")
    length = options.length or config.data.length
    data = dataclasses.replace(
        config.data,
        folder=options.data,
        train=options.train,
        dev=options.dev,
        limit=options.limit,
        length=length,
    )
    records = features.build(data, tokenizer_for(vocab, model), vocab, options.output)
    kind, folder = features.kind(data, records), options.output / task / f"seed-{seed}"
    start = folder / "start"
    if not start.exists():
        description = {"version": 2, "config": {}} | loading.entries(kind)
        write_start(start, options.checkpoint, kind.model(model, seed), ("pooler", kind.head.name), description)
    config = dataclasses.replace(config, data=data)
    return Work(options=options, task=task, seed=seed, folder=folder, config=config, records=records, kind=kind)


def ours(work: Work) -> Path:
    """Fine-tune in our trainer; return the run directory."""
    more = {f"data.{name}": path for name in ("folder", "train", "dev") if (path := getattr(work.config.data, name))}
    more |= {"data.length": work.config.data.length, "run.evaluate_every": 0, "length.evaluations": 0}
    return train_ours(("tasks.train", work.task), work.folder, work.options, work.steps, work.seed, more)


def peer(work: Work) -> Path:
    """Fine-tune in a plain loop of PyTorch; return a run directory with its weights."""
    settings = learning(work.config.optimizer, work.steps, work.options.learning_rate)
    settings |= {"length": work.config.data.length, "seed": work.seed}
    return run_peer(work.folder, work.options, raw_examples(work.config.data), settings)


def raw_examples(data: TaskData) -> Iterator[dict[str, Any]]:
    """Yield the training examples as the peer gets them: texts, and the names of labels."""
    read = datasets.of(data).read(data, datasets.sources(data)["train"], "train", Skipped())
    return map(dataclasses.asdict, features.limited(read, data.limit))


def scored(run: Path, work: Work) -> dict[str, Any]:
    """Return the scores of a run on the development set, computed in float32 whatever it was trained in."""
    fine_tuned = dataclasses.replace(loading.load(run), kind=work.kind)
    path, reader = datasets.sources(work.config.data)["dev"], trained.Reader(fine_tuned, work.options.batch)
    return scoring.evaluate(fine_tuned, reader, path, Skipped(), work.options.dev_limit)


def measure(work: Work, side: str) -> dict[str, Any]:
    """Return the figures of one run; they are read if it is finished."""
    stored = work.folder / f"{side}.json"
    if stored.exists():
        figures: dict[str, Any] = files.read_json(stored)
        return figures
    run = (ours if side == "ours" else peer)(work)
    rates = measured(work.folder / side, "sequences_per_second")[work.steps // 2 :]  # all widths are compiled by then
    figures = {"task": work.task, "seed": work.seed, "side": side, "steps": work.steps, **scored(run, work)}
    figures["sequences_per_second"] = float(1 / np.mean(1 / rates))
    files.write_json(stored, figures)
    return figures


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table of all runs."""
    rows = [
        "| task | score | ours | transformers | difference | its standard error | ours, sequences/s | transformers | "
        "ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for task in dict.fromkeys(line["task"] for line in lines):
        both = [[line for line in lines if (line["task"], line["side"]) == (task, side)] for side in SIDES]
        speeds = [statistics.median(line["sequences_per_second"] for line in side) for side in both]
        for metric in datasets.KNOWN[task].metrics:
            values = [[line[metric] for line in side] for side in both]
            means = [statistics.fmean(side) for side in values]
            spread = [statistics.stdev(side) if len(side) > 1 else 0.0 for side in values]
            error = math.sqrt(sum(deviation**2 / len(side) for deviation, side in zip(spread, values, strict=True)))
            cells = [
                task,
                metric,
                *(f"{mean:.2f} +- {deviation:.2f}" for mean, deviation in zip(means, spread, strict=True)),
                f"{means[0] - means[1]:+.2f}",
                f"{error:.2f}",
                *(f"{speed:.1f}" for speed in speeds),
                f"{speeds[0] / speeds[1]:.2f}",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.task_scores", description=__doc__)
    lines = []
    for seed in options.seeds:
        for task in options.tasks:
            work = prepare(options, task, seed)
            for side in SIDES:
                lines.append(measure(work, side))
                print(json.dumps(lines[-1]), flush=True)
    print(table(lines))


if __name__ == "__main__":
    cli.main(main)
