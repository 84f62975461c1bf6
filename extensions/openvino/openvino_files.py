"""A trained model as files of OpenVINO, compared with our own logits before they get their names.

openvino_model.xml, openvino_model.bin   the model: token ids in, logits out
model.json             its inputs and outputs, the names of classes, how far its logits are from ours; of a model in
                       8 bits its scores, and the hash of the weights, for `--engine openvino_int8`
the rest               as beside model.onnx (bert/export/onnx_files.py)
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from bert.engines import onnx_graph
from bert.export import onnx_files
from bert.export.onnx_files import Exported
from extensions.openvino.encoder import settings_for, shared_core

Narrowed = tuple[Any, dict[str, Any]]  # a model in 8 bits, and what model.json says of it


def write(exported: Exported, folder: Path, narrowed: Callable[[Any], Narrowed] | None = None) -> None:
    """Write the model's files to a folder.

    narrowed: makes a model in 8 bits from OpenVINO's model in float32; None: it stays float32. Raise IntegrityError if
    the logits in float32 differ from our model's. The logits in 8 bits are only measured.
    """
    whole = folder / "float32.onnx"
    onnx_graph.save(exported.model, whole)  # which empties the weights of a large model
    model = shared_core().read_model(whole)
    told: dict[str, Any] = {}
    difference = compare(exported, model, onnx_files.TOLERANCE["float32"])
    if narrowed:
        model, told = narrowed(model)
        told["weights"] = exported.run.weights
        difference = compare(exported, model, None)
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    del model  # which reads the file of a large one
    for part in folder.glob("float32.onnx*"):
        part.unlink()
    described = onnx_files.description(exported, "int8" if narrowed else "float32") | told
    del described["opset"]
    onnx_files.write_beside(exported, folder, described | {"largest_difference": difference})


def compare(exported: Exported, model: Any, tolerance: float | None) -> float:
    """Return what `onnx_files.compare` does, of OpenVINO's model."""
    request, names = compiled(model), onnx_graph.inputs(exported.config)
    return onnx_files.compare(exported, "OpenVINO", lambda given: request([given[name] for name in names]), tolerance)


def compiled(model: Any) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Return a function from a model's inputs, in their order, to its outputs. What is not 8 bits is float32."""
    request = shared_core().compile_model(model, "CPU", settings_for("float32")).create_infer_request()

    def compute(given: Sequence[np.ndarray]) -> list[np.ndarray]:
        request.infer(dict(enumerate(given)))
        return [np.array(request.get_output_tensor(place).data) for place in range(len(model.outputs))]

    return compute
