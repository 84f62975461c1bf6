"""Where a run's numbers go: `metrics.jsonl` (the record), TensorBoard events, the console (a bar or plain lines)."""

import json
import math
import sys
import time
from pathlib import Path

import tensorflow as tf

from bert import files

NAME = "metrics.jsonl"
BAR = 24  # characters
SHOWN = {"loss", "mlm_accuracy", "nsp_accuracy", "sop_accuracy", "span_accuracy", "learning_rate",
         "sequences_per_second"}  # fmt: skip


class Log:
    """The sinks of one run; on ranks other than 0 it is silent."""

    def __init__(self, run: Path, *, steps: int, first: int, active: bool) -> None:
        """`first`: the step the run (re)starts after; lines of later steps, which it will write again, are dropped."""
        self.active, self.steps = active, steps
        if not active:
            return
        self._path = run / NAME
        self._forget_after(first)
        self._events = tf.summary.create_file_writer(str(run / "events"))
        self._bar = sys.stderr.isatty()

    def _forget_after(self, step: int) -> None:
        if self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines()
            with files.atomic_write(self._path) as stream:
                stream.writelines(line + "\n" for line in lines if _step_of(line) <= step)

    def write(self, step: int, split: str, values: dict[str, float]) -> None:
        """Records the values of `split` ("train" or "heldout") after update `step`."""
        if not self.active:
            return
        line = {"step": step, "split": split} | {key: _plain(value) for key, value in values.items()}
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        with self._events.as_default(step=step):
            for key, value in values.items():
                tf.summary.scalar(f"{split}/{key}", value)
        self._events.flush()
        self._show(step, split, values)

    def _show(self, step: int, split: str, values: dict[str, float]) -> None:
        text = " ".join(f"{key}={value:.4g}" for key, value in values.items() if key in SHOWN)
        clear = "\r\033[K" if self._bar else ""
        if self._bar and split == "train":
            filled = BAR * step // self.steps
            bar = "#" * filled + "." * (BAR - filled)
            print(f"{clear}[{bar}] {step}/{self.steps} {text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{clear}{split} {step}/{self.steps} {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Flushes and closes the sinks."""
        if self.active:
            self._events.close()
            if self._bar:
                print(file=sys.stderr)


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut by a kill


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON has no NaN; it must not be hidden either


class Clock:
    """Time spent in training steps, apart from evaluation and saving."""

    def __init__(self) -> None:
        self.seconds, self.sequences, self._since = 0.0, 0, 0.0

    def start(self) -> None:
        """A step begins."""
        self._since = time.perf_counter()

    def stop(self, sequences: int) -> None:
        """A step of `sequences` ends."""
        self.seconds += time.perf_counter() - self._since
        self.sequences += sequences

    def rates(self, tokens: int) -> dict[str, float]:
        """Sequences and tokens (`tokens` each, padding included) per second since the last call."""
        speed = self.sequences / self.seconds if self.seconds else 0.0
        self.seconds, self.sequences = 0.0, 0
        return {"sequences_per_second": speed, "tokens_per_second": speed * tokens}
