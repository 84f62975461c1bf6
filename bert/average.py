"""Average the weights of the last checkpoints of a run: one model, in place of the last of them.

    python -m bert.pretrain RECIPE ... --run.save_every 1000 --run.keep 5
    python -m bert.average RUN --last 5 --output AVERAGED

Each weight is the mean of its values in the newest checkpoints, all with the same share, computed in float64. Where
the learning rate is high, the mean lies closer to the minimum than each checkpoint (Izmailov et al. 2018, "Averaging
Weights Leads to Wider Optima and Better Generalization"). The generator of replaced-token detection, and what only
training needs of embeddings, are left out. Low-rank updates are added to their kernels.

The output is a run directory with one checkpoint, of step 0, as an import makes it. Every command reads it.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from bert import embedding
from bert.core import cli, ending, outputs, ranges
from bert.core.errors import InputError
from bert.core.ranges import Range


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m bert.average`."""

    run: cli.Run
    """run directory with several checkpoints"""
    output: Path
    """run directory to write"""
    last: Annotated[int, Range(2, 10_000)] = 5
    """number of newest checkpoints"""

    def __post_init__(self) -> None:
        ranges.check(self)


def make(options: Options, folders: Sequence[Path], partial: Path) -> outputs.StageResult:
    """Write the mean of the checkpoints `folders` into `partial`."""
    from bert.convert import run
    from bert.training import checkpoint

    model, steps = run.read_model(options.run), [checkpoint.step_of(folder) for folder in folders]
    sums = {name: np.zeros(value.shape) for name, value in model.values.items()}
    for folder in folders:
        stored = checkpoint.Stored(folder)
        for name, total in sums.items():
            total += stored.get(name)
    values = {name: (total / len(folders)).astype(np.float32) for name, total in sums.items()}
    settings = run.import_settings(f"average {options.run.name}", model.match) | {"averaged": steps}
    if made := embedding.of(model.settings, options.run / "config.json"):
        settings |= made.entries()
    run.write_model(dataclasses.replace(model, values=values, settings=settings), partial)
    return outputs.StageResult(counts={"checkpoints": len(steps)})


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.average", description=__doc__)
    from bert.convert import run
    from bert.hardware import devices
    from bert.training import checkpoint, mirror

    devices.hide_gpus()  # nothing is computed on them
    mirror.fetch(options.run)
    _, *described = run.input_files(options.run)
    steps = sorted(checkpoint.step_of(folder) for folder in checkpoint.steps(options.run))
    if len(steps) < options.last:
        raise InputError(
            f"{options.run}: has {len(steps)} checkpoints, not {options.last}; give --last {len(steps)}, or train with "
            f"--run.keep {options.last}"
        )
    folders = [checkpoint.verified(options.run, step) for step in steps[-options.last :]]
    outputs.build(
        options.output,
        stage="average",
        parameters={"run": options.run.name, "last": options.last},
        inputs=[*folders, *described],
        make=lambda partial: make(options, folders, partial),
    )
    ending.tell(options.output, f"the mean of updates {', '.join(map(str, steps[-options.last :]))}")


if __name__ == "__main__":
    cli.main(main)
