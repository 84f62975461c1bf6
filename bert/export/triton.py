"""The description of an ONNX model for NVIDIA's Triton Inference Server.

Triton has had no backend for TensorFlow since spring 2025, so ONNX is what it takes. A model repository is
REPOSITORY/NAME/config.pbtxt, and REPOSITORY/NAME/VERSION/model.onnx for each version.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.core import files
from bert.engines import onnx_graph
from bert.export.onnx_files import Exported

MAX_BATCH, MAX_WAITING = 32, 1024
DELAY, TIMEOUT = 500, 30_000_000  # microseconds that a request waits for others, and for its turn


def describe(name: str, exported: Exported, version: Path) -> None:
    """Write config.pbtxt, and labels.txt if there are classes, beside the finished folder of a version."""
    outputs = json.loads((version / "model.json").read_text(encoding="utf-8"))["outputs"]
    texts = {"config.pbtxt": settings(name, exported, outputs)}
    if exported.head and exported.head.labels:
        texts["labels.txt"] = (version / "labels.txt").read_text(encoding="utf-8")
    for file, text in texts.items():
        with files.atomic_write(version.parent / file) as stream:
            stream.write(text)


def settings(name: str, exported: Exported, outputs: dict[str, Any]) -> str:
    """Return the text of config.pbtxt. outputs: the axes of each output, as in model.json."""
    inputs = onnx_graph.inputs(exported.config)
    sizes = ", ".join("-1" for _ in onnx_graph.axes(exported.kind)[1:])  # without the batch
    input_lines = ",\n".join(f'  {{ name: "{one}" data_type: TYPE_INT64 dims: [ {sizes} ] }}' for one in inputs)
    labels = bool(exported.head and exported.head.labels)
    output_lines = ",\n".join(_output(one, axes, labels) for one, axes in outputs.items())
    return f"""name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: {MAX_BATCH}
input [
{input_lines}
]
output [
{output_lines}
]
dynamic_batching {{
  max_queue_delay_microseconds: {DELAY}
  default_queue_policy {{
    timeout_action: REJECT
    default_timeout_microseconds: {TIMEOUT}
    max_queue_size: {MAX_WAITING}
  }}
}}
"""


def _output(name: str, axes: Sequence[str | int], labels: bool) -> str:
    """Return the entry of an output. axes: names or sizes; the entry omits the first one, the batch."""
    sizes = [axis if isinstance(axis, int) else -1 for axis in axes[1:]]
    label = ' label_filename: "labels.txt"' if name == "logits" and labels else ""
    return f'  {{ name: "{name}" data_type: TYPE_FP32 dims: {sizes}{label} }}'
