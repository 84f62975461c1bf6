"""Export a trained model for servers: as a SavedModel that takes text, or as ONNX, which takes token ids.

    python -m bert.export savedmodel RUN DIR [--compute bfloat16]
    tensorflow_model_server --model_name=bert --model_base_path=$PWD/DIR
    python -m bert.export onnx RUN DIR [--compute float16] [--int8 true] [--opset 20]
    python -m bert.export triton RUN DIR; tritonserver --model-repository=DIR

RUN is a run directory of tasks.train, an import with such a head, or any other trained encoder; for squad.train there
is squad.export. The SavedModel is DIR/1. Its graph contains the tokenizer. It needs TensorFlow with the operations of
tensorflow_text, which TensorFlow Serving includes (in Python: `import tensorflow_text`), and none of this code. All
texts are UTF-8. The signatures:

head      signature        takes                           returns
classes   serving_default  text [B]                        label, probability [B]; labels, probabilities [B, classes]
          pairs            first, second [B]               the same
labels    as for classes   as for classes                  labels, probabilities, given [B, labels]: name, sigmoid, bool
number    as for classes   as for classes                  value [B]
choices   serving_default  first, second [B, choices]      choice [B] from 0, probabilities [B, choices]
tags      serving_default  words [B, words], "" as padding tags, probabilities [B, words]
none      serving_default  text [B]                        mean, cls [B, hidden size]: features, as in bert.encode

ONNX takes input_ids, attention_mask and, if the model has segments, token_type_ids [B, T] int64, and returns logits:
those of the head, of all words for a run of bert.pretrain, or the last hidden states. Questions are answered from
start_logits and end_logits; choices are [B, choices, T], with logits [B, choices]. DIR has model.onnx, model.json
(inputs, outputs, labels), labels.txt, and the config.json and files of the tokenizer with which optimum and
transformers load it; for Triton, DIR/NAME has config.pbtxt and the version's folder. onnxruntime computes the model
before it gets its name: logits that differ from ours are an error. Needs onnx and onnxruntime (the extra packages of
pyproject.toml).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bert import heads
from bert.core import cli, ending, outputs, ranges
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range
from bert.hardware.choices import Compute, Kind

if TYPE_CHECKING:
    from bert.export.texts import Reader
    from bert.export.trained import Trained

STAGE = "bert.export"
OPSET = 20  # with an operation for GELU


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.export`."""

    format: cli.Positional[Literal["savedmodel", "onnx", "triton"]]
    """savedmodel, for TensorFlow Serving; onnx; or triton, a model repository with ONNX"""
    run: cli.Positional[Path]
    """run directory"""
    output: cli.Positional[Path]
    """folder for the versions of the model"""
    version: Annotated[int, Range(1, 2**31 - 1)] = 1
    """version number, the name of the folder of a SavedModel or of Triton's model; servers load the highest"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products and their weights; ONNX: float32 or float16"""
    length: Annotated[int, Range(5, 65_536)] | None = None
    """savedmodel: tokens of an input, special tokens included, to which a text is cut; default: as in training"""
    opset: Annotated[int, Range(17, 22)] | None = None
    """ONNX: version of the operator set; default: 20"""
    int8: bool = False
    """ONNX: quantise dense layers to 8 bits"""
    name: str = ""
    """triton: name of the model; default: that of the run's folder"""
    device: Kind = "auto"
    """device to build the graph for; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.format == "savedmodel" and (self.int8 or self.opset):
            raise UsageError("--int8 and --opset are for onnx and triton; leave them out")
        if self.format != "savedmodel" and self.length:
            raise UsageError("--length is for savedmodel; an ONNX model takes inputs of any length up to the model's")
        if self.format != "triton" and self.name:
            raise UsageError("--name is for triton; leave it out")
        if not re.fullmatch(r"[\w.-]*", self.name):
            raise UsageError(f"--name {self.name!a}: give letters, digits, dots, _ and -")
        if self.format != "savedmodel" and self.compute == "bfloat16":
            raise UsageError("--compute bfloat16: onnxruntime has no such products on CPUs; give float32 or float16")
        if self.int8 and self.compute != "float32":
            raise UsageError(f"--int8 with --compute {self.compute}: what is not 8 bits stays float32; leave it out")


def serving(trained: Trained) -> Reader:
    """Return the module whose signatures serve the model."""
    from bert.export.texts import Encoding

    reader: Reader = heads.load(heads.KINDS[trained.head.kind].export)(trained) if trained.head else Encoding(trained)
    return reader


def export_onnx(options: Options) -> Path:
    """Write the files of ONNX and return their folder.

    Raise as `onnx_files.load` and `onnx_files.write` do, InputError if a package is missing, and UsageError if the
    folder exists and is something else.
    """
    try:
        from bert.engines import onnx_graph
        from bert.export import onnx_files, triton
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; run: make setup") from error
    opset = options.opset or OPSET
    exported = onnx_files.load(options.run, "float16" if options.compute == "float16" else "float32", opset)
    name = options.name or options.run.resolve().name
    folder = options.output if options.format == "onnx" else options.output / name / str(options.version)

    def make(partial: Path) -> outputs.StageResult:
        onnx_files.write(exported, partial, options.int8)
        return outputs.StageResult(counts={"parameters": exported.parameters})

    parameters: dict[str, Any] = {"compute": options.compute, "int8": options.int8, "opset": opset}
    parameters |= {"format": options.format, "inputs": onnx_graph.inputs(exported.config)}  # which had other names
    if exported.kind == heads.CHOICE.name:  # whose inputs had other axes
        parameters["axes"] = onnx_graph.axes(exported.kind)
    outputs.build(
        folder, stage=STAGE, parameters=parameters, inputs=_inputs(options.run, exported.run.checkpoint), make=make
    )
    if options.format == "triton":  # also beside a version that was there: a stopped export may have left none
        triton.describe(name, exported, folder)
    return folder


def export(options: Options) -> Path:
    """Write the SavedModel and return its folder.

    Raise as `trained.load` does, and UsageError if the folder exists and is something else.
    """
    from bert.export import graph
    from bert.export.trained import load

    trained = load(options.run, options.compute, options.length)

    def make(partial: Path) -> outputs.StageResult:
        module = serving(trained)
        graph.save(module, module.served, trained.sizes.length, partial)
        return outputs.StageResult(counts={"parameters": trained.parameters})

    folder = options.output / str(options.version)
    parameters = {"compute": options.compute, **asdict(trained.sizes), "thresholds": trained.thresholds}
    usual = {"windows": "first", "thresholds": ()}  # of exports of earlier versions, which have neither
    parameters = {name: value for name, value in parameters.items() if usual.get(name) != value}
    inputs = _inputs(options.run, trained.run.checkpoint)
    outputs.build(folder, stage=STAGE, parameters=parameters, inputs=inputs, make=make)
    return folder


def _inputs(run: Path, checkpoint: Path) -> list[Path]:
    """Return the files that an export reads; taken: the checkpoint."""
    names = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "bert_config.json", "config.json")
    described = (run / name for name in names)
    return [*(path for path in described if path.exists()), checkpoint]


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.export", description=__doc__)
    from bert.hardware import devices

    devices.choose(options.device)
    folder = (export if options.format == "savedmodel" else export_onnx)(options)
    served = {
        "savedmodel": ("tensorflow_model_server", f"--model_base_path={options.output.resolve()}", "--model_name=bert"),
        "triton": ("tritonserver", f"--model-repository={options.output.resolve()}"),
    }
    ending.tell(folder, "", *served.get(options.format, ()))


if __name__ == "__main__":
    cli.main(main)
