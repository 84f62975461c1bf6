"""Average the weights of a run: of its last checkpoints, or after each of its updates (--ema).

    python -m bert.pretrain RECIPE ... --run.save_every 1000 --run.keep 5
    python -m bert.average RUN --last 5 --output AVERAGED

    python -m bert.pretrain RECIPE ... --optimizer.ema 0.999
    python -m bert.average RUN --ema true --output AVERAGED

Each weight is the mean of its values in the newest checkpoints, all with the same share, computed in float64. Where
the learning rate is high, the mean lies closer to the minimum than each checkpoint (Izmailov et al. 2018, "Averaging
Weights Leads to Wider Optima and Better Generalization"). The moving average gives the weights after an update a share
of 1 - d, those before it d times as much as they had, where d is --optimizer.ema; the shares add up to 1. Weights that
were frozen stay. The generator of replaced-token detection, and what only training needs of embeddings, are left out.
Low-rank updates are added to their kernels; averages are of their two matrices.

The output is a run directory with one checkpoint, of step 0, as an import makes it. Every command reads it;
bert.evaluate masks documents as it does for RUN.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bert import embedding
from bert.core import cli, ending, outputs, ranges, stores
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range

LAST = 5  # checkpoints, if --last is not given


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.average`."""

    run: cli.Run
    """run directory: with several checkpoints, or of a run with --optimizer.ema"""
    output: Path
    """run directory to write"""
    last: Annotated[int, Range(2, 10_000)] | None = None
    """number of newest checkpoints, none: 5"""
    ema: bool = False
    """instead of these, take the moving average in the checkpoint that other commands read"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.ema and self.last is not None:
            raise UsageError("--last has no effect with --ema true, which reads one checkpoint; leave one of them out")


def make(options: Options, folders: Sequence[Path], partial: Path) -> outputs.StageResult:
    """Write the mean of the checkpoints `folders`, or of their moving averages, to `partial`."""
    from bert.convert import run
    from bert.text import rules
    from bert.training import checkpoint

    rules.check(options.run)
    model, steps = run.read_model(options.run), [checkpoint.step_of(folder) for folder in folders]
    sums = {name: np.zeros(value.shape) for name, value in model.values.items()}
    for folder in folders:
        read = functools.partial(_moving, folder) if options.ema else checkpoint.as_stored
        stored = checkpoint.Stored(folder, values=read)
        for name, total in sums.items():
            total += stored.get(name)
    values = {name: (total / len(folders)).astype(np.float32) for name, total in sums.items()}
    settings = run.import_settings(f"average {options.run.name}", model.match)
    recorded = model.settings.get("config", {})
    masking = {name: recorded[name] for name in ("run.seed", "data.mask_shares") if name in recorded}
    settings |= {"ema" if options.ema else "averaged": steps, "config": masking, "rules": rules.RULES}
    if made := embedding.of(model.settings, options.run / "config.json"):
        settings |= made.entries()
    run.write_model(dataclasses.replace(model, values=values, updates={}, settings=settings), partial)
    return outputs.StageResult(counts={"checkpoints": len(steps)})


def _moving(folder: Path, reader: Any) -> Callable[[str], np.ndarray]:
    """Return a function that reads a weight's moving average, or the weight itself if it has none.

    reader: TensorFlow's reader of the checkpoint `folder`. Raise InputError if the checkpoint has no averages.
    """
    from bert.training.checkpoint import EMA, EMA_TOTAL

    total = float(reader.get_tensor(EMA_TOTAL)) if reader.has_tensor(EMA_TOTAL) else 0.0
    if not total:
        raise InputError(f"{folder}: has no moving average of the weights; train with --optimizer.ema 0.999")

    def value(name: str) -> np.ndarray:
        average = f"{EMA}/{name}"
        if not reader.has_tensor(average):
            return np.asarray(reader.get_tensor(name))
        return np.asarray(reader.get_tensor(average) / total).astype(np.float32)

    return value


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.average", description=__doc__)
    from bert.convert import run
    from bert.hardware import devices
    from bert.training import checkpoint

    devices.hide_gpus()  # nothing is computed on them
    stores.fetch_run(options.run)
    chosen, *described = run.input_files(options.run)
    steps, last = sorted(checkpoint.step_of(folder) for folder in checkpoint.steps(options.run)), options.last or LAST
    if options.ema:
        steps = [checkpoint.step_of(chosen)]
    elif len(steps) < last:
        raise InputError(
            f"{options.run}: has {len(steps)} checkpoints, not {last}; give --last {len(steps)}, or train with "
            f"--run.keep {last}"
        )
    steps = steps[-last:]
    folders = [checkpoint.verified(options.run, step) for step in steps]
    outputs.build(
        options.output,
        stage="average",
        parameters={"run": options.run.name} | ({"ema": True} if options.ema else {"last": last}),
        inputs=[*folders, *described],
        make=lambda partial: make(options, folders, partial),
    )
    what = "the moving average up to update" if options.ema else "the mean of updates"
    ending.print_next_command(options.output, f"{what} {', '.join(map(str, steps))}")


if __name__ == "__main__":
    cli.main(main)
