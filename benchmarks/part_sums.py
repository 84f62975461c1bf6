"""Measure what a sum over the parts of a model takes, which every layer of tensor parallelism waits for.

    python -m benchmarks.part_sums [--ranks 2] [--tensor 2] [--cycle_time 0 1]

Sums depend on each other in a chain, as those of layers do, and between two of them is one multiplication. The table
has the best and the median microseconds of a sum over all turns. The first rank's clock is used.

The rows `sockets` are two processes that do what a ring of two does with the kernel's TCP alone: each sends a half of
its numbers, adds the half that it receives, and sends the sum back. In the second of these rows other threads transfer,
and the first thread waits for them, as in Horovod with Gloo. They show what part of a sum TCP itself takes.
"""

import dataclasses
import json
import multiprocessing
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks.contender import ROOT
from bert import cli, ranges
from bert.config import ParallelConfig, RunConfig
from bert.errors import UserError
from bert.ranges import Range
from bert.storage import files

SIZES = {"4 B": 1, "64 KB": 1 << 14, "1 MB": 1 << 18, "4 MB": 1 << 20}  # floats
CHAIN = 20  # sums in a chain
WAYS = {"sockets": False, "sockets, other threads transfer": True}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.part_sums`."""

    ranks: Annotated[int, Range(2, 64)] = 2
    """ranks on this machine"""
    tensor: Annotated[int, Range(2, 64)] = 2
    """parts of a model"""
    cycle_time: tuple[Annotated[float, Range(0, 1000)], ...] = (0.0, 1.0)
    """milliseconds between the rounds of Horovod's background thread (HOROVOD_CYCLE_TIME); the trainer's is 0"""
    turns: Annotated[int, Range(1, 10_000)] = 30
    """chains of each size"""
    result: Path | None = None
    """where a rank writes its figures (the command starts ranks with it)"""

    def __post_init__(self) -> None:
        ranges.check(self)


def measure_rank(options: Options, result: Path) -> None:
    """Time the chains; rank 0 writes the microseconds of a sum in each, by size."""
    import tensorflow as tf

    from bert.hardware import graphs
    from bert.training.distributed import connect

    comm = connect(RunConfig(device="cpu"), ParallelConfig(tensor=options.tensor))

    @graphs.function
    def chain(x: tf.Tensor) -> tf.Tensor:
        for number in range(CHAIN):
            x = comm.parts.sum(x, f"link_{number}") * (1 / options.tensor)
        return x

    found = {}
    for size, count in SIZES.items():
        ones, times = tf.ones([count]), []
        for turn in range(options.turns + 2):
            comm.all_reduce([tf.zeros([])])  # begin together
            began = time.perf_counter()
            with comm.collective():
                total = chain(ones).numpy()
            if turn > 1:  # the first ones trace it and agree on names
                times.append(1e6 * (time.perf_counter() - began) / CHAIN)
            assert (total == 1).all()
        found[size] = times
    if comm.rank == 0:
        result.write_text(json.dumps(found), encoding="utf-8")


def start(options: Options, cycle_time: float, result: Path) -> dict[str, list[float]]:
    """Run the ranks; return the microseconds of a sum in each turn, by size."""
    launch = [str(ROOT / "scripts" / "launch.sh"), "-np", str(options.ranks), "--", sys.executable, "-m"]
    sizes = ["--tensor", str(options.tensor), "--turns", str(options.turns)]
    command = [*launch, "benchmarks.part_sums", "--result", str(result), *sizes]
    environment = os.environ | {"HOROVOD_CYCLE_TIME": f"{cycle_time:g}"}
    if status := subprocess.run(command, cwd=ROOT, env=environment).returncode:
        raise UserError(f"the ranks ended with exit code {status}; see their messages")
    found: dict[str, list[float]] = files.read_json(result)
    return found


class Ring:
    """Sums of two processes through one TCP connection between them."""

    def __init__(self, connection: socket.socket, rank: int, threads: bool) -> None:
        """threads: send and receive in two threads, which are handed one transfer after the other."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._rank = connection, rank
        self._sender, self._receiver = Worker(), Worker() if threads else None

    def sum(self, x: np.ndarray) -> None:
        """Add the other process's numbers to x in place."""
        halves = np.array_split(x, 2)
        mine, theirs = halves[self._rank], halves[1 - self._rank]
        received = np.empty_like(mine)
        self._exchange(theirs, received)
        mine += received
        self._exchange(mine, theirs)

    def _exchange(self, sent: np.ndarray, received: np.ndarray) -> None:
        small = sent.nbytes <= 1 << 16  # fits the kernel's buffers, so that sending does not wait for the other side
        if self._receiver is None and small:
            self._connection.sendall(sent.data)
            self._receive(received)
            return
        sending = self._sender.start(lambda: self._connection.sendall(sent.data))
        if self._receiver is None:
            self._receive(received)
        else:
            self._receiver.start(lambda: self._receive(received)).wait()
        sending.wait()

    def _receive(self, x: np.ndarray) -> None:
        left = x.data.cast("B")
        while left:
            got = self._connection.recv_into(left)
            if not got:
                raise ConnectionError("the other process ended")
            left = left[got:]


class Worker:
    """A thread that runs one function after the other."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], object], threading.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, function: Callable[[], object]) -> threading.Event:
        """Hand over a function; return what tells that it has ended."""
        ended = threading.Event()
        self._work.put((function, ended))
        return ended

    def _run(self) -> None:
        while True:
            function, ended = self._work.get()
            function()
            ended.set()


def time_sockets(connection: socket.socket, rank: int, threads: bool, turns: int) -> dict[str, list[float]]:
    """Return the microseconds of a sum in each turn, by size. Both processes call it, with ranks 0 and 1."""
    ring, found = Ring(connection, rank, threads), {}
    for size, count in SIZES.items():
        x, times = np.ones(max(count, 2), np.float32), []  # two halves: at least a number for each process
        for _ in range(turns):
            ring.sum(np.zeros(2, np.float32))  # begin together
            began = time.perf_counter()
            for _ in range(CHAIN):
                ring.sum(x)
                x *= 0.5
            times.append(1e6 * (time.perf_counter() - began) / CHAIN)
            assert (x == 1).all()
        found[size] = times
    return found


def _other_process(port: int, threads: bool, turns: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        time_sockets(connection, 1, threads, turns)


def measure_sockets(threads: bool, turns: int) -> dict[str, list[float]]:
    """Return the microseconds of a sum of two processes through a TCP connection of this machine, by size."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = (server.getsockname()[1], threads, turns)
        other = multiprocessing.get_context("spawn").Process(target=_other_process, args=arguments)
        other.start()
        connection, _ = server.accept()
        with connection:
            found = time_sockets(connection, 0, threads, turns)
        other.join()
    return found


def cells(name: str, found: dict[str, list[float]]) -> str:
    """Return a row of the table."""
    times = [f"{min(times):,.0f} ({statistics.median(times):,.0f})" for times in found.values()]
    return f"| {name} | {' | '.join(times)} |"


def main(argv: list[str]) -> None:
    options = cli.parse(Options, argv, prog="python -m benchmarks.part_sums", description=__doc__)
    if options.result is not None:
        measure_rank(options, options.result)
        return
    print(f"{options.ranks} ranks, {options.tensor} parts; microseconds of a sum: the best (the median)")
    print(f"| | {' | '.join(SIZES)} |\n|---|{'---|' * len(SIZES)}")
    for name, threads in WAYS.items():
        print(cells(name, measure_sockets(threads, options.turns)), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for cycle_time in options.cycle_time:
            found = start(options, cycle_time, Path(scratch, "result.json"))
            print(cells(f"HOROVOD_CYCLE_TIME={cycle_time:g}", found), flush=True)


if __name__ == "__main__":
    cli.main(main)
