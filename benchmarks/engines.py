"""Time the engines for inference on one model, and other programs with the same weights, in alternating turns.

    python -m benchmarks.engines RUN [--batch 1 8] [--length 128 384] [--rounds 20]
    python -m benchmarks.engines RUN --output DIR [--openvino8 EXPORT] [--peer_python .venv-parity/bin/python]

RUN is a run directory of squad.train. The engines are TensorFlow and OpenVINO, each in float32 and bfloat16. With
--output, RUN is exported there, and onnxruntime computes it in float32 and in `bert.export onnx --int8`'s 8 bits; with
--peer_python transformers on PyTorch does too, eager and through torch.compile, in a process for each. `--peers
optimum` is optimum-intel, which computes the same model by OpenVINO. EXPORT is an output of `bert.export openvino
--int8`; what it has not in 8 bits is computed in float32 and in bfloat16.

Rows are random tokens that fill their length. In each round every contender computes the same rows once, in an order
that changes from round to round. Prints a line of JSON for each batch size, length, engine and type: the median and the
fastest call in milliseconds, the median of the processor time that its process spends in a call, and the largest
difference of a logit to TensorFlow's float32, relative to the largest logit. First comes a line for each engine with
the seconds until the model can be asked and the memory that it takes, last the load. All use the cores that this
process may use: `taskset -c 1 python -m ...` measures one thread.
"""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import psutil

from bert.core import cli, ranges
from bert.core.errors import UsageError, UserError
from bert.core.ranges import BatchSize, Range
from bert.hardware import devices
from bert.hardware.choices import Compute, Engine
from bert.model.heads import INPUTS
from squad import model

