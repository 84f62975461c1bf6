"""The process of one measurement in `benchmarks.gpu_day`, which writes its result as JSON.

python -m benchmarks.gpu_day.measure NAME --output DIR --scale full|smoke
"""

import dataclasses
import hashlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import cases
from benchmarks.gpu_day import inputs, measurements
from benchmarks.gpu_day.measurements import Scale
from benchmarks.steps import commit
from bert.config import BatchConfig, ModelConfig, OptimizerConfig, PrecisionConfig, PretrainConfig, RunConfig
from bert.errors import UsageError
from bert.hardware import devices, graphs, nvidia
from bert.hardware.devices import Device
from bert.model.encoder import variables
from bert.model.inference import InferenceEncoder
from bert.plan import model_cost
from bert.pretrain import Pretraining
from bert.storage import files, outputs
from bert.training import preflight
from bert.training.distributed import Communicator
from bert.training.optimizer import Optimizer
from bert.training.step import Step

MAX_UPDATES = 200  # that are timed
Facts = dict[str, Any]


class Skipped(Exception):
    """This machine does not have what the measurement needs."""


class Measure:
    """The kinds of measurements; each returns its result."""

    def __init__(self, scale: Scale, output: Path) -> None:
        self.scale, self.output = scale, output

    def devices(self) -> Facts:
        """Measure the machine, a matrix product, and one update of a small model."""
        device = devices.choose()
        size, dtype = self.scale.product, "bfloat16" if device.is_gpu else "float32"
        a = tf.cast(tf.random.stateless_normal([size, size], seed=(1, 2)), dtype)
        multiply = graphs.function(lambda x, y: tf.matmul(x, y), jit_compile=True)
        multiply(a, a)[0, 0].numpy()
        begun, times = time.perf_counter(), 20
        for _ in range(times):
            product = multiply(a, a)
        product[0, 0].numpy()
        rate = times * 2 * size**3 / (time.perf_counter() - begun)
        step, batch = self._small("auto", "float32", xla=True, device=device)
        loss = step.update(1, [batch], 1e-4)["loss"]
        asked = nvidia.nvidia_smi("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
        return {
            "device": device.describe(),
            "gpu": device.name if device.is_gpu else "",
            "nvidia_smi": asked.strip(),
            "cores": len(os.sched_getaffinity(0)),
            "product_teraflops": rate / 1e12,
            "loss": loss,
            "commit": commit(),
            "build": {key: str(value) for key, value in tf.sysconfig.get_build_info().items()},
            "versions": {"python": platform.python_version(), **outputs.versions()},
        }

    def losses(self, compute: str, device: str, xla: bool) -> Facts:
        """Return losses of some updates with dropout, and their difference from the CPU's."""
        step, batch = self._small(device, compute, xla)
        losses = [step.update(number, [batch], 1e-4)["loss"] for number in range(1, measurements.UPDATES + 1)]
        facts: Facts = {"losses": losses, "compute": compute}
        reference = self.output / "results" / "losses_cpu.json"
        if device != "cpu" and reference.exists():
            theirs = np.array(inputs.read(reference)["losses"])
            apart = float(np.max(np.abs(np.array(losses) - theirs) / np.abs(theirs)))
            tolerance = measurements.TOLERANCE[compute]
            facts |= {"apart": apart, "tolerance": tolerance, "equal": apart <= tolerance}
        return facts

    def bits(self, deterministic: bool) -> Facts:
        """Return a hash of all weights after six updates of two micro-batches."""
        step, batch = self._small("auto", "bfloat16", xla=True, deterministic=deterministic)
        for number in range(1, 7):
            step.update(number, [batch, batch], 1e-3)
        digest = hashlib.sha256()
        for name in sorted(step.state):
            digest.update(step.state[name].numpy().tobytes())
        return {"sha256": digest.hexdigest(), "deterministic": deterministic}

    def _small(
        self, kind: Any, compute: Any, xla: bool, deterministic: bool = False, device: Device | None = None
    ) -> tuple[Step, Any]:
        """A step of the small model and its batch."""
        device = device or devices.choose(kind, deterministic=deterministic)
        tokens, rows, predictions = self.scale.losses
        task = Pretraining(self.scale.small, seed=1)
        optimizer = Optimizer(variables(task.module), OptimizerConfig(name="adamw", learning_rate=1e-4))
        precision = PrecisionConfig(compute=compute, xla=xla)
        step = Step(task, optimizer, Communicator(), precision, RunConfig(seed=1))
        return step, _batch("pretrain", tokens, rows, predictions)

    def pretrain(self) -> Facts:
        """Run bert.pretrain with a tiny model on this device."""
        data, run = inputs.records_folder(self.output / "data"), self.output / "scratch" / "pretrain"
        shutil.rmtree(run, ignore_errors=True)
        command = [sys.executable, "-m", "bert.pretrain", "bert_large_phase1", "--smoke", "--data.train", str(data)]
        said, code = self._run([*command, "--run.directory", str(run)])
        if code:
            raise RuntimeError(f"it ended with code {code}: {said[-1]}")
        lines = [line for line in said if line.startswith(("device:", "train "))]
        *_, last, _ = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()  # what the run was fed follows
        return {"said": lines, "metrics": last}

    def _run(self, command: list[str]) -> tuple[list[str], int]:
        """Run a command; return its output, which is also copied to this process's log, and its exit code."""
        said = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                said += [line.strip()] if line.strip() else []
        return said or ["it printed nothing"], process.returncode

    def step(
        self,
        work: str,
        tokens: int,
        batch: int,
        predictions: int,
        model: Facts | None = None,
        precision: Facts | None = None,
        deterministic: bool = False,
    ) -> Facts:
        """Measure seconds and memory of updates with several micro-batches."""
        config = dataclasses.replace(self.scale.model, **(model or {}))
        given = PrecisionConfig(**{"compute": "bfloat16", "xla": True, **(precision or {})})
        device = devices.choose(deterministic=deterministic)
        if config.fused_attention and not device.is_gpu:
            raise Skipped("cuDNN's attention needs a GPU")
        preflight.fused_attention(config, given, tokens)
        task = Pretraining(config, seed=1) if work == "pretrain" else _spans(config)
        rule = OptimizerConfig(name="lamb" if work == "pretrain" else "adam", learning_rate=1e-4)
        optimizer = Optimizer(variables(task.module), rule)
        step = Step(task, optimizer, Communicator(), given, RunConfig(seed=1))
        micro = [_batch(work, tokens, batch, predictions)] * (self.scale.micro_batches if work == "pretrain" else 1)
        begun = time.perf_counter()
        loss = step.update(1, micro, 1e-4)["loss"]
        first = time.perf_counter() - begun
        compiling = _peak(device)
        spent = _timed(lambda number: step.update(number, micro, 1e-4), self.scale.seconds)
        median, sequences = statistics.median(spent), batch * len(micro)
        flops = model_cost.flops(
            config, tokens, predictions, model_cost.states_read(predictions) if predictions else None
        )
        return {
            "tokens": tokens,
            "batch": batch,
            "micro_batches": len(micro),
            "compute": given.compute,
            "loss": loss,
            "first_seconds": first,
            "seconds": spent,
            "sequences_per_second": sequences / median,
            "teraflops": sequences * flops / median / 1e12,
            "peak_bytes": _peak(device),
            "compiling_bytes": compiling,
            "planned_bytes": _planned(config, given, tokens, batch, predictions) if work == "pretrain" else None,
        }

    def answers(self, tokens: int, batch: int) -> Facts:
        """Measure milliseconds from token ids to answer logits, in bfloat16."""
        device = devices.choose()
        from squad.features import INPUTS

        task = _spans(self.scale.model)
        encoder = InferenceEncoder(task.module.encoder, tf.bfloat16 if device.is_gpu else tf.float32)
        score = graphs.function(
            lambda given: task.module.answer_span(encoder(*(given[name] for name in INPUTS))),
            input_signature=[dict.fromkeys(INPUTS, tf.TensorSpec([None, None], tf.int32))],
        )
        arrays = _batch("infer", tokens, batch, 0)
        begun = time.perf_counter()
        [logits.numpy() for logits in score(arrays)]
        first = time.perf_counter() - begun
        spent = _timed(lambda number: [logits.numpy() for logits in score(arrays)], self.scale.seconds)
        return {
            "tokens": tokens,
            "batch": batch,
            "first_seconds": first,
            "milliseconds": 1000 * statistics.median(spent),
            "sequences_per_second": batch / statistics.median(spent),
            "peak_bytes": _peak(device),
        }

    def peer(self, tokens: int, batch: int, predictions: int) -> Facts:
        """Measure the same step with transformers on PyTorch, in another process with the interpreter PEER_PYTHON."""
        arrays = self.output / "scratch" / f"peer-{tokens}.npz"
        arrays.parent.mkdir(parents=True, exist_ok=True)
        cases.save(_case("pretrain", tokens, batch, predictions), arrays)
        model = self.output / "scratch" / "peer.json"
        files.write_json(model, dataclasses.asdict(self.scale.model))
        answer = self.output / "scratch" / f"peer-{tokens}.json"
        answer.unlink(missing_ok=True)
        python = os.environ.get("PEER_PYTHON") or sys.executable
        places = [str(model), str(arrays), str(answer)]
        count, seconds = str(self.scale.micro_batches), str(self.scale.seconds)
        command = [python, "-m", "benchmarks.gpu_day.peer", *places, count, seconds]
        said, code = self._run(command)
        if code == 3:
            raise Skipped(said[-1])
        if code:
            raise RuntimeError(f"it ended with code {code}: {said[-1]}")
        result = inputs.read(answer)
        sequences, median = batch * self.scale.micro_batches, statistics.median(result["seconds"])
        flops = model_cost.flops(self.scale.model, tokens, predictions)
        rates = {"sequences_per_second": sequences / median, "teraflops": sequences * flops / median / 1e12}
        return result | rates | {"tokens": tokens, "batch": batch, "compute": "bfloat16"}


def _spans(config: ModelConfig) -> Any:
    """The task of questions; its package needs a tokenizer, which a bare environment may not have."""
    from squad.train import AnswerSpans

    return AnswerSpans(config, seed=1)


def _case(work: str, tokens: int, batch: int, predictions: int) -> cases.Case:
    return cases.Case("gpu_day", work, batch, tokens, predictions, lengths="full")


def _batch(work: str, tokens: int, batch: int, predictions: int) -> Any:
    (arrays,) = cases.batches(_case(work, tokens, batch, predictions))
    return {name: tf.constant(value) for name, value in arrays.items()}


def _timed(call: Callable[[int], Any], seconds: float) -> list[float]:
    """Time calls after one warm-up call: at least three, and as many as fit into `seconds`."""
    call(2)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < MAX_UPDATES):
        begun = time.perf_counter()
        call(len(times) + 3)
        times.append(time.perf_counter() - begun)
    return times


