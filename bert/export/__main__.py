"""Export a trained model for servers: as a SavedModel that takes text, or as ONNX or OpenVINO, which take token ids.

    python -m bert.export savedmodel RUN DIR [--compute bfloat16]
    tensorflow_model_server --model_name=bert --model_base_path=$PWD/DIR
    python -m bert.export onnx RUN DIR [--compute float16] [--int8 true] [--opset 20]
    python -m bert.export triton RUN DIR; tritonserver --model-repository=DIR
    python -m bert.export openvino RUN DIR [--int8 true --calibration DEV [--max_loss 0.5]]

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
                                                           embedding, of an embedding model: as its run says

ONNX takes input_ids, attention_mask and, if the model has segments, token_type_ids [B, T] int64, and returns logits:
those of the head, of all words for a run of bert.pretrain, or the last hidden states, and of an embedding model the
sentence_embedding, pooled and normalised as its run says. Questions are answered from start_logits and end_logits;
choices are [B, choices, T], with logits [B, choices]. DIR has model.onnx, model.json (inputs, outputs, labels),
labels.txt, and the config.json and files of the tokenizer with which optimum and transformers load it; of an embedding
model also modules.json and others for sentence-transformers. For Triton, DIR/NAME has config.pbtxt and the version's
folder. onnxruntime computes the model before it gets its name: logits that differ from ours are an error. Needs onnx
and onnxruntime (the extra packages of pyproject.toml).

OpenVINO has the same inputs, outputs and files, with openvino_model.xml and openvino_model.bin. --int8 quantises it by
NNCF (`pip install nncf==3.4.0`): the scales are set on 300 rows of --calibration, the labelled development set of the
run as tasks.evaluate or squad.predict reads it. The set is scored in float32 and in 8 bits, and both scores are
printed. If more than --max_loss is lost, parts of the model are put back to float32; if that is not enough, nothing is
written (exit code 2). With --score false the file has a text in each line, and nothing is scored: for models without a
score, such as those of masked words.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from bert import heads
from bert.core import cli, ending, outputs, ranges, rows
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range
from bert.hardware.choices import Compute, DeviceName

if TYPE_CHECKING:
    from bert.export.onnx_files import Exported
    from bert.export.texts import Reader
    from bert.export.trained import Trained

STAGE = "bert.export"
OPENVINO = (
    "extensions.openvino.openvino_files:write",
    "extensions.openvino.quantizing:check",
    "extensions.openvino.quantizing:narrowed",
)
OPSET = 20  # with an operation for GELU
MAX_LOSS = 0.5  # points of a score


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m bert.export`."""

    format: cli.Positional[Literal["savedmodel", "onnx", "triton", "openvino"]]
    """savedmodel, for TensorFlow Serving; onnx; triton, a model repository with ONNX; or openvino"""
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
    """onnx, triton: version of the operator set; default: 20"""
    int8: bool = False
    """ONNX: quantise dense layers to 8 bits; OpenVINO: quantise the model by NNCF, on --calibration"""
    calibration: Path | None = None
    """openvino in 8 bits: labelled development set of the run; with --score false a file with a text in each line"""
    score: bool = True
    """openvino in 8 bits: score it on --calibration; false takes it without a score"""
    max_loss: Annotated[float, Range(0, 100)] | None = None
    """openvino in 8 bits: points, of 100, that the first score may lose; default: 0.5"""
    name: str = ""
    """triton: name of the model; default: that of the run's folder"""
    device: DeviceName = "auto"
    """device to build the graph for; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.format == "savedmodel" and (self.int8 or self.opset):
            raise UsageError("--int8 and --opset are for onnx and triton, and --int8 for openvino; leave them out")
        if self.format != "savedmodel" and self.length:
            raise UsageError("--length is for savedmodel; the other models take inputs of any length up to the model's")
        if self.format in ("onnx", "openvino") and self.version != 1:
            raise UsageError("--version is for savedmodel and triton, whose servers read it; leave it out")
        if self.format != "triton" and self.name:
            raise UsageError("--name is for triton; leave it out")
        if not re.fullmatch(r"[\w.-]*", self.name):
            raise UsageError(f"--name {self.name!a}: give letters, digits, dots, _ and -")
        if self.format == "openvino":
            self._check_openvino()
        elif self.calibration or self.max_loss is not None or not self.score:
            raise UsageError("--calibration, --score and --max_loss are for openvino; leave them out")
        if self.format != "savedmodel" and self.compute == "bfloat16":
            raise UsageError("--compute bfloat16: onnxruntime has no such products on CPUs; give float32 or float16")
        if self.int8 and self.compute != "float32":
            raise UsageError(f"--int8 with --compute {self.compute}: what is not 8 bits stays float32; leave it out")

    def _check_openvino(self) -> None:
        if self.opset or self.compute != "float32":
            raise UsageError(
                "--opset and --compute are not for openvino: who loads the model chooses the type of its matrix "
                "products (INFERENCE_PRECISION_HINT); leave them out"
            )
        if self.int8 != (self.calibration is not None):
            raise UsageError("--int8 true and --calibration FILE belong together for openvino; give both or neither")
        if not self.int8 and (self.max_loss is not None or not self.score):
            raise UsageError("--score and --max_loss are for openvino in 8 bits; give --int8 true, or leave them out")
        if not self.score and self.max_loss is not None:
            raise UsageError("--max_loss is that of a score; leave it out, or --score false")


def serving(trained: Trained) -> Reader:
    """Return the module whose signatures serve the model."""
    from bert.export.texts import Encoding

    reader: Reader = rows.load(heads.KINDS[trained.head.kind].export)(trained) if trained.head else Encoding(trained)
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
    if exported.embedding:  # which had the hidden states alone
        parameters["embedding"] = asdict(exported.embedding)
    if exported.kind == heads.CHOICE.name:  # whose inputs had other axes
        parameters["axes"] = onnx_graph.axes(exported.kind)
    parameters |= _thresholds(exported)
    outputs.build(
        folder, stage=STAGE, parameters=parameters, inputs=_inputs(options.run, exported.run.checkpoint), make=make
    )
    if options.format == "triton":  # also beside a version that was there: a stopped export may have left none
        triton.describe(name, exported, folder)
    return folder


def export_openvino(options: Options) -> Path:
    """Write the files of OpenVINO and return their folder.

    Raise as `onnx_files.load` and the functions in `OPENVINO` do, InputError if a package is missing, and UsageError if
    the folder exists and is something else.
    """
    try:
        from bert.export import onnx_files

        write, check, narrow = (rows.load(row) for row in OPENVINO)
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; run: make setup") from error
    exported = onnx_files.load(options.run, "float32", OPSET)
    inputs, narrowed = _inputs(options.run, exported.run.checkpoint), None
    parameters: dict[str, Any] = {"format": options.format, "int8": options.int8} | _thresholds(exported)
    if options.calibration is not None:
        check(exported, options.score)
        most = (MAX_LOSS if options.max_loss is None else options.max_loss) if options.score else None
        narrowed = narrow(exported, options.calibration, most)
        parameters["max_loss"] = most
        inputs.append(options.calibration)

    def make(partial: Path) -> outputs.StageResult:
        write(exported, partial, narrowed)
        return outputs.StageResult(counts={"parameters": exported.parameters})

    outputs.build(options.output, stage=STAGE, parameters=parameters, inputs=inputs, make=make)
    return options.output


def _thresholds(exported: Exported) -> dict[str, Any]:
    """Return the thresholds for the export's parameters, so that other thresholds make another export."""
    return {"thresholds": exported.thresholds} if exported.thresholds else {}


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
    """Return the files that an export reads."""
    names = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "bert_config.json", "config.json")
    described = (run / name for name in names)
    return [*(path for path in described if path.exists()), checkpoint]


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m bert.export", description=__doc__)
    from bert.hardware import devices

    devices.choose(options.device)
    makers = {"savedmodel": export, "openvino": export_openvino}
    folder = makers.get(options.format, export_onnx)(options)
    served = {
        "savedmodel": ("tensorflow_model_server", f"--model_base_path={options.output.resolve()}", "--model_name=bert"),
        "triton": ("tritonserver", f"--model-repository={options.output.resolve()}"),
    }
    ending.print_next_command(folder, "", *served.get(options.format, ()))


if __name__ == "__main__":
    cli.main(main)
