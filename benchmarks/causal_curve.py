"""Train the same causal model with bert.pretrain and in a plain PyTorch loop; compare the held-out loss.

    python -m benchmarks.causal_curve --tokens workdir/tokens --output workdir/benchmarks/causal \\
        --peer_python .venv-parity/bin/python --updates 600

Both have the same initial weights, batches, learning rates, optimizer and held-out samples, no dropout, and one core.
The peer is GPT2LMHeadModel of transformers with torch's fused AdamW. They run at the same time. The clock is the CPU
time of each process, with everything in it: start, compilation, evaluation and checkpoints. So it does not matter if
other programs take some of the machine. Prints a table of the held-out loss in nats for each token, the bits for each
byte, and the perplexity for each token, after equal updates and after equal CPU time.
"""

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bert import cli, ranges
from bert.causal.task import CausalLM
from bert.config import BatchConfig, ModelConfig, PretrainConfig
from bert.errors import UserError
from bert.inputs import sampler
from bert.inputs.token_stream import TokenStream
from bert.model.encoder import variables
from bert.ranges import Range
from bert.recipes import RECIPES
from bert.storage import files
from bert.training import checkpoint, schedule
from bert.training.metrics import NAME as METRICS

PEER, RECIPE = "benchmarks.peers.transformers_causal", "gpt2_smoke"
POLL = 0.2  # seconds between looks at a run's metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.causal_curve`."""

    tokens: Path
    """folder made by python -m data.tokens"""
    output: Path
    """output folder, which must be empty"""
    peer_python: Path
    """interpreter with torch and transformers (requirements-parity.txt)"""
    updates: Annotated[int, Range(1, 10**9)] = 600
    """number of updates"""
    layers: Annotated[int, Range(1, 1000)] = 4
    """layers of the model"""
    width: Annotated[int, Range(64, 65_536)] = 256
    """width of the model; a head has 64"""
    length: Annotated[int, Range(16, 65_536)] = 256
    """tokens of a sequence"""
    sequences: Annotated[int, Range(1, 1_000_000)] = 32
    """sequences of an update"""
    learning_rate: Annotated[float, Range(0, 100)] = 1.5e-3
    """peak learning rate, reached after a tenth of the updates; it falls along a cosine to a tenth of it"""
    evaluate_every: Annotated[int, Range(1, 10**9)] = 50
    """updates between evaluations"""
    heldout: Annotated[int, Range(1, 10**9)] = 128
    """held-out sequences of an evaluation"""

    def __post_init__(self) -> None:
        ranges.check(self)


def configuration(options: Options, vocab_size: int) -> PretrainConfig:
    """Return the configuration of our run."""
    recipe = RECIPES[RECIPE]()
    model = dataclasses.replace(
        recipe.model,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        intermediate_size=4 * options.width,
        max_position_embeddings=options.length,
        initializer_range=0.02,
        vocab_size=vocab_size,
    )
    optimizer = dataclasses.replace(
        recipe.optimizer,
        learning_rate=options.learning_rate,
        minimum_rate=options.learning_rate / 10,
        warmup_steps=options.updates // 10,
        decay_steps=0,
    )
    run = dataclasses.replace(
        recipe.run,
        steps=options.updates,
        log_every=options.evaluate_every,
        save_every=options.updates,
        evaluate_every=options.evaluate_every,
        evaluate_sequences=options.heldout,
        directory=options.output / "ours",
        device="cpu",
    )
    batch = BatchConfig(total=options.sequences, per_device=min(16, options.sequences))
    return dataclasses.replace(recipe, model=model, optimizer=optimizer, run=run, batch=batch)