def _peak(device: Device) -> int | None:
    """Most bytes of the GPU in use at once since the last call; None where TensorFlow does not count them."""
    if not device.is_gpu:
        return None
    try:
        peak = int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
        tf.config.experimental.reset_memory_stats("GPU:0")
    except (ValueError, tf.errors.OpError) as error:  # not every allocator counts
        print(f"warning: memory is not known: {error}", file=sys.stderr)
        return None
    return peak


def _planned(model: ModelConfig, precision: PrecisionConfig, tokens: int, batch: int, predictions: int) -> int:
    """Return the memory that `bert.plan.model_cost` estimates."""
    config = PretrainConfig(
        model=model,
        batch=BatchConfig(total=batch, per_device=batch),
        optimizer=OptimizerConfig(learning_rate=1e-4),
        precision=precision,
    )
    working = sum(model_cost.activations(config, tokens, predictions).values())
    return model_cost.parameters(model) * model_cost.STATE_BYTES + working


def _end_with_parent() -> None:
    """End this process when its parent is gone, so that it does not occupy the GPU."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(name: str, output: Path, scale: Scale) -> None:
    """Run the measurement and write results/NAME.json."""
    _end_with_parent()
    (chosen,) = [one for one in measurements.order(scale) if one.name == name]
    try:
        result = getattr(Measure(scale, output), chosen.kind)(**chosen.arguments)
    except Skipped as error:
        result = {"skipped": str(error)}
    except UsageError as error:  # what the machine does not do, said in one line
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    files.write_json(output / "results" / f"{name}.json", result)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[3]), {"full": measurements.FULL, "smoke": measurements.SMOKE}[sys.argv[5]])
