"""Export a fine-tuned model as a SavedModel that takes question and passage as text and returns the answer as text.

    python -m squad.export --model RUN --output DIR [--compute bfloat16]
    tensorflow_model_server --model_name=squad --model_base_path=$PWD/DIR

The SavedModel is DIR/1. Its signature `serving_default` takes `question` and `context`, UTF-8 strings [B], and returns
the same answers as squad.predict: `answer` [B]; `start` and `end` [B] int32, the characters of the passage that are the
answer; `probability` [B]; and, for a model with a null threshold, `null_odds` [B]: the answer is "" where they are
above the threshold. The graph contains tokenizer, windows and answer selection. It needs TensorFlow with the operations
of tensorflow_text, which TensorFlow Serving includes (in Python: `import tensorflow_text`), and none of this code.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from bert.core import cli, ending, outputs, ranges
from bert.core.ranges import AnyNumber, Range
from bert.hardware.choices import Compute, DeviceName
from bert.text import vocabulary
from squad import predict
from squad.answers import MAX_ANSWER_LENGTH

STAGE = "squad.export"


@dataclass(frozen=True, kw_only=True)
class Options:
    model: cli.Run
    """run directory of python -m squad.train"""
    output: Path
    """folder for the versions of the model"""
    version: Annotated[int, Range(1, 2**31 - 1)] = 1
    """version number, the name of the SavedModel's folder; TensorFlow Serving loads the highest"""
    compute: Compute = "float32"
    """data type of the encoder's matrix products and their weights"""
    null_threshold: AnyNumber | None = None
    """null odds above which the answer is "", instead of the threshold stored with the model"""
    max_answer_length: Annotated[int, Range(1, 65_536)] = MAX_ANSWER_LENGTH
    """maximum length of an answer, in tokens"""
    device: DeviceName = "auto"
    """device to build the graph for; auto uses a GPU if there is one"""

    def __post_init__(self) -> None:
        ranges.check(self)


def export(options: Options) -> Path:
    """Write the SavedModel and return its folder.

    Raises as `squad.model.load` does, and UsageError if the folder exists and is something else.
    """
    from bert.export import graph
    from squad.answering import Answering
    from squad.model import load

    fine_tuned = load(options.model, options.compute)
    limit = predict.null_threshold(fine_tuned, options.model, options.null_threshold)

    def make(partial: Path) -> outputs.StageResult:
        module = Answering(fine_tuned, limit=limit, max_answer_length=options.max_answer_length)
        graph.save(module, {"serving_default": module.answer}, module.windowing.max_seq_length, partial)
        return outputs.StageResult(counts={"parameters": fine_tuned.parameters})

    folder = options.output / str(options.version)
    parameters = {
        "compute": options.compute,
        "null_threshold": limit,
        "max_answer_length": options.max_answer_length,
        **asdict(fine_tuned.kind.windowing),
    }
    inputs = [vocabulary.path_in(options.model), options.model / "bert_config.json", fine_tuned.run.checkpoint]
    outputs.build(folder, stage=STAGE, parameters=parameters, inputs=inputs, make=make)
    return folder


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m squad.export", description=__doc__)
    from bert.hardware import devices

    devices.choose(options.device)
    folder = export(options)
    server = "tensorflow_model_server", f"--model_base_path={options.output.resolve()}", "--model_name=squad"
    ending.print_next_command(folder, "signature serving_default", *server)


if __name__ == "__main__":
    cli.main(main)
