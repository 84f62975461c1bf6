"""Measure the memory that each rank has during training, with and without a sharded optimizer.

    python -m benchmarks.rank_memory [--ranks 4] [--parameters 60] [--output DIR]

A model of about so many million parameters is trained on a tiny batch, so that its state is most of the memory. Each
rank prints the memory that the system counts for its process (resident, without shared libraries) before the model,
after an update, and the peak. What the sharded optimizer saves is compared with theory: of the moments' 8 bytes per
parameter, (ranks - 1) / ranks; at the peak also of the 4 bytes of the summed gradients, less what is gathered at once.
"""

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
from bert.errors import UserError
from bert.plan import model_cost
from bert.ranges import Range
from bert.storage import files

BATCH = cases.Case("", "pretrain", 1, 16, 2)
WIDTH = 768
LAYOUTS = {"whole": ParallelConfig(bucket_megabytes=25), "sharded": ParallelConfig(shard_optimizer=True)}


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
    """whole or sharded, of a rank"""
    folder: Path = Path()
    """where a rank writes its figures"""

    def __post_init__(self) -> None:
        ranges.check(self)


def model_of(parameters: float) -> ModelConfig:
    """Return a BERT-Base with as many layers as give about so many parameters."""
    without = dataclasses.replace(cases.MODELS["base"], vocab_size=4999, num_hidden_layers=1)
    layer = model_cost.parameters(dataclasses.replace(without, num_hidden_layers=2)) - model_cost.parameters(without)
    layers = max(1, round((parameters - model_cost.parameters(without)) / layer) + 1)
    return dataclasses.replace(without, num_hidden_layers=layers)


def resident() -> dict[str, int]:
    """Return the bytes of this process: now, of its own (anonymous), and the peak of all that is resident."""
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

    parallel, model = LAYOUTS[options.layout], model_of(1e6 * options.parameters)
    comm = connect(RunConfig(device="cpu"), parallel)
    batch = {name: tf.constant(value % 4999) for name, value in cases.batches(BATCH, seed=comm.rank)[0].items()}
    comm.all_reduce([tf.zeros([])])
    before = resident()["now"]
    task = Pretraining(model, seed=1, parts=comm.parts)
    weights, config = variables(task.module), OptimizerConfig(name="adamw", learning_rate=1e-4)
    optimizer = optimizer_for(weights, config, parallel, comm)
    step = Step(task, optimizer, comm, PrecisionConfig(), RunConfig(seed=1), parallel)
    losses = [step.update(1 + number, [batch], 1e-4)["loss"] for number in range(options.updates)]
    facts = resident() | {"before": before, "losses": losses, "rank": comm.rank}
    (options.folder / f"{options.layout}-{comm.rank}.json").write_text(json.dumps(facts))


def start(options: Options, layout: str, folder: Path) -> list[dict[str, Any]]:
    """Run the ranks of one layout; return what each wrote."""
    launch = [str(ROOT / "scripts" / "launch.sh"), "-np", str(options.ranks), "--", sys.executable, "-m"]
    sizes = ["--parameters", str(options.parameters), "--updates", str(options.updates)]
    rank = ["benchmarks.rank_memory", "--rank", "--layout", layout, "--folder", str(folder), *sizes]
    if status := subprocess.run([*launch, *rank], cwd=ROOT).returncode:
        raise UserError(f"the ranks ended with exit code {status}; see their messages")
    return [files.read_json(folder / f"{layout}-{number}.json") for number in range(options.ranks)]


def compare(whole: list[dict[str, Any]], sharded: list[dict[str, Any]], parameters: int) -> dict[str, float]:
    """Return what a rank saves, in bytes, the mean over the ranks, and what it saves in theory."""

    def mean(ranks: list[dict[str, Any]], kind: str) -> float:
        return sum(rank[kind] - (rank["before"] if kind == "now" else 0) for rank in ranks) / len(ranks)

    return {
        "whole": mean(whole, "now"),
        "sharded": mean(sharded, "now"),
        "saved": mean(whole, "now") - mean(sharded, "now"),
        "theory": 8 * parameters * (1 - 1 / len(whole)),
        "saved_at_peak": mean(whole, "peak") - mean(sharded, "peak"),
    }


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.rank_memory", description=__doc__)
    if options.rank:
        measure_rank(options)
        return
    model = model_of(1e6 * options.parameters)
    count = model_cost.parameters(model)
    with tempfile.TemporaryDirectory() as scratch:
        told = {layout: start(options, layout, Path(scratch)) for layout in LAYOUTS}
    found = compare(told["whole"], told["sharded"], count)
    print(f"{count:,} parameters, {options.ranks} ranks; MB per rank, the mean:")
    for layout, parallel in LAYOUTS.items():
        planned = model_cost.state_bytes(model, options.ranks, parallel) / 1e6
        print(
            f"{layout:<8} {found[layout] / 1e6:,.0f} after an update, above what the program had before the model; "
            f"weights, gradients and moments are {planned:,.0f}"
        )
    share = 100 * found["saved"] / found["theory"]
    print(
        f"saved    {found['saved'] / 1e6:,.0f} of {found['theory'] / 1e6:,.0f} in theory, {share:.0f} %; "
        f"{found['saved_at_peak'] / 1e6:,.0f} at the peak"
    )


if __name__ == "__main__":
    cli.main(main)
