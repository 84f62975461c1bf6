"""An encoder computed by OpenVINO on CPUs: it reads the ONNX graph of our writer, in memory.

Its results are those of TensorFlow up to rounding (tests/bert/engines). A compiled model is kept on disk, so that the
next process that has the same weights reads it instead. In 8 bits, it reads the file of an export instead of a graph.

B texts, T tokens, D width, M places, L layers.
"""

import functools
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import tensorflow as tf

from bert.core import activations, files, paths
from bert.core.config import ModelConfig
from bert.core.errors import UsageError
from bert.engines import engine
from bert.engines.graph_names import STATES
from bert.hardware.choices import Compute
from bert.model import equations, inference
from bert.model.encoder import Encoder, variables

KEPT = 4 << 30  # bytes of compiled models on disk; those that were not used for longest go first
VERSION = 1  # of what the graph and the settings are; a change makes earlier compiled models unused
# The code that makes the graph.
GRAPH = (Path(engine.__file__).with_name("onnx_graph.py"), Path(equations.__file__), Path(activations.__file__))
DIGEST = 32  # bytes of the hash before a compiled model


class OpenVINOEncoder:
    """Computes what the encoder that it is made of computes, up to rounding, as `bert.engines.engine.Engine`."""

    name = "openvino"

    def __init__(self, encoder: Encoder, compute: Compute) -> None:
        """compute: float32 or bfloat16."""
        self.width, self.dtype = encoder.config.hidden_size, tf.as_dtype(compute)
        self.embeddings = encoder.embeddings
        self.parameters = sum(weight.shape.num_elements() for weight in encoder.trainable_variables)
        self._encoder, self._compute = encoder, compute
        self._models: dict[tuple[tuple[int, ...], bool], _Compiled] = {}

    def function(
        self,
        then: Callable[..., Any],
        *,
        layers: tuple[int, ...] = (-1,),
        at_places: bool = False,
        given: Sequence[tf.TensorSpec] = (),
        compiled: bool = True,
    ) -> Callable[..., Any]:
        """Return a function of ids, mask, segments [B, T] int32 and arrays of the specifications `given`.

        OpenVINO computes the hidden states, and TensorFlow computes `then`. For the arguments see `Engine.function`.
        """
        depth = self._encoder.config.num_hidden_layers
        wanted = [layer % (depth + 1) for layer in layers]  # 0 to depth
        model = self._model(tuple(sorted(set(wanted))), at_places)
        order = [sorted(set(wanted)).index(layer) for layer in wanted]
        of_states = tf.TensorSpec([None] * (1 if at_places else 2) + [self.width], tf.float32)
        x = of_states if at_places else [of_states] * len(layers)
        tokens = tf.TensorSpec([None, None], tf.int32)
        after = inference.traced(then, [x, tokens, *given], compiled)

        def compute(ids: Any, mask: Any, segments: Any, *rest: Any) -> Any:
            rows = [np.ascontiguousarray(array, np.int64) for array in (ids, mask, segments)]
            if at_places:
                row, position = np.asarray(rest[0], np.int64).T
                (x,) = model(rows, row * rows[0].shape[1] + position)
                return after(x, mask, *rest[1:])
            states = model(rows)
            return after([states[place] for place in order], mask, *rest)

        return compute

    def _model(self, layers: tuple[int, ...], read: bool) -> Callable[..., list[tf.Tensor]]:
        if (layers, read) not in self._models:
            self._models[layers, read] = _Compiled(_compiled(self._encoder, self._compute, layers, read))
        return self._models[layers, read]


class Int8Encoder(OpenVINOEncoder):
    """Computes the last hidden states in 8 bits, from the file of an export. TensorFlow computes the rest."""

    name = "openvino_int8"

    def __init__(self, encoder: Encoder, compute: Compute, path: Path) -> None:
        """path: openvino_model.xml of the export. compute: data type of what is not in 8 bits."""
        super().__init__(encoder, compute)
        model = shared_core().read_model(path)
        # An encoder alone gives its states away: the node that says so has the same name.
        nodes = [node for node in model.get_ops() if node.get_type_name() != "Result"]
        (states,) = (output for node in nodes for output in node.outputs() if STATES in output.get_names())
        self._of_choices = len(model.inputs[0].partial_shape) == 3  # [questions, choices, T]: each is a text
        cut = openvino.Model([states], model.get_parameters())  # without the head
        self._last = _Compiled(shared_core().compile_model(cut, "CPU", settings_for(compute)))

    def _model(self, layers: tuple[int, ...], read: bool) -> Callable[..., list[tf.Tensor]]:
        if layers != (self._encoder.config.num_hidden_layers,):
            raise UsageError("--engine openvino_int8: gives the last layer alone; give --engine openvino")

        def compute(rows: Sequence[np.ndarray], *places: np.ndarray) -> list[tf.Tensor]:
            (states,) = self._last([row[:, None] for row in rows] if self._of_choices else rows)
            return [tf.gather(tf.reshape(states, [-1, self.width]), *places) if read else states]

        return compute


