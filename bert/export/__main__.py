"""Export a trained model as a SavedModel that takes text and returns the names of classes, with probabilities.

    python -m bert.export savedmodel RUN DIR [--compute bfloat16]
    tensorflow_model_server --model_name=bert --model_base_path=$PWD/DIR

RUN is a run directory of tasks.train, an import with such a head, or any other trained encoder; for squad.train there
is squad.export. The SavedModel is DIR/1. Its graph contains the tokenizer. It needs TensorFlow with the operations of
tensorflow_text, which TensorFlow Serving includes, and none of this code. All texts are UTF-8. The signatures:

head      signature        takes                           returns
classes   serving_default  text [B]                        label, probability [B]; labels, probabilities [B, classes]
          pairs            first, second [B]               the same
number    as for classes   as for classes                  value [B]
choices   serving_default  first, second [B, choices]      choice [B] from 0, probabilities [B, choices]
tags      serving_default  words [B, words], "" as padding tags, probabilities [B, words]
none      serving_default  text [B]                        mean, cls [B, hidden size]: features, as of bert.encode
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from bert import cli, ranges
from bert.export import graph
from bert.export.texts import Choosing, Classifying, Encoding
from bert.export.trained import Compute, Trained, load
from bert.export.words import Tagging
from bert.hardware import devices
from bert.hardware.devices import Kind
from bert.ranges import Range
from bert.storage import outputs

STAGE = "bert.export"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.export`."""

    format: cli.Positional[Literal["savedmodel"]]
    """savedmodel, for TensorFlow Serving"""
    run: cli.Positional[Path]
    """run directory"""
    output: cli.Positional[Path]
    """folder for the versions of the model"""
    version: Annotated[int, Range(1, 2**31 - 1)] = 1
    """version number, the name of the SavedModel's folder; TensorFlow Serving loads the highest"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products and their weights"""
    length: Annotated[int, Range(5, 65_536)] | None = None
    """tokens of an input, special tokens included, which a longer text is cut to; default: as in training"""
    device: Kind = "auto"
    """device to build the graph for; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


def serving(trained: Trained) -> Classifying | Choosing | Tagging | Encoding:
    """Return the module whose signatures serve the model."""
    kinds = {"classifier": Classifying, "choice": Choosing, "tags": Tagging}
    return kinds[trained.head.kind](trained) if trained.head else Encoding(trained)


def export(options: Options) -> Path:
    """Write the SavedModel and return its folder.

    Raise as `trained.load` does, and UsageError if the folder exists and is something else.
    """
    trained = load(options.run, options.compute, options.length)

    def make(partial: Path) -> outputs.StageResult:
        module = serving(trained)
        graph.save(module, module.served, partial)
        return outputs.StageResult(counts={"parameters": trained.parameters})

    folder = options.output / str(options.version)
    parameters = {"compute": options.compute, **asdict(trained.sizes)}
    described = [options.run / name for name in ("vocab.txt", "bert_config.json", "config.json")]
    inputs = [*(path for path in described if path.exists()), trained.checkpoint]
    outputs.build(folder, stage=STAGE, parameters=parameters, inputs=inputs, make=make)
    return folder


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.export", description=__doc__)
    devices.choose(options.device)
    folder = export(options)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    cli.main(main)
