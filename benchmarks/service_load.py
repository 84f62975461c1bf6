"""Load a question-answering service on this machine, and a plain transformers service with the same weights.

    python -m benchmarks.service_load --model RUN --dataset dev-v1.1.json --output workdir/benchmarks/service \\
        --peer_python .venv-parity/bin/python [--seconds 60]

Three services answer the same questions about the same passages, one after the other: ours, ours without micro-batches
(one window at a time), and benchmarks/peers/transformers_service.py. First a number of clients that ask again at once
measures how many questions a second each can answer. Then questions come at 0.5, 1 and 2 times the capacity of ours, at
random times that do not wait for answers. Prints a line of JSON for each: answers, refusals (503, 504), wrong and lost
answers, percentiles of the time to an answer, and the service's largest memory. Last comes the highest rate at which
95 % of the answers take at most --p95 seconds and none is refused.

An answer of ours is wrong if `squad.predict` with the same engine gives it a probability that is more than 0.001 below
that of its own. All
traffic stays on the loopback interface. The clients have a process of their own but share the cores with the service.
"""

import asyncio
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np

from benchmarks.engines import say
from bert.core import cli, ranges
from bert.core.ranges import BatchSize, Range, Seed
from bert.hardware.choices import Engine
from squad import examples
from squad import model as squad_model
from squad.answers import MAX_ANSWER_LENGTH
from squad.examples import Dataset
from squad.reader import Reader