def _compiled(encoder: Encoder, compute: Compute, layers: tuple[int, ...], read: bool) -> Any:
    """Return the graph with the states of some layers, compiled. read: only of some rows, an input more."""
    core, settings = shared_core(), settings_for(compute)
    weights = {name: weight.numpy() for name, weight in variables(encoder).items()}
    path = _path(encoder.config, weights, core, (compute, layers, read))
    compiled = _kept(core, path, settings) if path else None
    if compiled is None:
        from bert.engines import onnx_graph

        graph = onnx_graph.build_states(encoder.config, weights, layers, read).SerializeToString()
        compiled = core.compile_model(core.read_model(graph, b""), "CPU", settings)
        if path:
            _keep(compiled, path)
    return compiled


class _Compiled:
    """A compiled model; one call at a time."""

    def __init__(self, compiled: Any) -> None:
        self._lock, self._request = threading.Lock(), compiled.create_infer_request()
        self._inputs, self._outputs = len(compiled.inputs), len(compiled.outputs)

    def __call__(self, rows: Sequence[np.ndarray], *read: np.ndarray) -> list[tf.Tensor]:
        """Return the states, each [B, T, D], or [M, D] of the rows `read` [M].

        rows: ids, mask and segments [B, T] int64; segments are left out where the model has no choice.
        """
        inputs = *rows[: self._inputs - len(read)], *read
        with self._lock:
            self._request.infer(dict(enumerate(inputs)), share_inputs=True)
            # Copied: the next call writes to the same memory.
            return [tf.constant(self._request.get_output_tensor(place).data) for place in range(self._outputs)]


@functools.cache
def shared_core() -> openvino.Core:
    """Return the core of this process, which is never freed.

    When OpenVINO's plugin for CPUs is loaded, it gives the thread another stack for handlers of signals. When the core
    is freed, the plugin restores the earlier stack. With two cores, the second would restore the stack of the first,
    which may be gone. Then the next signal, such as a request to stop, would end the process with a segmentation fault.
    """
    return openvino.Core()


def settings_for(compute: Compute) -> dict[str, Any]:
    """Return OpenVINO's settings: all cores that this process may use for one batch at a time, none of them fixed."""
    return {
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[compute],  # else it takes bfloat16 by itself
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
        "ENABLE_CPU_PINNING": False,  # other processes may have the same cores
    }


def _folder() -> Path | None:
    """Return the folder of compiled models; None if none can be used.

    It is in the work folder, if there is one, else in the system's folder of temporary files, where only this user may
    write to it: what is there is run.
    """
    work = paths.workdir()
    folder = work / "cache" / "openvino" if work.is_dir() else paths.temporary("openvino")
    try:
        paths.make_private(folder)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _path(
    config: ModelConfig, weights: dict[str, np.ndarray], core: openvino.Core, parameters: tuple[Any, ...]
) -> Path | None:
    """Return where a model is kept when it is compiled, named by all that it depends on; None if there is no folder."""
    if (folder := _folder()) is None:
        return None
    about = [VERSION, openvino.__version__, config, parameters, sorted(settings_for(parameters[0]).items())]
    about += [core.get_property("CPU", name) for name in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")]
    digest = hashlib.sha256(repr(about).encode())
    for source in GRAPH:
        digest.update(source.read_bytes())
    for name, weight in weights.items():
        digest.update(f"{name} {weight.shape}".encode())
        digest.update(np.ascontiguousarray(weight).data)
    return folder / f"{digest.hexdigest()}.blob"


def _kept(core: openvino.Core, path: Path, settings: dict[str, Any]) -> Any:
    """Return the compiled model that is kept there; None if there is none, or if it is damaged."""
    try:
        with open(path, "rb") as stream:
            digest, content = stream.read(DIGEST), stream.read()
        os.utime(path)  # it was used now
    except OSError:
        return None
    return core.import_model(content, "CPU", settings) if hashlib.sha256(content).digest() == digest else None


def _keep(compiled: Any, path: Path) -> None:
    """Keep a compiled model, and remove those that were not used for longest beyond `KEPT` bytes."""
    content = compiled.export_model().getvalue()
    if len(content) > KEPT:
        return
    try:
        with files.atomic_write(path, "wb") as stream:
            stream.write(hashlib.sha256(content).digest())
            stream.write(content)
        total = 0
        kept = sorted(path.parent.glob("*.blob"), key=lambda one: one.stat().st_mtime, reverse=True)
        for one in kept:
            total += one.stat().st_size
            if total > KEPT:
                one.unlink(missing_ok=True)
    except OSError:  # a full disk: it is compiled again next time
        return
