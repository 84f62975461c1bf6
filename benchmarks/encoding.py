"""Time vectors of texts: bert.load beside the backends of sentence-transformers, same weights, in alternating turns.

    python -m benchmarks.encoding RUN TEXTS --output DIR --peer_python .venv-optimum/bin/python [--rounds 5]

RUN is an embedding model (an import of a folder of sentence-transformers, or a run of `tasks.train embed`); TEXTS has a
text in each line. Ours are TensorFlow and OpenVINO in float32 and bfloat16, and 8 bits if RUN/int8 is there
(`bert.export openvino RUN RUN/int8 --int8 true`). RUN is exported under DIR for the backends: torch in float32 and
bfloat16, onnx in float32, openvino in both.

In each round every contender turns all texts into vectors once, tokenising included, in an order that changes from
round to round. Prints a line of JSON for each: medians of the milliseconds by the clock and of processor time, texts
in a second of processor time, and the smallest cosine of a vector to ours by TensorFlow in float32. The load comes
last. All use the cores that this process may use: `taskset -c 1 python -m ...` measures one thread.
"""

import itertools
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks.engines import ENGINES, TYPES, Peer, run_module, say
from bert.api import Model, load
from bert.core import cli, ranges
from bert.core.errors import InputError
from bert.core.ranges import Range
from bert.encode import read_texts
from bert.hardware import devices
from bert.hardware.choices import Compute, Engine

PEER = "benchmarks.peers.sentence_transformers_engine"
EXPORTS = {  # the command that writes what a backend reads
    "torch": ("bert.convert", "export", "huggingface"),
    "onnx": ("bert.export", "onnx"),
    "openvino": ("bert.export", "openvino"),
}
Turn = tuple[float, float, np.ndarray]  # milliseconds, milliseconds of processor time, vectors


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.encoding`."""

    run: cli.Run
    """embedding model"""
    texts: cli.Positional[Path]
    """file with a text in each line"""
    output: Path
    """folder for exports of the run"""
    peer_python: Path
    """interpreter with sentence-transformers and optimum (scripts/extra_venv.sh optimum)"""
    rounds: Annotated[int, Range(1, 10**6)] = 5
    """times that each turns all texts into vectors"""

    def __post_init__(self) -> None:
        ranges.check(self)


def ours(run: Path, texts: list[str]) -> dict[tuple[str, str], Callable[[], Turn]]:
    """Return what turns the texts into vectors in this process, by engine and type."""

    def turn(model: Model) -> Turn:
        begun, spent = time.perf_counter(), time.process_time()
        vectors = model.embed(texts)
        return 1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - spent), vectors

    engines: tuple[Engine, ...] = (*ENGINES, "openvino_int8") if (run / "int8").is_dir() else ENGINES
    ways = itertools.product(engines, TYPES)
    return {(engine, compute): partial(turn, loaded(run, compute, engine)) for engine, compute in ways}


def loaded(run: Path, compute: Compute, engine: Engine) -> Model:
    """Return a model that gives vectors."""
    model = load(run, compute=compute, engine=engine)
    if not isinstance(model, Model):
        raise InputError(f"{run}: it gives no vectors of texts")
    return model


def theirs(options: Options) -> dict[tuple[str, str], Peer]:
    """Return the backends of sentence-transformers, each in a process of its own."""
    peers: dict[tuple[str, str], Peer] = {}
    for backend, (module, *kind) in EXPORTS.items():
        folder = options.output / backend
        shutil.rmtree(folder, ignore_errors=True)
        run_module(module, *kind, options.run, folder)
        for compute in TYPES if backend != "onnx" else TYPES[:1]:
            name = f"sentence-transformers, {backend}", compute
            peers[name] = Peer(options.peer_python, PEER, (folder, backend, compute), options.output)
    return peers


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.encoding", description=__doc__)
    devices.hide_gpus()
    if not (texts := list(read_texts(options.texts))):
        raise InputError(f"{options.texts}: no text; give a file with a text in each line")
    options.output.mkdir(parents=True, exist_ok=True)
    source = options.output / "texts.json"
    source.write_text(json.dumps(texts))
    peers = theirs(options)
    try:
        contenders = ours(options.run, texts) | {name: partial(peer.ask, source) for name, peer in peers.items()}
        expected = contenders["tensorflow", "float32"]()[2]
        cosines = {name: float(cosine(turn()[2], expected).min()) for name, turn in contenders.items()}
        names, order = list(contenders), random.Random(1)
        turns: dict[tuple[str, str], list[tuple[float, float]]] = {name: [] for name in names}
        for _ in range(options.rounds):
            order.shuffle(names)
            for name in names:
                turns[name].append(contenders[name]()[:2])
    finally:
        for peer in peers.values():
            peer.close()
    for (engine, compute), times in turns.items():
        wall, cpu = np.median(times, axis=0).round(1).tolist()
        rate = round(1000 * len(texts) / cpu, 1)
        lowest = round(cosines[engine, compute], 6)
        say(engine=engine, compute=compute, wall_ms=wall, cpu_ms=cpu, texts_per_cpu_second=rate, lowest_cosine=lowest)
    say(load=os.getloadavg(), cores=len(os.sched_getaffinity(0)), texts=len(texts))


def cosine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the cosine of each row of one array [n, D] with that of another."""
    product: np.ndarray = (left * right).sum(-1) / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1)
    return product


if __name__ == "__main__":
    cli.main(main)