PEER = "benchmarks.peers.transformers_service"
TOLERANCE = 1e-3  # of a probability
CLIENTS = 16  # that ask again at once, to measure the capacity
TIMEOUT = 60.0  # seconds until an answer is lost
BISECTIONS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.service_load`."""

    model: Path
    """run directory of squad.train"""
    dataset: Path
    """questions in SQuAD format"""
    output: Path
    """output folder"""
    peer_python: Path
    """interpreter with torch and transformers (scripts/extra_venv.sh parity)"""
    questions: Annotated[int, Range(1, 10**6)] = 400
    """number of questions, taken at random"""
    seconds: Annotated[float, Range(1, 3600)] = 60.0
    """length of each load"""
    p95: Annotated[float, Range(0.01, 60)] = 1.0
    """seconds that 95 % of the answers may take at most"""
    compute: squad_model.Compute = "float32"
    """data type of our matrix products; the peer's are float32"""
    engine: Engine = "auto"
    """what computes our model"""
    batch: BatchSize = 8
    """windows that are computed at once"""
    seed: Seed = 1
    """seed of the questions and of their times"""

    def __post_init__(self) -> None:
        ranges.check(self)


@dataclasses.dataclass(frozen=True)
class Query:
    """A question, and the probability of each answer that squad.predict considers."""

    body: bytes
    expected: dict[str, float]


@dataclasses.dataclass
class Outcome:
    """What became of the questions of one load."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    refused: int = 0
    wrong: int = 0
    lost: int = 0
    length: float = 0.0
    """seconds from the first question to the last answer"""

    def figures(self) -> dict[str, Any]:
        """Return the figures, with times in seconds."""
        total = len(self.seconds) + self.refused + self.lost
        p = np.percentile(self.seconds, [50, 95, 99]) if self.seconds else [float("nan")] * 3
        return {
            "asked": total,
            "answered": len(self.seconds),
            "refused": self.refused,
            "wrong": self.wrong,
            "lost": self.lost,
            "per_second": round(len(self.seconds) / self.length, 2),
            **{name: round(float(x), 3) for name, x in zip(("p50", "p95", "p99"), p, strict=True)},
        }


def questions(options: Options) -> list[Query]:
    """Return the questions with the answers of squad.predict, each computed alone."""
    read = examples.read_dataset(options.dataset, strict=False)
    chosen = random.Random(options.seed).sample(read.examples, min(options.questions, len(read.examples)))
    model = squad_model.load(options.model, options.compute, options.engine)
    reader = Reader(
        model, batch=1, n_best=20, max_answer_length=MAX_ANSWER_LENGTH, null=model.kind.impossible, compiled=False
    )
    chosen_questions = []
    for example, answers in reader.answer(Dataset(passages=read.passages, examples=chosen)):
        fields = {"question": example.question, "context": read.passages[example.passage], "n_best": 1}
        expected = {candidate.text: candidate.probability for candidate in answers.candidates}
        chosen_questions.append(Query(json.dumps(fields).encode(), expected))
    return chosen_questions


class Load:
    """Asks a service, and compares its answers."""

    def __init__(self, address: str, questions: Sequence[Query], checked: bool) -> None:
        """checked: whether answers are compared with the expected ones."""
        self.address, self.questions, self.checked = address, questions, checked
        # One client for each connection: a client looks through all its connections for each request, and with
        # hundreds of them it takes more of the processor than the service.
        self.idle: list[httpx.AsyncClient] = []

    async def ask(self, one: Query, outcome: Outcome) -> None:
        """Ask one question."""
        begun = time.perf_counter()
        client = self.idle.pop() if self.idle else httpx.AsyncClient(timeout=TIMEOUT, verify=False)
        try:
            response = await client.post(
                f"{self.address}/v1/answer", content=one.body, headers={"content-type": "application/json"}
            )
        except httpx.HTTPError:
            outcome.lost += 1
            return
        finally:
            self.idle.append(client)
        if response.status_code in (503, 504):
            outcome.refused += 1
        elif response.status_code != 200:
            outcome.lost += 1
        else:
            outcome.seconds.append(time.perf_counter() - begun)
            outcome.wrong += self.checked and _is_wrong(response.json(), one.expected)

    async def closed(self, seconds: float) -> float:
        """Return the answers per second to clients that ask again at once."""
        outcome, end = Outcome(), time.perf_counter() + seconds
        rest = iter(range(10**9))

        async def client() -> None:
            while time.perf_counter() < end:
                await self.ask(self.questions[next(rest) % len(self.questions)], outcome)

        begun = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return len(outcome.seconds) / (time.perf_counter() - begun)

    async def open(self, rate: float, seconds: float, seed: int) -> Outcome:
        """Ask `rate` questions a second at random times, whether or not earlier ones are answered."""
        outcome, times = Outcome(), random.Random(seed)
        tasks: list[asyncio.Task[None]] = []
        begun, at = time.perf_counter(), 0.0
        while (at := at + times.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
            tasks.append(asyncio.create_task(self.ask(self.questions[len(tasks) % len(self.questions)], outcome)))
        await asyncio.gather(*tasks)
        outcome.length = time.perf_counter() - begun
        return outcome


def _is_wrong(response: dict[str, Any], expected: dict[str, float]) -> bool:
    answer = response["answer"]
    probability = expected.get("" if answer is None else answer["text"], 0.0)
    return probability < max(expected.values(), default=0.0) - TOLERANCE


@contextmanager
def started(command: Sequence[object], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a service and wait until it answers."""
    with log.open("wb") as stream:
        process = subprocess.Popen([str(word) for word in command], stdout=stream, stderr=stream, env=os.environ)
        try:
            for _ in range(1200):
                try:
                    httpx.get(f"http://127.0.0.1:{port}/readyz").raise_for_status()
                    break
                except httpx.HTTPError:
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.1)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def largest_memory(process: subprocess.Popen[bytes]) -> int:
    """Return the largest resident memory of a process so far, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    assert peak
    return int(peak[1]) // 1000


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def measure(
    options: Options,
    name: str,
    address: str,
    queries: Sequence[Query],
    process: subprocess.Popen[bytes],
    capacity: float,
) -> float:
    """Print the figures of one service; return its capacity. capacity: of ours, 0 if this is ours."""
    load = Load(address, queries, checked=name != "transformers")
    await load.closed(options.seconds / 6)  # warm
    own = await load.closed(options.seconds / 3)
    say(service=name, load="closed", clients=CLIENTS, per_second=round(own, 2))
    for share in (0.5, 1.0, 2.0):
        rate = share * (capacity or own)
        outcome = await load.open(rate, options.seconds, options.seed)
        say(
            service=name,
            load=share,
            rate=round(rate, 2),
            **outcome.figures(),
            memory=largest_memory(process),
        )
    low, high = 0.0, 1.5 * own
    for _ in range(BISECTIONS):
        rate = (low + high) / 2
        outcome = await load.open(rate, options.seconds / 2, options.seed + 1)
        good = not (outcome.refused or outcome.lost) and np.percentile(outcome.seconds, 95) <= options.p95
        low, high = (rate, high) if good else (low, rate)
    say(service=name, load=f"p95 <= {options.p95} s", per_second=round(low, 2))
    for client in load.idle:
        await client.aclose()
    return own


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.service_load", description=__doc__)
    options.output.mkdir(parents=True, exist_ok=True)
    chosen = questions(options)
    exported = options.output / "exported"
    shutil.rmtree(exported, ignore_errors=True)
    convert = ("-m", "bert.convert", "export", "huggingface", options.model, exported)
    subprocess.run([sys.executable, *map(str, convert)], check=True, capture_output=True)
    windowing = squad_model.load(options.model).kind.windowing
    how = ("--compute", options.compute, "--engine", options.engine, "--log", "false")
    ours = (sys.executable, "-m", "serve", "--model", options.model, *how)
    single = ("--batch", 1, "--delay", 0)
    peer = (options.peer_python, "-m", PEER, exported)
    commands: dict[str, tuple[object, ...]] = {
        "ours": (*ours, "--batch", options.batch),
        "ours, one window at a time": (*ours, *single),
        "transformers": peer,
    }
    capacity = 0.0
    for name, command in commands.items():
        port = free_port()
        ends = (port, windowing.max_seq_length, windowing.doc_stride) if command is peer else ("--port", port)
        log = options.output / f"{name.split(',')[0]}.log"
        with started((*command, *ends), port, log) as process:
            own = asyncio.run(measure(options, name, f"http://127.0.0.1:{port}", chosen, process, capacity))
            capacity = capacity or own


if __name__ == "__main__":
    cli.main(main)
