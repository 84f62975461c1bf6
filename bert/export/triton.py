"""The description of an ONNX model for NVIDIA's Triton Inference Server.

Triton has had no backend for TensorFlow since spring 2025, so ONNX is what it takes. A model repository is
REPOSITORY/NAME/config.pbtxt, and REPOSITORY/NAME/VERSION/model.onnx for each version.
"""

import json
from pathlib import Path
from typing import Any

from bert.export.onnx_files import Exported
from bert.export.onnx_graph import INPUTS
from bert.storage import files

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
    """Return the text of config.pbtxt. outputs: the axes of each, as of model.json."""
    taken = ",\n".join(f'  {{ name: "{one}" data_type: TYPE_INT64 dims: [ -1 ] }}' for one in INPUTS)
    given = ",\n".join(_output(one, len(axes), exported) for one, axes in outputs.items())
    return f"""name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: {MAX_BATCH}
input [
{taken}
]
output [
{given}
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


def _output(name: str, axes: int, exported: Exported) -> str:
    """Return the entry of an output with so many axes; the first of them, the batch, is not named."""
    sizes = [-1] * (axes - 1)
    if not name.endswith("_logits"):
        sizes[-1] = _width(exported)
    label = ' label_filename: "labels.txt"' if name == "logits" and exported.head and exported.head.labels else ""
    return f'  {{ name: "{name}" data_type: TYPE_FP32 dims: {sizes}{label} }}'


def _width(exported: Exported) -> int:
    """Return the size of the last axis of the output."""
    if exported.kind in ("", "masked_lm", "choice"):
        return {"": exported.config.hidden_size, "masked_lm": exported.config.vocab_size, "choice": 1}[exported.kind]
    assert exported.head is not None, "a classifier has one"
    return 1 if exported.head.regression else len(exported.head.labels)
