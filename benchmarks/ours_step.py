"""Our contender in benchmarks/steps.py: the trainer's step, and inference as in squad.predict and squad.export.

python -m benchmarks.ours_step cpu|gpu        # for the commands see benchmarks/adapter.py
"""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import adapter, batch_file
from bert.convert import __main__ as convert
from bert.core import outputs
from bert.core.config import ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from bert.hardware import devices, graphs
from bert.hardware.devices import Device
from bert.model import cost
from bert.model.encoder import variables
from bert.model.inference import InferenceEncoder
from bert.pretraining import Pretraining
from bert.text import sampler
from bert.text.batches import LENGTH_MULTIPLE
from bert.text.sampler import Batch
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step
from bert.training.task import Task
from squad.config import Windowing
from squad.features import INPUTS
from squad.model import AnswerSpans
from tasks.training import FineTuning

LEARNING_RATE = 1e-4


def _task(work: str, config: ModelConfig) -> Task:
    if work == "pretrain":
        return Pretraining(config, seed=1)
    return FineTuning(AnswerSpans(Windowing(), impossible=False), config, seed=1)


class Ours:
    """A model and its step."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def export(self, model: dict[str, Any], work: str, weights: str) -> adapter.Answer:
        """Write a run directory, WEIGHTS/run, and the same for transformers, WEIGHTS/transformers.

        Noise is added to every initial weight, so that no bias is zero and logits differ.
        """
        config, run = ModelConfig(**model), Path(weights, "run")
        run.mkdir(parents=True)
        config.save(run / "bert_config.json")
        words = [f"w{number}" for number in range(config.vocab_size - len(SPECIAL))]
        (run / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
        random, deviation = np.random.default_rng(5), 0.5 * config.hidden_size**-0.5
        initial = variables(_task(work, config).module)
        values = {name: value + random.normal(0, deviation, value.shape).astype("f") for name, value in initial.items()}
        checkpoint.save(run, 0, values, keep=1)
        convert.convert("export", "huggingface", run, Path(weights, "transformers"))
        return {}

    def setup(self, work: str, weights: str, inputs: str, compute: Any, dropout: float) -> adapter.Answer:
        """Build the model from the weights and load the batches.

        Return `shapes`, `threads` and `versions`, as described in `adapter.Contender`.
        """
        self.work, self.compute, run = work, compute, Path(weights, "run")
        config = dataclasses.replace(
            ModelConfig.load(run / "bert_config.json"),
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
        task = _task(work, config)
        checkpoint.load_weights(run, variables(task.module))
        padded = [{name: tf.constant(value) for name, value in arrays.items()} for arrays in batch_file.load(inputs)]
        # As in squad.predict and with batch.bucket_by_length.
        multiple = LENGTH_MULTIPLE if work == "infer" else None
        self.batches = padded if len(padded) == 1 else [sampler.trim_padding(batch, multiple) for batch in padded]
        self.run = self._inference(task) if work == "infer" else self._training(task)
        scored = self.batches[0]["masked_lm_ids"].shape[1] if work == "pretrain" else 0
        read = [scored, cost.states_read(scored)] if scored else [0]
        shapes = [[*batch["input_ids"].shape, *read] for batch in self.batches]
        threads = int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0"))
        return {"shapes": shapes, "threads": threads, "versions": outputs.versions()}

    def _training(self, task: Task) -> Any:
        optimizer = Optimizer(variables(task.module), OptimizerConfig(name="adamw", learning_rate=LEARNING_RATE))
        precision = PrecisionConfig(compute=self.compute, xla=None).resolved(self.device.is_gpu)
        step = Step(task, optimizer, Communicator(), precision, RunConfig(seed=1))
        self.updates = 0

        def update(batch: Batch) -> float:
            self.updates += 1
            return step.update(self.updates, [batch], LEARNING_RATE)["loss"]

        return update

    def _inference(self, task: Any) -> Any:
        encoder = InferenceEncoder(
            task.module.encoder, tf.as_dtype(self.compute)
        )  # as squad.predict and squad.export do
        score = graphs.function(
            lambda inputs: task.module.head(encoder(*(inputs[name] for name in INPUTS)), inputs["input_mask"]),
            input_signature=[dict.fromkeys(INPUTS, tf.TensorSpec([None, None], tf.int32))],
        )
        return lambda batch: [logits.numpy() for logits in score({name: batch[name] for name in INPUTS})]

    def values(self) -> adapter.Answer:
        """Return the losses of three updates on the first batch, or for inference the logits of its tokens."""
        batch = self.batches[0]
        if self.work != "infer":
            return {"values": [self.run(batch) for _ in range(3)]}
        logits, real = np.stack(self.run(batch)), batch["input_mask"].numpy() > 0
        return {"values": logits[:, real].ravel().tolist()}

    def lap(self, laps: int) -> adapter.Answer:
        """Return the seconds of each pass over all batches; on a GPU also `peak_mb`, the most memory taken so far."""
        answer = adapter.timed(self.run, self.batches, laps)
        if self.device.is_gpu:
            answer["peak_mb"] = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e6
        return answer

    def peak(self) -> adapter.Answer:
        """Return the FLOP/s of TensorFlow's fastest square matrix product."""
        multiply = graphs.function(tf.matmul)

        def product(size: int) -> Any:
            a, b = (tf.cast(tf.random.normal([size, size]), self.compute) for _ in range(2))
            return lambda: multiply(a, b)[0, 0].numpy()

        return adapter.fastest(product, self.device.kind.lower())


if __name__ == "__main__":
    adapter.serve(Ours(devices.choose("gpu" if sys.argv[1] == "gpu" else "cpu")))
