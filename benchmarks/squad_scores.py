"""Compare fine-tuning on SQuAD with transformers in a plain PyTorch loop: scores and speed.

    python -m benchmarks.squad_scores --checkpoint workdir/minilm --train_file train-v1.1.json \\
        --dev_file dev-v1.1.json --output workdir/benchmarks/squad --peer_python .venv-parity/bin/python --steps 500

Both start from the encoder of `--checkpoint` (from `python -m bert.convert import`) and the same randomly initialised
head. They have the same questions, number of updates, batch size, learning rates, hyperparameters and threads, and run
one after the other. Each makes its own windows, draws its own order of them and its own dropout. `squad.predict`
answers with both models. Prints one line of JSON for each.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf

from bert.core import cli, files, ranges
from bert.core.config import ModelConfig, OptimizerConfig
from bert.core.errors import UserError
from bert.core.ranges import BatchSize, Range, Seed
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from bert.training import checkpoint, schedule
from squad import examples, metric
from squad.config import SquadConfig
from squad.model import AnswerSpans
from squad.recipes import RECIPES

PEER = "benchmarks.peers.transformers_fine_tuning"
RECIPE, WARMUP = "squad_base", 0.1

Order = Literal["shuffled", "grouped"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Flags of a comparison of fine-tuning, of any task."""

    checkpoint: Path
    """run directory with the initial weights"""
    output: Path
    """output folder; finished results in it are kept"""
    peer_python: Path
    """interpreter with torch and transformers (scripts/extra_venv.sh parity)"""
    batch: BatchSize = 32
    """sequences per update"""
    learning_rate: Annotated[float, Range(0, 100)] = 1e-4
    """peak learning rate, reached after a tenth of the updates"""
    compute: str = "bfloat16"
    """data type of matrix products; for the peer by torch.autocast"""
    limit: Annotated[int, Range(0, 10**9)] = 0
    """number of training examples, from the first on; 0: all"""
    order: Order = "shuffled"
    """how the peer orders its sequences: shuffled, or grouped by length as its Trainer can do"""

    def __post_init__(self) -> None:
        ranges.check(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Comparison):
    """Flags of `python -m benchmarks.squad_scores`."""

    train_file: Path
    """SQuAD training set"""
    dev_file: Path
    """SQuAD development set"""
    steps: Annotated[int, Range(1, 10**9)] = 500
    """number of updates"""
    batch: BatchSize = 16
    """windows per update"""
    seed: Seed = 12345
    """seed for the order of windows, the head and dropout"""


def write_start(
    run: Path, source: Path, model: tf.Module, new_heads: tuple[str, ...], description: dict[str, Any] | None = None
) -> None:
    """Write the run directory that both start from: the source's encoder and randomly initialised heads.

    description: its config.json, if it needs one.
    """
    config = ModelConfig.load(source / "bert_config.json")
    checkpoint.load_weights(source, variables(model), new_heads=new_heads)
    run.mkdir(parents=True)
    config.save(run / "bert_config.json")
    shutil.copyfile(source / "vocab.txt", run / "vocab.txt")
    if description is not None:
        files.write_json(run / "config.json", description)
    checkpoint.save(run, 0, variables(model), keep=1)


def start(options: Options) -> None:
    """Write the run directory that both start from: the checkpoint's encoder and a randomly initialised head."""
    model = TaskModel(ModelConfig.load(options.checkpoint / "bert_config.json"), options.seed, AnswerSpans.described)
    write_start(options.output / "start", options.checkpoint, model, (AnswerSpans.head.name,))


def train_ours(
    command: tuple[str, str], folder: Path, options: Comparison, steps: int, seed: int, more: dict[str, Any]
) -> Path:
    """Fine-tune `folder`/start in our trainer; return the run directory. command: module and recipe."""
    run = folder / "ours"
    settings = more | {
        "init.checkpoint": folder / "start",
        "data.limit": options.limit,
        "run.directory": run,
        "run.steps": steps,
        "run.seed": seed,
        "run.save_every": steps,
        "run.log_every": 1,
        "batch.total": options.batch,
        "batch.per_device": options.batch,
        "precision.compute": options.compute,
        "optimizer.learning_rate": options.learning_rate,
        "optimizer.warmup_steps": int(steps * WARMUP),
    }
    run_checked([sys.executable, "-m", *command, *flags_of(settings)])
    return run


