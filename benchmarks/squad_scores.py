"""The same fine-tuning through our trainer and through transformers' model in a plain PyTorch loop: scores and speed.

    python -m benchmarks.squad_scores --checkpoint workdir/minilm --train_file train-v1.1.json \\
        --dev_file dev-v1.1.json --output workdir/benchmarks/squad --peer_python .venv-parity/bin/python --steps 500

Both start from the encoder of `--checkpoint` (made by `python -m bert.convert import`) and a random head, take the same
windows in the same batches with the same learning rates and hyperparameters, one after the other with the same threads,
and give a model whose answers `squad.predict` reads. Prints one JSON line for each.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert import batches, cli, files, schedule
from bert.config import BatchConfig, ModelConfig
from bert.errors import UserError
from bert.records import Dataset
from bert.tokenization import tokenizer_for
from bert.world import World
from squad import examples, features, metric
from squad.config import SquadConfig, SquadData
from squad.recipes import RECIPES

PEER = Path(__file__).parent / "peers" / "transformers_squad.py"
RECIPE, WARMUP = "squad_base", 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.squad_scores`."""

    checkpoint: Path
    """run directory with the weights to start from"""
    train_file: Path
    """SQuAD training set"""
    dev_file: Path
    """SQuAD development set"""
    output: Path
    """folder to write; what it holds is left as it is"""
    peer_python: Path
    """an interpreter with torch and transformers (requirements-parity.txt)"""
    steps: int = 500
    """updates"""
    batch: int = 16
    """windows an update"""
    learning_rate: float = 1e-4
    """peak, after a tenth of the updates"""
    compute: str = "bfloat16"
    """type of matrix products; the peer's is torch.autocast's"""
    seed: int = 12345
    """of the order of windows, the heads and dropout"""


def ours(options: Options) -> Path:
    """Fine-tunes in our trainer; returns its run directory."""
    run = options.output / "ours"
    settings = {
        "init.checkpoint": options.checkpoint, "data.train_file": options.train_file, "run.directory": run,
        "run.steps": options.steps, "run.seed": options.seed, "run.save_every": options.steps, "run.log_every": 10,
        "batch.total": options.batch, "batch.per_device": options.batch, "precision.compute": options.compute,
        "optimizer.name": "adamw", "optimizer.learning_rate": options.learning_rate,
        "optimizer.warmup_steps": int(options.steps * WARMUP),
    }  # fmt: skip
    _run([sys.executable, "-m", "squad.train", RECIPE, *_flags(settings)])
    return run


def peer(options: Options) -> Path:
    """Fine-tunes in a plain loop of PyTorch; returns a run directory with its weights."""
    start, work, run = options.output / "start", options.output / "transformers", options.output / "peer"
    _run([sys.executable, "-m", "bert.convert", "export", "huggingface", str(options.checkpoint), str(start)])
    write_batches(options, options.output / "batches.npz")
    _run([str(options.peer_python), str(PEER), str(start), str(options.output / "batches.npz"), str(work),
          options.compute, str(options.seed)])  # fmt: skip
    _run([sys.executable, "-m", "bert.convert", "import", "huggingface", str(work), str(run)])
    return run


def write_batches(options: Options, path: Path) -> None:
    """What our trainer reads in each update, and the rates and hyperparameters that it learns with."""
    recipe: SquadConfig = RECIPES[RECIPE]()
    vocab = options.checkpoint / "vocab.txt"
    tokenizer = tokenizer_for(vocab, ModelConfig.load(options.checkpoint / "bert_config.json"))
    data = SquadData(train_file=options.train_file)
    folder = features.training_set(data, tokenizer, vocab, recipe.windows, options.output)
    batch = BatchConfig(total=options.batch, per_device=options.batch, group=recipe.batch.group)
    given: dict[str, Any] = {}
    taken = batches.Batches(Dataset(folder, "train"), batch, World(), options.seed).iterate(0, options.steps)
    for number, (rows,) in enumerate(taken):
        given |= {f"{number}/{name}": value.numpy() for name, value in rows.items()}
    warmup = int(options.steps * WARMUP)
    given["rates"] = [
        schedule.polynomial(done, peak=options.learning_rate, warmup_steps=warmup, steps=options.steps)
        for done in range(options.steps)
    ]
    learnt = recipe.optimizer
    given["adamw"] = [learnt.beta_1, learnt.beta_2, learnt.epsilon, learnt.weight_decay, learnt.clip_norm]
    np.savez(path, **given)


def scored(run: Path, options: Options) -> dict[str, float]:
    """Scores of a run's answers to the development set."""
    answers = options.output / f"{run.name}.json"
    _run([sys.executable, "-m", "squad.predict", "--model", str(run), "--dataset", str(options.dev_file),
          "--output", str(answers), "--compute", options.compute])  # fmt: skip
    questions = examples.read(options.dev_file).examples
    return dataclasses.asdict(metric.score(questions, json.loads(answers.read_text(encoding="utf-8"))))


def speed(run: Path) -> dict[str, float]:
    """Windows a second of a run's later half, where all widths are compiled, and the loss of its last tenth."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    train = [line for line in lines if line["split"] == "train"]
    late = train[len(train) // 2 :]
    rates = sorted(line["sequences_per_second"] for line in late)
    last = train[-max(1, len(train) // 10) :]
    return {"windows_per_second": rates[len(rates) // 2], "loss": sum(line["loss"] for line in last) / len(last)}


def _flags(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def _run(command: Sequence[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise UserError(f"{' '.join(command[:4])} failed: its message stands above")


def main(argv: list[str]) -> None:
    """Runs the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.squad_scores", description=__doc__)
    for name, train in (("ours", ours), ("transformers", peer)):
        run = train(options)
        measured = run if name == "ours" else options.output / "transformers"
        line = {"name": name, "steps": options.steps, **scored(run, options), **speed(measured)}
        print(json.dumps(line), flush=True)
        with files.exclusive(options.output), open(options.output / "scores.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    cli.main(main)