ENGINES: tuple[Engine, ...] = ("tensorflow", "openvino")
TYPES: tuple[Compute, ...] = ("float32", "bfloat16")
PEER = "benchmarks.peers.transformers_engine"
Way = Literal["eager", "compile", "optimum"]
Rows = dict[str, np.ndarray]
Turn = tuple[float, float, list[np.ndarray]]  # milliseconds, milliseconds of processor time, logits
Contenders = dict[tuple[str, str], Callable[[Rows], Turn]]  # by engine and type


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.engines`."""

    run: cli.Run
    """run directory of squad.train"""
    batch: tuple[BatchSize, ...] = (1, 8)
    """rows of a call"""
    length: tuple[Annotated[int, Range(8, 65_536)], ...] = (128, 384)
    """tokens of a row"""
    rounds: Annotated[int, Range(1, 10**6)] = 20
    """calls of each engine for each shape"""
    output: Path | None = None
    """folder for exports of the run, which other programs compute"""
    openvino8: Path | None = None
    """output of bert.export openvino --int8 for the same run"""
    peer_python: Path | None = None
    """interpreter with torch and transformers (scripts/extra_venv.sh parity; for optimum: extra_venv.sh optimum)"""
    peers: tuple[Way, ...] = ("eager", "compile")
    """ways to run transformers"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.peer_python and not self.output:
            raise UsageError("--peer_python needs --output, a folder for the model as transformers reads it")


def load(options: Options) -> Contenders:
    """Return what computes the logits of rows, by engine and type; print what loading took."""
    made: Contenders = {}
    for engine, compute in itertools.product(ENGINES, TYPES):
        before, begun = psutil.Process().memory_info().rss, time.perf_counter()
        fine_tuned = model.load(options.run, compute, engine)
        made[engine, compute] = timed(computing(fine_tuned))
        made[engine, compute](rows_of(fine_tuned.run.config.vocab_size, 1, 16))
        seconds, grown = time.perf_counter() - begun, psutil.Process().memory_info().rss - before
        say(engine=engine, compute=compute, ready_seconds=round(seconds, 2), memory_mb=round(grown / 1e6))
    if options.output:
        for kind, more in (("float32", []), ("int8", ["--int8", "true"])):
            folder = options.output / f"onnx_{kind}"
            run_module("bert.export", "onnx", options.run, folder, *more)
            made["onnxruntime", kind] = timed(of_onnx(folder))
    if options.openvino8:
        for other, hint in (("float32", "f32"), ("bfloat16", "bf16")):
            made["openvino", f"int8, {other}"] = timed(of_openvino(options.openvino8, hint))
    return made


def run_module(*words: object) -> None:
    """Run a command of this project. Raise UserError with its last line if it fails."""
    done = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"python -m {words[0]}: {(done.stderr.splitlines() or [''])[-1]}")


def timed(function: Callable[[Rows], list[np.ndarray]]) -> Callable[[Rows], Turn]:
    """Return the function with the times of each call."""

    def turn(rows: Rows) -> Turn:
        begun, spent = time.perf_counter(), time.process_time()
        logits = function(rows)
        return 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - spent), logits

    return turn


def computing(fine_tuned: Any) -> Callable[[Rows], list[np.ndarray]]:
    """Return a function of rows that gives the logits, as the service and `bert.load` compute them."""
    import tensorflow as tf

    function = fine_tuned.encoder.function(lambda states, mask: fine_tuned.head(states[0], mask), compiled=False)
    return lambda rows: [logits.numpy() for logits in function(*(tf.constant(rows[name]) for name in INPUTS))]


def of_onnx(folder: Path) -> Callable[[Rows], list[np.ndarray]]:
    """Return a function of rows that gives the logits of an ONNX export, by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def compute(rows: Rows) -> list[np.ndarray]:
        arrays = (rows[name].astype(np.int64) for name in INPUTS)
        logits: list[np.ndarray] = session.run(None, dict(zip(names, arrays, strict=False)))
        return logits

    return compute


def of_openvino(folder: Path, hint: str) -> Callable[[Rows], list[np.ndarray]]:
    """Return a function of rows that gives the logits of an OpenVINO export. hint: type of what is not 8 bits."""
    from extensions.openvino.encoder import settings_for, shared_core

    settings = settings_for("float32") | {"INFERENCE_PRECISION_HINT": hint}
    request = shared_core().compile_model(folder / "openvino_model.xml", "CPU", settings).create_infer_request()

    def compute(rows: Rows) -> list[np.ndarray]:
        request.infer({place: rows[name].astype(np.int64) for place, name in enumerate(INPUTS)}, share_inputs=True)
        return [np.array(request.get_output_tensor(place).data) for place in range(2)]

    return compute


class Peer:
    """A process of another program, in benchmarks/peers, which computes what is in a file when it is told to."""

    def __init__(self, python: Path, module: str, words: Sequence[object], folder: Path) -> None:
        name = "_".join(str(word) for word in words[1:])
        self.answer, log = folder / f"{name}.npy", folder / f"{name}.log"
        with open(log, "wb") as stream:
            self.process = subprocess.Popen(
                [str(python), "-m", module, *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))},
            )

    def ask(self, source: Path) -> tuple[float, float, np.ndarray]:
        """Return the milliseconds by the clock and of processor time, and what was computed."""
        assert self.process.stdin and self.process.stdout
        print(source, self.answer, file=self.process.stdin, flush=True)
        wall, cpu = json.loads(self.process.stdout.readline() or "[NaN, NaN]")
        if np.isnan(wall):
            raise UserError(f"{self.answer.stem} ended ; see {self.answer.with_suffix('.log')}")
        return wall, cpu, np.load(self.answer)

    def close(self) -> None:
        """End the process."""
        self.process.communicate(timeout=60)


def peers_of(options: Options) -> dict[tuple[str, str], Peer]:
    """Return transformers in each way and type, if it is to be measured."""
    if options.peer_python is None:
        return {}
    assert options.output is not None, "the options are checked"
    folder = options.output / "transformers"
    shutil.rmtree(folder, ignore_errors=True)
    run_module("bert.convert", "export", "huggingface", options.run, folder)
    return {
        (f"transformers, {way}", compute): Peer(options.peer_python, PEER, (folder, way, compute), options.output)
        for way, compute in itertools.product(options.peers, TYPES)
    }


def asking(peer: Peer, source: Path) -> Callable[[Rows], Turn]:
    """Return a function of rows that gives the logits of a peer, which reads the rows from a file."""

    def turn(rows: Rows) -> Turn:
        np.savez(source, *(rows[name] for name in INPUTS))
        wall, cpu, logits = peer.ask(source)
        return wall, cpu, list(logits)

    return turn


def rows_of(vocabulary: int, batch: int, length: int) -> Rows:
    """Return random tokens without padding."""
    ids = np.random.default_rng(length).integers(min(1000, vocabulary // 2), vocabulary, (batch, length), np.int32)
    return dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))


def measure(contenders: Contenders, rows: Rows, rounds: int) -> dict[tuple[str, str], dict[str, float]]:
    """Return the figures of each contender for one shape."""
    expected = np.stack(contenders["tensorflow", "float32"](rows)[2])
    names, order = list(contenders), random.Random(1)
    wall, cpu = ({name: list[float]() for name in names} for _ in range(2))
    apart = {
        name: float(np.abs(np.stack(function(rows)[2]) - expected).max() / np.abs(expected).max())
        for name, function in contenders.items()
    }
    for _ in range(rounds):
        order.shuffle(names)
        for name in names:
            by_clock, by_processor, _ = contenders[name](rows)
            wall[name].append(by_clock)
            cpu[name].append(by_processor)
    return {
        name: {
            "median_ms": round(float(np.median(wall[name])), 2),
            "fastest_ms": round(min(wall[name]), 2),
            "cpu_ms": round(float(np.median(cpu[name])), 2),
            "apart": float(f"{apart[name]:.1e}"),
        }
        for name in contenders
    }


def say(**figures: Any) -> None:
    """Print a line of JSON."""
    print(json.dumps(figures), flush=True)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.engines", description=__doc__)
    devices.hide_gpus()
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
    peers = peers_of(options)
    try:
        contenders, vocabulary = load(options), model.load(options.run).run.config.vocab_size
        for name, peer in peers.items():
            contenders[name] = asking(peer, peer.answer.with_name("rows.npz"))
        for length, batch in itertools.product(options.length, options.batch):
            measured = measure(contenders, rows_of(vocabulary, batch, length), options.rounds)
            for (engine, compute), figures in measured.items():
                say(batch=batch, length=length, engine=engine, compute=compute, **figures)
    finally:
        for peer in peers.values():
            peer.close()
    say(load=os.getloadavg(), cores=len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    cli.main(main)
