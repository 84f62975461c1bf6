"""Compare fine-tuning on SQuAD with transformers in a plain PyTorch loop: scores and speed.

    python -m benchmarks.squad_scores --checkpoint workdir/minilm --train_file train-v1.1.json \\
        --dev_file dev-v1.1.json --output workdir/benchmarks/squad --peer_python .venv-parity/bin/python --steps 500

Both start from the encoder of `--checkpoint` (from `python -m bert.convert import`) and the same randomly initialised
head. They have the same windows, batches, learning rates, hyperparameters and threads, and run one after the other.
`squad.predict` answers with both models. Only the random numbers of dropout differ: with `--dropout 0` the losses of
each update should agree. Prints one line of JSON for each.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bert import cli, ranges
from bert.config import BatchConfig, ModelConfig, OptimizerConfig
from bert.errors import UserError
from bert.inputs import sampler
from bert.inputs.records import Dataset
from bert.inputs.tokenization import tokenizer_for
from bert.model.encoder import variables
from bert.ranges import BatchSize, Range, Seed
from bert.storage import files
from bert.training import checkpoint, schedule
from squad import examples, features, metric
from squad.config import SquadConfig, SquadData
from squad.model import QuestionAnswering
from squad.recipes import RECIPES

PEER = "benchmarks.peers.transformers_fine_tuning"
RECIPE, WARMUP = "squad_base", 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.squad_scores`."""

    checkpoint: Path
    """run directory with the initial weights"""
    train_file: Path
    """SQuAD training set"""
    dev_file: Path
    """SQuAD development set"""
    output: Path
    """output folder; existing results are kept"""
    peer_python: Path
    """interpreter with torch and transformers (requirements-parity.txt)"""
    steps: Annotated[int, Range(1, 10**9)] = 500
    """number of updates"""
    batch: BatchSize = 16
    """windows per update"""
    learning_rate: Annotated[float, Range(0, 100)] = 1e-4
    """peak learning rate, reached after a tenth of the updates"""
    compute: str = "bfloat16"
    """data type of matrix products; for the peer by torch.autocast"""
    dropout: Annotated[float, Range(0, 0.99)] = 0.1
    """dropout probability"""
    seed: Seed = 12345
    """seed for the order of windows, the head and dropout"""

    def __post_init__(self) -> None:
        ranges.check(self)


def start(options: Options) -> Path:
    """Write the run directory that both start from: the checkpoint's encoder and a randomly initialised head."""
    config = dataclasses.replace(
        ModelConfig.load(options.checkpoint / "bert_config.json"),
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
    )
    model, run = QuestionAnswering(config, options.seed), options.output / "start"
    checkpoint.load_weights(options.checkpoint, variables(model), new_heads=("answer_span",))
    run.mkdir(parents=True)
    config.save(run / "bert_config.json")
    shutil.copyfile(options.checkpoint / "vocab.txt", run / "vocab.txt")
    checkpoint.save(run, 0, variables(model), keep=1)
    return run


def ours(options: Options, begin: Path) -> Path:
    """Fine-tunes in our trainer; returns its run directory."""
    run = options.output / "ours"
    settings = {
        "init.checkpoint": begin,
        "data.train_file": options.train_file,
        "run.directory": run,
        "run.steps": options.steps,
        "run.seed": options.seed,
        "run.save_every": options.steps,
        "run.log_every": 1,
        "batch.total": options.batch,
        "batch.per_device": options.batch,
        "precision.compute": options.compute,
        "optimizer.name": "adamw",
        "optimizer.learning_rate": options.learning_rate,
        "optimizer.warmup_steps": int(options.steps * WARMUP),
    }
    run_checked([sys.executable, "-m", "squad.train", RECIPE, *flags_of(settings)])
    return run


def peer(options: Options, begin: Path) -> Path:
    """Fine-tunes in a plain loop of PyTorch; returns a run directory with its weights."""
    exported, trained, run = (options.output / name for name in ("exported", "transformers", "peer"))
    run_checked([sys.executable, "-m", "bert.convert", "export", "huggingface", str(begin), str(exported)])
    sampler, learning = write_updates(options)
    run_checked(
        [
            str(options.peer_python.absolute()),
            "-m",
            PEER,
            *map(str, (exported, sampler, learning, trained)),
            options.compute,
            str(options.seed),
        ]
    )
    run_checked([sys.executable, "-m", "bert.convert", "import", "huggingface", str(trained), str(run)])
    return run


def write_updates(options: Options) -> tuple[Path, Path]:
    """Files of what our trainer reads in each update, and of the rates and hyperparameters that it learns with."""
    recipe: SquadConfig = RECIPES[RECIPE]()
    vocab = options.checkpoint / "vocab.txt"
    tokenizer = tokenizer_for(vocab, ModelConfig.load(options.checkpoint / "bert_config.json"))
    data = SquadData(train_file=options.train_file)
    folder = features.training_set(data, tokenizer, vocab, recipe.windows, options.output)
    batch = BatchConfig(total=options.batch, per_device=options.batch, bucket_by_length=recipe.batch.bucket_by_length)
    return save_updates(
        options.output,
        Dataset(folder, "train"),
        batch,
        recipe.optimizer,
        seed=options.seed,
        steps=options.steps,
        peak=options.learning_rate,
    )


def save_updates(
    folder: Path, data: Dataset, batch: BatchConfig, learnt: OptimizerConfig, *, seed: int, steps: int, peak: float
) -> tuple[Path, Path]:
    """Write what our trainer reads in each update, and the rates and hyperparameters of AdamW; return both files."""
    given: dict[str, np.ndarray] = {}
    for number, (rows,) in enumerate(sampler.BatchSampler(data, batch, seed).iterate(0, steps)):
        given |= {f"{number}/{name}": value.numpy() for name, value in rows.items()}
    warmup = int(steps * WARMUP)
    rates = [schedule.polynomial(done, peak=peak, warmup_steps=warmup, steps=steps) for done in range(steps)]
    adamw = [learnt.beta_1, learnt.beta_2, learnt.epsilon, learnt.weight_decay, learnt.clip_norm]
    batches, learning = folder / "batches.npz", folder / "learning.npz"
    np.savez(batches, allow_pickle=False, **given)
    np.savez(learning, allow_pickle=False, rates=rates, adamw=adamw)
    return batches, learning


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
    begin, late = start(options), slice(options.steps // 2, None)  # late: all widths are compiled by then
    losses: dict[str, np.ndarray] = {}
    for name, train in (("ours", ours), ("transformers", peer)):
        run = train(options, begin)
        losses[name] = measured(options.output / name, "loss")
        line = {
            "name": name,
            "steps": options.steps,
            **scored(run, options),
            "windows_per_second": float(1 / np.mean(1 / measured(options.output / name, "sequences_per_second")[late])),
            "loss": float(losses[name][-max(1, options.steps // 10) :].mean()),  # of the last tenth
            "most_apart": float(np.abs(losses[name] - losses["ours"]).max()),
        }
        print(json.dumps(line), flush=True)
        with files.exclusive(options.output), open(options.output / "scores.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    cli.main(main)
