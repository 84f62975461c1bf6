"""Writes the HLO of one program as it is on a GPU, with the project's TensorFlow.

    python -m benchmarks.gpu_check.export PROGRAM FILE.pb     # PROGRAM: the fields of programs.Program as JSON

TensorFlow lowers the graph through its entry for CPUs: the one for CUDA needs a GPU. What the project itself does
otherwise on a GPU is chosen as if there were one; FILE.flags says which flags of XLA it sets there. Equal programs give
equal bytes.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from benchmarks.gpu_check.programs import MICRO_BATCHES, Program
from bert.core import files
from bert.hardware import graphs
from bert.model import initializers
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from bert.model.inference import InferenceEncoder
from bert.pretraining import Pretraining
from bert.text.sampler import Batch
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step
from bert.training.task import Task
from squad.config import Windowing
from squad.model import AnswerSpans
from tasks.training import FineTuning

TRACED = re.compile(r"_\d+(?=__)")  # how many functions TensorFlow had traced before


def choose_gpu_branches() -> None:
    """Make this process build the graphs for a GPU, by replacing `has_gpu` in every module that uses it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("bert.") and hasattr(module, "has_gpu"):
            vars(module)["has_gpu"] = lambda: True


def xla_flags() -> str:
    """Return the XLA flags that a run on a GPU sets by default, in the format of XLA_FLAGS."""
    devices = sys.modules.get("bert.hardware.devices")
    flags = {**getattr(devices, "GPU_FLAGS", {}), **getattr(devices, "DETERMINISTIC_FLAGS", {})}
    return " ".join(f"--{name}={value}" for name, value in flags.items())


def leave_weights_zero() -> None:
    """Initialise weights with zeros, which is faster: the program does not depend on their values."""
    initializers.normal = lambda seed, name, deviation, *shape: tf.zeros(shape)


def task_of(program: Program) -> Task:
    """What is learnt."""
    if program.kind == "finetune":
        return FineTuning(AnswerSpans(Windowing(), impossible=False), program.model(), 1)
    return Pretraining(program.model(), 1)


def micro_batches(program: Program) -> Batch:
    """Return zeros with the shapes of the micro-batches' features, [A, ...]."""
    rows, masked = program.rows or program.batch, [program.batch, program.predictions]
    shapes = {name: [rows, program.tokens] for name in ("input_ids", "input_mask", "segment_ids")}
    if program.kind == "finetune":
        shapes |= {name: [program.batch, 1] for name in ("start_positions", "end_positions")}
    elif program.kind == "pretrain":
        shapes |= {name: masked for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")}
        shapes |= {"next_sentence_labels": [program.batch, 1]}
    if program.rows:
        shapes |= {"position_ids": [rows, program.tokens], "first_tokens": [program.batch]}
    return {
        name: tf.zeros([MICRO_BATCHES, *shape], tf.float32 if name == "masked_lm_weights" else tf.int32)
        for name, shape in shapes.items()
    }


def compiled_function(program: Program) -> tuple[Any, tuple[Any, ...]]:
    """The `tf.function` that XLA compiles in a run of the program, and arguments of the shapes that it gets there."""
    if program.kind == "answer":
        return _answers(program)
    task, config = task_of(program), program.config()
    step = Step(task, Optimizer(variables(task.module), config.optimizer), Communicator(), config.precision, config.run)
    if program.kind == "update":
        gradients = [tf.zeros_like(gradient) for gradient in step.accumulator.gradients]
        return step.apply, (gradients, tf.constant(1.0), tf.constant(1e-3))
    weights = {name: tf.constant(1.0) for name in task.names}
    places = tf.range(MICRO_BATCHES, dtype=tf.int64)
    return step.accumulator.loop, (micro_batches(program), weights, tf.constant(1, tf.int64), places)


def _answers(program: Program) -> tuple[Any, tuple[Any, ...]]:
    """The model of squad.predict, compiled whole; squad.predict itself compiles parts of it."""
    answering = TaskModel(program.model(), 1, AnswerSpans.described)
    encoder = InferenceEncoder(answering.encoder, tf.as_dtype(program.compute))
    ids = tf.zeros([program.batch, program.tokens], tf.int32)
    compute = graphs.function(lambda *inputs: answering.head(encoder(*inputs), inputs[1]), jit_compile=True)
    return compute, (ids, ids, ids)


def lowered(function: Any, arguments: tuple[Any, ...]) -> bytes:
    """The HLO of a `tf.function`, before XLA's optimisations, without what only says where it comes from."""
    module = hlo_pb2.HloModuleProto()
    compiler = function.experimental_get_compiler_ir(*arguments)
    module.ParseFromString(compiler(stage="hlo_serialized", platform_name="CPU"))
    module.ClearField("stack_frame_index")
    for computation in module.computations:
        computation.name = TRACED.sub("", computation.name)
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
            if instruction.opcode == "copy":  # StableHLO, which jaxlib wants, has none
                instruction.opcode = "reshape"  # to the same shape
    return module.SerializeToString(deterministic=True)


def main(arguments: list[str]) -> None:
    """Run the command."""
    program = Program(**json.loads(arguments[0]))
    choose_gpu_branches()
    leave_weights_zero()
    function, values = compiled_function(program)
    path = Path(arguments[1])
    with files.atomic_write(path.with_suffix(".flags")) as stream:
        stream.write(xla_flags())
    with files.atomic_write(path, "wb") as stream:
        stream.write(lowered(function, values))


if __name__ == "__main__":
    main(sys.argv[1:])
