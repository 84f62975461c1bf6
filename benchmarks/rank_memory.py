"""Measure the memory that each rank has during training: whole, with a sharded optimizer, and with a model in parts.

    python -m benchmarks.rank_memory [--ranks 4] [--parameters 60]

A model of about so many million parameters is trained on a tiny batch. The figures are those of the system, the mean
over the ranks, above what the process had before the model: the resident memory that a process shares with no other
once weights, gradients and moments exist, the same after some updates, and the peak of all that is resident. What a
layout saves is compared with theory: (ranks - 1) / ranks of the two moments' 8 bytes per parameter with a sharded
optimizer, and with two parts a half of the 16 bytes per parameter of what is divided.
"""

import ctypes
import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from benchmarks import cases
from benchmarks.contender import ROOT
from bert import cli, ranges
from bert.config import ModelConfig, OptimizerConfig, ParallelConfig, PrecisionConfig, RunConfig
from bert.errors import UsageError, UserError
from bert.plan import model_cost
from bert.ranges import Range
from bert.storage import files

BATCH = cases.Case("", "pretrain", 1, 16, 2)
KINDS = {"state": "before the first update", "after": "after the updates", "peak": "the peak"}
LAYOUTS = {
    "whole": ParallelConfig(bucket_megabytes=25),
    "sharded": ParallelConfig(shard_optimizer=True),
    "parts": ParallelConfig(tensor=2),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.rank_memory`."""

    ranks: Annotated[int, Range(2, 64)] = 4
    """ranks on this machine"""
    parameters: Annotated[float, Range(1, 100_000)] = 60.0
    """millions of parameters, about"""
    updates: Annotated[int, Range(1, 1000)] = 3
    """updates after which the memory is measured"""
    rank: cli.Switch = False
    """be a rank (the command starts itself so)"""
    layout: str = ""
    """whole, sharded or parts, of a rank"""
    folder: Path = Path()
    """where a rank writes its figures"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.ranks % 2:
            raise UsageError(f"--ranks {self.ranks}: one layout has two parts; give an even number")


def model_of(parameters: float) -> ModelConfig:
    """Return a model of two layers with about so many parameters.

    It is wide and not deep, because the memory of compiled programs grows with the number of variables.
    """
    base = dataclasses.replace(cases.MODELS["base"], vocab_size=4999, num_hidden_layers=2)
    models = [
        dataclasses.replace(base, hidden_size=64 * heads, num_attention_heads=heads, intermediate_size=256 * heads)
        for heads in range(1, 1025)
    ]
    return min(models, key=lambda model: abs(model_cost.parameters(model) - parameters))


def resident(trim: bool = True) -> dict[str, int]:
    """Return the bytes of this process: "now", its own (anonymous), and the "peak" of all that was ever resident.

    trim: first give back what the C library keeps of freed memory.
    """
    if trim:
        ctypes.CDLL(None).malloc_trim(0)
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[key].split()[0]) * 1024 for name, key in (("now", "RssAnon"), ("peak", "VmHWM"))}


def measure_rank(options: Options) -> None:
    """Train, and write this rank's memory."""
    import tensorflow as tf

    from bert.model.encoder import variables
    from bert.pretrain import Pretraining
    from bert.training.distributed import connect
    from bert.training.distributed_optimizer import optimizer_for
    from bert.training.step import Step

    tf.get_logger().setLevel("ERROR")  # it warns that one function is traced for several buckets
    parallel, model = LAYOUTS[options.layout], model_of(1e6 * options.parameters)
    comm = connect(RunConfig(device="cpu"), parallel)
    batch = cases.batches(BATCH, seed=comm.replicas.rank)[0]
    batch = {name: tf.constant(value % 4999) for name, value in batch.items()}
    comm.all_reduce([tf.zeros([])])
    before = resident()
    task = Pretraining(model, seed=1, parts=comm.parts)
    optimizer = optimizer_for(variables(task.module), OptimizerConfig(name="adamw", learning_rate=1e-4), parallel, comm)
    step = Step(task, optimizer, comm, PrecisionConfig(), RunConfig(seed=1), parallel)
    state = resident()["now"] - before["now"]
    for number in range(options.updates):
        step.update(1 + number, [batch], 1e-4)
    after = resident()
    facts = {"state": state, "after": after["now"] - before["now"], "peak": after["peak"] - before["peak"]}
    (options.folder / f"{options.layout}-{comm.rank}.json").write_text(json.dumps(facts))


def start(options: Options, layout: str, folder: Path) -> list[dict[str, Any]]:
    """Run the ranks of one layout; return what each wrote."""
    launch = [str(ROOT / "scripts" / "launch.sh"), "-np", str(options.ranks), "--", sys.executable, "-m"]
    sizes = ["--parameters", str(options.parameters), "--updates", str(options.updates)]
    rank = ["benchmarks.rank_memory", "--rank", "--layout", layout, "--folder", str(folder), *sizes]
    if status := subprocess.run([*launch, *rank], cwd=ROOT).returncode:
        raise UserError(f"the ranks ended with exit code {status}; see their messages")
    return [files.read_json(folder / f"{layout}-{number}.json") for number in range(options.ranks)]


def mean(ranks: list[dict[str, Any]], kind: str) -> float:
    """Return the mean over the ranks, in MB."""
    return sum(rank[kind] for rank in ranks) / len(ranks) / 1e6


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.rank_memory", description=__doc__)
    if options.rank:
        measure_rank(options)
        return
    model = model_of(1e6 * options.parameters)
    with tempfile.TemporaryDirectory() as scratch:
        told = {layout: start(options, layout, Path(scratch)) for layout in LAYOUTS}
    replicas = {name: options.ranks // parallel.tensor for name, parallel in LAYOUTS.items()}
    planned = {name: model_cost.state_bytes(model, replicas[name], one) / 1e6 for name, one in LAYOUTS.items()}
    print(f"{model_cost.parameters(model):,} parameters, {options.ranks} ranks; MB of a rank, and what a layout saves")
    print(f"| layout | weights, gradients, moments in theory | {' | '.join(KINDS.values())} |")
    print(f"|---|---|{'---|' * len(KINDS)}")
    for layout in LAYOUTS:
        theory, cells = planned["whole"] - planned[layout], [f"{planned[layout]:,.0f}"]
        for kind in KINDS:
            saved = mean(told["whole"], kind) - mean(told[layout], kind)
            share = f" (saves {saved:,.0f}, {100 * saved / theory:.0f} % of {theory:,.0f})" if theory else ""
            cells.append(f"{mean(told[layout], kind):,.0f}{share}")
        print(f"| {layout} | {' | '.join(cells)} |")


if __name__ == "__main__":
    cli.main(main)
