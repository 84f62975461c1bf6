"""One rank of a measurement: the trainer's update in each way to exchange gradients, in turns.

    scripts/launch.sh -np N ... -- python -m benchmarks.slow_network.updates_rank TASK.json

TASK.json is a `Work`; rank R writes rank-R.jsonl into its folder. Every turn begins with the same weights and moments,
so the losses of a turn must be those of every other turn and way of exchange.
"""

import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks import cases
from benchmarks.slow_network import link
from benchmarks.slow_network.work import ALONE, WAYS, Work
from bert.config import ModelConfig, OptimizerConfig, ParallelConfig, PrecisionConfig, RunConfig
from bert.model.encoder import variables
from bert.plan import model_cost
from bert.pretrain import Pretraining
from bert.storage import files
from bert.training.buckets import depth
from bert.training.distributed import Communicator, connect
from bert.training.distributed_optimizer import optimizer_for
from bert.training.division import DividedVariable
from bert.training.optimizer import Optimizer
from bert.training.step import Step

RATE = 1e-4


def predictions_of(work: Work) -> int:
    """Return the masked tokens of a sequence."""
    return max(1, round(0.15 * work.tokens))


def complete(model: ModelConfig, tokens: int, predictions: int, at: float) -> float:
    """Return the share of the backward pass after which the gradients of depth `at` and deeper are complete.

    It is their share of the operations: the pass begins with the heads and ends with the embeddings.
    """
    one, two = (
        model_cost.flops(dataclasses.replace(model, num_hidden_layers=layers), tokens, predictions) for layers in (1, 2)
    )
    whole = model_cost.flops(model, tokens, predictions, model_cost.states_read(predictions))
    below = min(max(at - 1, 0), model.num_hidden_layers) * (two - one)
    return max(0.0, 1 - below / whole)


