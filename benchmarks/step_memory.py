"""Compare the activations that the planner counts with the memory that a training step on a CPU takes.

    python -m benchmarks.step_memory [--models base large] [--tokens 128 512] [--compute float32] [--recompute]

Every batch runs in a process of its own: some updates on one rank, without XLA for the whole step. The figure is the
most resident memory while gradients are computed, in the last update, above what is resident before it. What does not
depend on the batch (gradients of weights, libraries) is in it; the difference of two batches removes that, and is
compared with the planned difference. TensorFlow's allocator keeps what it has freed, so that a second update would have
no peak: by default the ranks take the C library's instead, which returns arrays of 256 KiB and more to the system.
`--keep_allocator` measures with TensorFlow's own, the high-water mark of the process.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from benchmarks import cases
from benchmarks.contender import ROOT
from bert import cli, ranges
from bert.config import ModelConfig, OptimizerConfig, ParallelConfig, PrecisionConfig, RunConfig
from bert.errors import UsageError, UserError
from bert.plan import model_cost
from bert.ranges import Range
from bert.recipes import RECIPES, SIZES

PREDICTIONS = {128: 20, 512: 77}  # masked words of a sequence
MODELS = cases.MODELS | {"large": dataclasses.replace(SIZES["large"], vocab_size=30_522)}
SYSTEM = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1", "MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "262144"}
UPDATES = 2  # the first creates moments and compiles; the last is measured
GOAL = 0.10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.step_memory`."""

    models: tuple[str, ...] = ("base",)
    """model sizes: tiny, small, base, large"""
    layers: Annotated[int, Range(0, 1000)] = 0
    """layers instead of the model's own; 0: its own"""
    tokens: tuple[Annotated[int, Range(1, 512)], ...] = (128,)
    """tokens of a sequence: 128 or 512"""
    batches: tuple[Annotated[int, Range(1, 4096)], ...] = (8, 24)
    """sequences of a micro-batch; the first is compared with each other one"""
    compute: tuple[str, ...] = ("float32",)
    """types of matrix products"""
    recompute: cli.Switch = False
    """compute activations again in the backward pass"""
    keep_allocator: cli.Switch = False
    """measure with TensorFlow's own allocator"""
    child: cli.Switch = False
    """measure in this process (the command starts itself so)"""

    def __post_init__(self) -> None:
        ranges.check(self)
        for flag, known in (("models", MODELS), ("tokens", PREDICTIONS)):
            if wrong := [name for name in getattr(self, flag) if name not in known]:
                raise UsageError(f"--{flag} {wrong[0]}: one of {' '.join(map(str, known))}")
        if len(self.batches) < 2 and not self.child:
            raise UsageError("--batches: give two or more, whose difference is compared")


def model_of(options: Options, name: str) -> ModelConfig:
    """Return the model of that name with the layers and the recomputation of the flags."""
    model = dataclasses.replace(MODELS[name], recompute_activations=options.recompute)
    return dataclasses.replace(model, num_hidden_layers=options.layers or model.num_hidden_layers)


def planned(model: ModelConfig, compute: str, batch: int, tokens: int) -> float:
    """Return the bytes of activations that the planner counts."""
    config = RECIPES["bert_large_phase1"]()
    config = dataclasses.replace(
        config,
        model=model,
        precision=PrecisionConfig(compute=compute),  # type: ignore[arg-type]
        batch=dataclasses.replace(config.batch, per_device=batch),
    )
    return float(sum(model_cost.activations(config, tokens, PREDICTIONS[tokens], cpu=True).values()))


def resident(key: str) -> int:
    """Return a figure of this process in bytes: "VmRSS" now, or "VmHWM" at most since `forget_peak`."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[key].split()[0]) * 1024


def forget_peak() -> None:
    """Set the high-water mark of this process to what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def measure_here(options: Options) -> None:
    """Print the bytes of a process that trains: while gradients are computed above before, and the peak of all."""
    import tensorflow as tf

    from bert.model.encoder import variables
    from bert.pretrain import Pretraining
    from bert.training.distributed import connect
    from bert.training.distributed_optimizer import optimizer_for
    from bert.training.step import Step

    (name,), (tokens,), (batch,), (compute,) = options.models, options.tokens, options.batches, options.compute
    case = cases.Case("", "pretrain", batch, tokens, PREDICTIONS[tokens])
    arrays = {key: tf.constant(value) for key, value in cases.batches(case)[0].items()}
    run, parallel, precision = RunConfig(device="cpu", seed=1), ParallelConfig(), PrecisionConfig(compute=compute)  # type: ignore[arg-type]
    comm, task = connect(run, parallel), Pretraining(model_of(options, name), seed=1)
    optimizer = optimizer_for(variables(task.module), OptimizerConfig(name="adamw", learning_rate=1e-4), parallel, comm)
    step = Step(task, optimizer, comm, precision, run, parallel)
    whole, before, peaks = 0, 0, list[int]()

    def lap(_: str) -> None:
        peaks.append(resident("VmHWM"))
        forget_peak()

    for number in range(UPDATES):
        before = resident("VmRSS")
        peaks.clear()
        step.update(1 + number, [arrays], 1e-4, lap=lap)
        whole = max(whole, *peaks)
    print(json.dumps({"gradients": max(peaks) - before, "whole": whole}))


def measure(options: Options, name: str, tokens: int, compute: str, batch: int) -> dict[str, int]:
    """Return what a process of its own prints."""
    words = ["--child", "--models", name, "--layers", str(options.layers), "--tokens", str(tokens)]
    words += ["--compute", compute, "--batches", str(batch), *(["--recompute"] if options.recompute else [])]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | ({} if options.keep_allocator else SYSTEM)
    command = [sys.executable, "-m", "benchmarks.step_memory", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{name} with {batch} sequences ended with exit code {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: list[str]) -> None:
    """Print the table."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.step_memory", description=__doc__)
    if options.child:
        measure_here(options)
        return
    key = "whole" if options.keep_allocator else "gradients"
    print("| step | sequences | measured, MiB more | planned, MiB more | error |\n|---|---|---|---|---|")
    for name, tokens, compute in [(a, b, c) for a in options.models for b in options.tokens for c in options.compute]:
        model, (first, *others) = model_of(options, name), options.batches
        base = measure(options, name, tokens, compute, first)[key]
        for batch in others:
            found = measure(options, name, tokens, compute, batch)[key] - base
            more = planned(model, compute, batch, tokens) - planned(model, compute, first, tokens)
            text = f"{name}, {model.num_hidden_layers} layers, {tokens} tokens, {compute}"
            text += ", recomputed" if options.recompute else ""
            figures = f"{found / 2**20:,.0f} | {more / 2**20:,.0f} | {more / found - 1:+.1%}"
            print(f"| {text} | {batch} - {first} | {figures} |", flush=True)


if __name__ == "__main__":
    cli.main(main)