def write_start(options: Options, config: PretrainConfig) -> Path:
    """Write the initial weights as a run directory, and in the format of transformers; return the folder of the latter.

    They are a function of the seed, so our run begins with the same ones.
    """
    start, exported = options.output / "start", options.output / "start_torch"
    start.mkdir()
    config.model.save(start / "bert_config.json")
    (start / "tokenizer.json").write_bytes((options.tokens / "tokenizer.json").read_bytes())
    checkpoint.save(start, 0, variables(CausalLM(config.model, config.run.seed).module), keep=1)
    command = [sys.executable, "-m", "bert.convert", "export", "huggingface", str(start), str(exported)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return exported


def write_work(options: Options, config: PretrainConfig, weights: Path) -> Path:
    """Write what the peer needs: the tokens of all updates and evaluations, and the settings; return the settings."""
    train, heldout = (TokenStream(options.tokens, split, options.length) for split in ("train", "heldout"))
    positions = np.arange(options.updates * options.sequences)
    order = sampler.SampleOrder(len(train), options.sequences, config.run.seed)(positions)
    np.save(options.output / "train.npy", train.read(order)["input_ids"].numpy())
    samples = sampler.evaluated(len(heldout), options.heldout)
    np.save(options.output / "heldout.npy", heldout.read(samples)["input_ids"].numpy())
    optimizer = config.optimizer
    rates = [schedule.learning_rate(done, optimizer, options.updates) for done in range(options.updates)]
    work = {
        "weights": str(weights),
        "train": str(options.output / "train.npy"),
        "heldout": str(options.output / "heldout.npy"),
        "output": str(options.output / "torch.jsonl"),
        "rates": rates,
        "sequences": options.sequences,
        "micro_batch": config.batch.per_device,
        "evaluate_every": options.evaluate_every,
        "betas": [optimizer.beta_1, optimizer.beta_2],
        "epsilon": optimizer.epsilon,
        "weight_decay": optimizer.weight_decay,
        "clip_norm": optimizer.clip_norm,
    }
    files.write_json(options.output / "work.json", work)
    return options.output / "work.json"


def command_of_ours(options: Options, config: PretrainConfig) -> list[str]:
    """Return the command of our run."""
    flags = {
        "data.train": options.tokens,
        **{f"run.{name}": getattr(config.run, name) for name in ("steps", "log_every", "save_every", "evaluate_every")},
        "run.evaluate_sequences": config.run.evaluate_sequences,
        "run.directory": config.run.directory,
        "run.device": "cpu",
        "batch.total": config.batch.total,
        "batch.per_device": config.batch.per_device,
        **{f"optimizer.{name}": getattr(config.optimizer, name) for name in ("learning_rate", "minimum_rate")},
        "optimizer.warmup_steps": config.optimizer.warmup_steps,
    }
    default = RECIPES[RECIPE]().model
    for field in dataclasses.fields(ModelConfig):
        if (value := getattr(config.model, field.name)) != getattr(default, field.name) and field.name != "vocab_size":
            flags[f"model.{field.name}"] = value
    words = [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
    return [sys.executable, "-m", "bert.pretrain", RECIPE, *words]


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process with all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_both(options: Options, config: PretrainConfig, work: Path) -> list[dict[str, Any]]:
    """Train with both at the same time; return the points of our curve, {"step", "loss", "cpu", "wall"}."""
    cores = sorted(os.sched_getaffinity(0))
    environment = dict(os.environ) | {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    peer_command = [str(options.peer_python), "-m", PEER, str(work)]
    begun, points = time.perf_counter(), list[dict[str, Any]]()
    with contextlib.ExitStack() as stack:
        processes = []
        for number, command in enumerate((command_of_ours(options, config), peer_command)):
            log = stack.enter_context(open(options.output / f"{('ours', 'torch')[number]}.log", "w"))
            core = f"{cores[number % len(cores)]}"
            process = subprocess.Popen(["taskset", "-c", core, *command], stdout=log, stderr=log, env=environment)
            stack.callback(process.kill)
            processes.append(process)
        ours, peer = processes
        spent = 0.0
        while ours.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                spent = cpu_seconds(ours.pid)
            for line in _heldout(options.output / "ours" / METRICS)[len(points) :]:
                points.append(line | {"cpu": spent, "wall": time.perf_counter() - begun})
            time.sleep(POLL)
        for line in _heldout(options.output / "ours" / METRICS)[len(points) :]:
            points.append(line | {"cpu": spent, "wall": time.perf_counter() - begun})
        if ours.returncode or peer.wait():
            raise UserError(f"a program failed; see the logs in {options.output}")
    return points


def _heldout(path: Path) -> list[dict[str, Any]]:
    """Return step and loss of the held-out lines of a metrics.jsonl; a line that is being written is left out."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    parsed = (json.loads(line) for line in lines)
    return [{"step": line["step"], "loss": line["loss"]} for line in parsed if line["split"] == "heldout"]


def table(ours: list[dict[str, Any]], peer: list[dict[str, Any]], tokens: int, bits: float) -> str:
    """Return the table of both curves. tokens: of an update. bits: for each byte, of a loss of 1 nat for each token."""
    rows = [
        "| updates | million tokens | ours: nats/token | PyTorch: nats/token | difference | ours: bits/byte | "
        "ours: perplexity | ours: CPU s | PyTorch: CPU s | ours after PyTorch's CPU time: nats/token |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for mine, theirs in zip(ours, peer, strict=False):
        before = [point for point in ours if point["cpu"] <= theirs["cpu"]]
        cells = [
            f"{mine['step']}",
            f"{mine['step'] * tokens / 1e6:.2f}",
            f"{mine['loss']:.4f}",
            f"{theirs['loss']:.4f}",
            f"{mine['loss'] / theirs['loss'] - 1:+.2%}",
            f"{mine['loss'] * bits:.3f}",
            f"{math.exp(mine['loss']):.1f}",
            f"{mine['cpu']:.0f}",
            f"{theirs['cpu']:.0f}",
            f"{before[-1]['loss']:.4f} ({before[-1]['step']} updates)" if before else "",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.causal_curve", description=__doc__)
    options.output.mkdir(parents=True)
    heldout = TokenStream(options.tokens, "heldout", options.length)
    config = configuration(options, heldout.vocab_size)
    ours = run_both(options, config, write_work(options, config, write_start(options, config)))
    (options.output / "ours.jsonl").write_text("".join(json.dumps(point) + "\n" for point in ours))
    peer = [json.loads(line) for line in (options.output / "torch.jsonl").read_text().splitlines()]
    bits = heldout.tokens / heldout.text_bytes / math.log(2)
    print(table(ours, peer, options.sequences * options.length, bits))


if __name__ == "__main__":
    cli.main(main)
