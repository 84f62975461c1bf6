"""What has no command of its own: python -m benchmarks.growth.calls NAME ARGUMENT...

Prints one line of JSON with the figures of the work alone, which count instead of those of the process.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPEATS = 30  # calls, of which the fastest counts
PIECE = 4_000_000  # bytes of a variable
SERVED = 120.0  # seconds within which the service must answer


def tokenize(vocab: str, size: str) -> dict[str, float]:
    """Processor milliseconds of one call with `size` questions; tracing is before."""
    from bert.text.tokenization import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(Path(vocab))
    texts = [f"Who founded bakaba number {number}, and where is it based today?" for number in range(int(size))]
    spent = []
    for _ in range(REPEATS):
        begun = time.process_time()
        tokenizer.encode_with_offsets(texts)
        spent.append(time.process_time() - begun)
    return {"milliseconds": 1000 * min(spent)}


def read(folder: str, count: str) -> dict[str, float]:
    """Files opened, and processor seconds, while `count` records are read at random, 64 at once."""
    import numpy as np

    from bert.text.records import Dataset

    data, opened = Dataset(Path(folder), "train"), 0
    samples = np.random.default_rng(9).integers(0, len(data), int(count))

    def count_opens(event: str, _: object) -> None:
        nonlocal opened
        opened += event == "open"

    data.read(samples[:64])  # traces
    sys.addaudithook(count_opens)
    begun = time.process_time()
    for first in range(0, len(samples), 64):
        data.read(samples[first : first + 64])
    return {"calls": opened, "seconds": time.process_time() - begun}


def _state(megabytes: str) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    # Not a constant: the kernel gives no memory for pages of zeros that nobody wrote.
    rows = int(megabytes) * 1_000_000 // PIECE or 1
    random = np.random.default_rng(3)
    size = min(PIECE, int(megabytes) * 1_000_000) // 4
    return {f"piece_{n:05d}": tf.Variable(random.random(size, np.float32)) for n in range(rows)}


def _measured(work: Any) -> dict[str, float]:
    """Processor seconds of `work`, and the largest resident memory while it ran."""
    Path("/proc/self/clear_refs").write_text("5")
    begun = time.process_time()
    work()
    return {"seconds": time.process_time() - begun, "megabytes": _memory("self")}


def _memory(process: object) -> float:
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert peak
    return int(peak[1]) * 1024 / 1e6


def save(run: str, megabytes: str) -> dict[str, float]:
    """A save, as the training loop does it, of this much state."""
    from bert.training.communicator import Communicator
    from bert.training.saver import Saver

    state = _state(megabytes)
    Path(run).mkdir(parents=True)

    def work() -> None:
        saver = Saver(Path(run), 1, 0, Communicator())
        saver.save(1, state)
        saver.wait()

    return _measured(work)


def restore(run: str, megabytes: str) -> dict[str, float]:
    """A restore, as a resumed run does it, of this much state."""
    from bert.training import checkpoint

    state = _state(megabytes)
    restored: list[int | None] = []
    result = _measured(lambda: restored.append(checkpoint.restore(Path(run), state)))
    assert restored == [1], restored
    return result


def serve(run: str, count: str) -> dict[str, float]:
    """`count` requests, one after the other: processor seconds and memory of the service, without its start."""
    import httpx

    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "serve", "--model", run, "--port", "0", "--log", "false"]
        process = subprocess.Popen(command, stderr=log, text=True)
        try:
            address = _address(process, log)
            with httpx.Client(base_url=address, timeout=SERVED) as client:
                client.get("/readyz").raise_for_status()
                begun = _seconds(process.pid)
                for number in range(int(count)):
                    client.post("/v1/classify", json={"text": f"Bakaba {number} is here."}).raise_for_status()
            return {"seconds": _seconds(process.pid) - begun, "megabytes": _memory(process.pid)}
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[str], log: Any) -> str:
    end = time.monotonic() + SERVED
    while time.monotonic() < end and process.poll() is None:
        log.seek(0)
        if address := re.search(r"listening on (http://\S+)", log.read()):
            return address[1]
        time.sleep(0.1)
    log.seek(0)
    sys.exit(f"error: the service did not start: {log.read().strip()[-300:]}")


def _seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def init() -> dict[str, float]:
    """The start of a rank, as the trainer makes it; the figures are those of all processes."""
    from bert.core.config import RunConfig
    from bert.training import distributed

    distributed.connect(RunConfig())
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
