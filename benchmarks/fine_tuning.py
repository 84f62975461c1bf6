"""One fine-tuning in our trainer and one in a plain PyTorch loop of transformers, for benchmarks/task_scores.py."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf

from bert.core import files, ranges
from bert.core.config import ModelConfig, OptimizerConfig
from bert.core.errors import UserError
from bert.core.ranges import BatchSize, Range
from bert.model.encoder import variables
from bert.training import checkpoint, schedule

PEER = "benchmarks.peers.transformers_fine_tuning"
WARMUP = 0.1  # share of the updates

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


def learning(optimizer: OptimizerConfig, steps: int, peak: float) -> dict[str, Any]:
    """Return our trainer's rate of each update and settings of AdamW, for the peer."""
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


def measured(run: Path, name: str) -> np.ndarray:
    """A measure of each update [steps]."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return np.array([line[name] for line in lines if line["split"] == "train"])


def flags_of(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def run_checked(command: Sequence[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise UserError(f"{' '.join(command[:4])} failed; see its message above")