class Rank:
    """The model, its optimizers, and a step for each way."""

    def __init__(self, work: Work, comm: Communicator) -> None:
        self.work, self.comm = work, comm
        self.task = Pretraining(ModelConfig(**work.model), seed=3)
        self.weights = variables(self.task.module)
        self.initial = {name: weight.numpy() for name, weight in self.weights.items()}
        self.steps = {way: self._step(way) for way in [ALONE, *work.ways]}
        self.counters = {way: self._counters(step) for way, step in self.steps.items()}

    def _counters(self, step: Step) -> dict[str, Any]:
        """Return the values of the state that is neither weights nor moments."""
        names = [name for name in step.state if name not in self.weights and not name.startswith("adam_")]
        return {name: step.state[name].numpy() for name in names}

    def _step(self, way: str) -> Step:
        overlap, compress, sharded = WAYS.get(way, (False, False, False))
        work, config = self.work, OptimizerConfig(name="adamw", learning_rate=RATE)
        comm = Communicator() if way == ALONE else self.comm
        parallel = ParallelConfig(
            overlap=overlap,
            shard_optimizer=sharded,
            bucket_megabytes=work.bucket_megabytes if overlap or sharded else 0,
        )
        optimizer = optimizer_for(self.weights, config, parallel, comm) if sharded else self._whole(config)
        precision = PrecisionConfig(compress=compress, xla=work.xla)
        return Step(self.task, optimizer, comm, precision, RunConfig(seed=3), parallel)

    def _whole(self, config: OptimizerConfig) -> Optimizer:
        """Return the optimizer that all ways share which do not divide it: it is reset at every turn."""
        if not hasattr(self, "_optimizer"):
            self._optimizer = Optimizer(self.weights, config)
        return self._optimizer

    def reset(self, way: str) -> None:
        """Return to the initial weights and moments."""
        values = self.initial | self.counters[way]
        for name, variable in self.steps[way].state.items():
            local = variable.local if isinstance(variable, DividedVariable) else variable
            local.assign(values[name] if name in values else tf.zeros_like(local))

    def batches(self, count: int) -> list[dict[str, tf.Tensor]]:
        """Return this rank's micro-batches."""
        work = self.work
        case = cases.Case("", "pretrain", work.sequences, work.tokens, predictions_of(work))
        vocabulary = tf.constant(work.model["vocab_size"], tf.int32)

        def known(name: str, value: Any) -> tf.Tensor:
            return value % vocabulary if name in ("input_ids", "masked_lm_ids") else tf.constant(value)

        return [
            {name: known(name, value) for name, value in arrays.items()}
            for number in range(count)
            for arrays in cases.batches(case, seed=100 + number * self.comm.size + self.comm.rank)
        ]

    def turn(self, way: str, batches: list[dict[str, tf.Tensor]]) -> dict[str, Any]:
        """Make the updates of a turn; return times in seconds, losses, and the bytes on the link."""
        step = self.steps[way]
        self.reset(way)
        losses, seconds, micro_batches = [step.update(1, batches, RATE)["loss"]], [], []
        self.comm.all_reduce([tf.zeros([])])  # begin together
        (received, sent), cpu = link.traffic(), time.process_time()
        laps: list[float] = []
        for number in range(2, 2 + self.work.updates):
            laps[:] = [time.perf_counter()]
            losses.append(step.update(number, batches, RATE, lap=lambda _: laps.append(time.perf_counter()))["loss"])
            seconds.append(time.perf_counter() - laps[0])
            micro_batches.append((laps[2] - laps[1]) / len(batches))  # between the first sums and the gradients'
        cpu = time.process_time() - cpu
        now_received, now_sent = link.traffic()
        return {
            "way": way,
            "accumulation": len(batches),
            "losses": losses,
            "seconds": seconds,
            "micro_batch": micro_batches,
            "cpu": cpu / self.work.updates,
            "sent": (now_sent - sent) / self.work.updates,
            "received": (now_received - received) / self.work.updates,
        }

    def forward(self, batch: dict[str, tf.Tensor]) -> float:
        """Return the seconds of a forward pass, the median of three."""
        times = []
        for _ in range(4):
            began = time.perf_counter()
            self.steps[ALONE].evaluate({"": [batch]})
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    def facts(self) -> dict[str, Any]:
        """Return what figures are computed from beside times: the sizes of what travels, and when it is complete."""
        sizes = [4 * weight.shape.num_elements() for weight in self.weights.values()]
        depths = [depth(name) for name in self.weights]
        counts = ModelConfig(**self.work.model), self.work.tokens, predictions_of(self.work)
        buckets = {way: step.buckets for way, step in self.steps.items()}
        return {
            "parameters": sum(sizes) // 4,
            "buckets": {way: [sum(sizes[at] for at in bucket) for bucket in found] for way, found in buckets.items()},
            "ready": {
                way: [complete(*counts, min(depths[at] for at in bucket)) for bucket in found]
                for way, found in buckets.items()
            },
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        }


def main() -> None:
    work = Work(**files.read_json(Path(sys.argv[1])))
    tf.get_logger().setLevel("ERROR")  # it warns that one method is traced for several steps
    overlaps = any(WAYS[way][0] for way in work.ways)
    comm = connect(RunConfig(device="cpu"), ParallelConfig(overlap=overlaps))  # the same threads for all ways
    rank = Rank(work, comm)
    with open(Path(work.folder, f"rank-{comm.rank}.jsonl"), "a", encoding="utf-8") as stream:

        def tell(facts: dict[str, Any]) -> None:
            print(json.dumps(facts), file=stream, flush=True)

        tell(rank.facts() | {"forward": rank.forward(rank.batches(1)[0])})
        for accumulation in work.accumulation:
            batches = rank.batches(accumulation)
            for turn in range(work.turns):
                for way in rank.steps:
                    tell({"turn": turn} | rank.turn(way, batches))


if __name__ == "__main__":
    main()