def ours(options: Options) -> Path:
    """Fine-tune in our trainer; return the run directory."""
    more = {"data.train_file": options.train_file, "optimizer.name": "adamw"}
    return train_ours(("squad.train", RECIPE), options.output, options, options.steps, options.seed, more)


def peer(options: Options) -> Path:
    """Fine-tune in a plain loop of PyTorch; return a run directory with its weights."""
    recipe: SquadConfig = RECIPES[RECIPE]()
    settings = learning(recipe.optimizer, options.steps, options.learning_rate)
    settings |= {"length": recipe.windows.max_seq_length, "seed": options.seed}
    return run_peer(options.output, options, raw_questions(options), settings)


def raw_questions(options: Options) -> Iterator[dict[str, Any]]:
    """Yield the training questions as the peer gets them: texts, and the characters of the answer."""
    read = examples.read_dataset(options.train_file, strict=False)
    read = dataclasses.replace(read, examples=read.examples[: options.limit or None])
    for span in examples.spans(read, impossible=True).spans:
        texts = {"question": span.example.question, "context": read.passages[span.example.passage]}
        yield texts | {"start": span.start, "end": span.end}


def learning(optimizer: OptimizerConfig, steps: int, peak: float) -> dict[str, Any]:
    """Return what the peer learns with, as our trainer: the rate of each update, and the settings of AdamW."""
    warmup = int(steps * WARMUP)
    rates = [schedule.polynomial(done, peak=peak, warmup_steps=warmup, steps=steps) for done in range(steps)]
    same = {name: getattr(optimizer, name) for name in ("epsilon", "weight_decay", "clip_norm")}
    return same | {"betas": [optimizer.beta_1, optimizer.beta_2], "rates": rates}


def run_peer(
    folder: Path, options: Comparison, peer_examples: Iterable[dict[str, Any]], settings: dict[str, Any]
) -> Path:
    """Fine-tune `folder`/start on `peer_examples` in a plain loop of PyTorch; return a run directory.

    settings: those that are not in `options`.
    """
    names = ("exported", "examples.jsonl", "settings.json", "transformers", "peer")
    exported, written, peer_settings, trained, run = (folder / name for name in names)
    run_checked([sys.executable, "-m", "bert.convert", "export", "huggingface", str(folder / "start"), str(exported)])
    with open(written, "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(example) + "\n" for example in peer_examples)
    same = {"batch": options.batch, "order": options.order, "compute": options.compute}
    files.write_json(peer_settings, settings | same)
    run_checked(
        [str(options.peer_python.absolute()), "-m", PEER, *map(str, (exported, written, peer_settings, trained))]
    )
    run_checked([sys.executable, "-m", "bert.convert", "import", "huggingface", str(trained), str(run)])
    return run


def scored(run: Path, options: Options) -> dict[str, float]:
    """Scores of a run's answers to the development set."""
    answers = options.output / f"{run.name}.json"
    run_checked(
        [
            sys.executable,
            "-m",
            "squad.predict",
            "--model",
            str(run),
            "--dataset",
            str(options.dev_file),
            "--output",
            str(answers),
            "--compute",
            options.compute,
        ]
    )
    questions = examples.read_dataset(options.dev_file).examples
    return dataclasses.asdict(metric.score(questions, json.loads(answers.read_text(encoding="utf-8"))))


def measured(run: Path, name: str) -> np.ndarray:
    """A measure of each update [steps]."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return np.array([line[name] for line in lines if line["split"] == "train"])


def flags_of(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def run_checked(command: Sequence[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise UserError(f"{' '.join(command[:4])} failed; see its message above")


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.squad_scores", description=__doc__)
    start(options)
    late = slice(options.steps // 2, None)  # all widths are compiled by then
    for name, train in (("ours", ours), ("transformers", peer)):
        run = train(options)
        losses, rates = (measured(options.output / name, figure) for figure in ("loss", "sequences_per_second"))
        line = {
            "name": name,
            "steps": options.steps,
            **scored(run, options),
            "windows_per_second": float(1 / np.mean(1 / rates[late])),
            "loss": float(losses[-max(1, options.steps // 10) :].mean()),  # of the last tenth
        }
        print(json.dumps(line), flush=True)
        with files.exclusive(options.output), open(options.output / "scores.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    cli.main(main)
