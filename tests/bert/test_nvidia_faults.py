"""Defects of NVIDIA's TensorFlow2/LanguageModeling/BERT, the source of some recipes, that this repository avoids.

Other tests cover: a second phase that drops the heads (test_resume, all ranks), no GELU in the masked-LM head
(test_encoder, the equations in NumPy), a held-out split that nothing reads (test_evaluate, test_recipes), a rate that
jumps after the warm-up (test_schedule), updates that are applied more than once (test_loss_scale), a hard import of
Horovod (test_distributed).
"""

import dataclasses
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert import recipes
from bert.core.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, PretrainConfig, RunConfig
from bert.core.errors import UsageError
from bert.model.encoder import variables
from bert.pretraining import Pretraining
from bert.text.records import Dataset
from bert.text.sampler import BatchSampler
from bert.training import loop, loss_scale, schedule
from bert.training.communicator import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step


class Twins(Communicator):
    """Two ranks that compute the same; what is sent as float16 is rounded and recorded."""

    size = 2

    def __init__(self) -> None:
        self.travelled: list[tf.Tensor] = []

    def all_reduce(self, tensors: Any, num_fp16: int = 0) -> list[tf.Tensor]:
        self.travelled += map(tf.identity, tensors[:num_fp16])  # copies: the accumulators are cleared later
        small = [tf.cast(tf.cast(tensor, tf.float16), tf.float32) for tensor in tensors[:num_fp16]]
        return [2 * tensor for tensor in [*small, *tensors[num_fp16:]]]


def stepped(
    config: ModelConfig, dataset: Path, among: Communicator, precision: PrecisionConfig, per_device: int
) -> Step:
    """Return a step with LAMB after three updates over the first twelve samples."""
    task = Pretraining(config, seed=3)
    step = Step(
        task,
        Optimizer(variables(task.module), OptimizerConfig(name="lamb", learning_rate=1.0)),
        among,
        precision,
        RunConfig(seed=4),
    )
    batch = BatchConfig(total=12, per_device=per_device)
    micro_batches = BatchSampler(Dataset(dataset, "train"), batch, seed=1).read(0)
    for number in (1, 2, 3):
        step.update(number, micro_batches, rate=1e-2)
    return step


@pytest.mark.slow
def test_gradients_are_scaled_while_they_are_sent_as_float16(model_config: ModelConfig, dataset: Path) -> None:
    """5: "gradients are unscaled *before* the fp16-compressed all-reduce (underflow)"."""
    twins = Twins()
    step = stepped(model_config, dataset, twins, PrecisionConfig(compute="float16", compress=True), per_device=3)
    names = list(step.optimizer.weights)
    sent = twins.travelled[: len(names)]
    smallest = np.finfo(np.float16).tiny
    lost = sum(int(tf.math.count_nonzero((tensor != 0) & (abs(tensor) < smallest))) for tensor in sent)
    would = sum(
        int(tf.math.count_nonzero((tensor != 0) & (abs(tensor) / loss_scale.INITIAL < smallest))) for tensor in sent
    )
    assert would > 50 * max(1, lost)


def test_the_order_of_flags_has_no_effect() -> None:
    """7: "echoes an unset variable name and omits P1 accumulation, so positional arguments shift"."""
    pairs = [("--batch.total", "12"), ("--batch.per_device", "3"), ("--run.steps", "7"), ("--run.seed", "5")]

    def chosen(*flags: str) -> PretrainConfig:
        return recipes.choose(["bert_base_phase1", *flags], prog="p", description="")[0].config

    for seed in range(5):
        assert chosen(*sum(Random(seed).sample(pairs, len(pairs)), ())) == chosen(*sum(pairs, ()))
    for wrong in (["96"], ["--run.steps", "7", "96"], ["--run.steps", ""], ["--run.steps"]):
        with pytest.raises(UsageError):
            chosen(*wrong)


@pytest.mark.slow
def test_the_rate_is_that_of_the_whole_batch_on_any_number_of_ranks(config: PretrainConfig, dataset: Path) -> None:
    """14: "LR is per-GPU and silently x size". That the weights of ranks are those of one is shown by test_loop.py."""
    short = dataclasses.replace(config, run=dataclasses.replace(config.run, log_every=1, evaluate_every=0))
    training = loop.Training(
        task=Pretraining(config.model, 5),
        config=short,
        comm=Twins(),
        data=Dataset(dataset, "train"),
        vocab=dataset / "vocab.txt",
    )
    loop.train(training)
    lines = [json.loads(line) for line in (short.run.path / "metrics.jsonl").read_text().splitlines()]
    wanted = [schedule.polynomial(done, peak=1e-2, warmup_steps=2, steps=7) for done in range(7)]
    assert [line["learning_rate"] for line in lines if line["split"] == "train"] == wanted
