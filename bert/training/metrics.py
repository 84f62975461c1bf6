"""Logging of metrics (`metrics.jsonl`, TensorBoard events, the console), and the clock that measures throughput."""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from bert.core import files, journal
from bert.core.progress import SCREEN, Progress
from bert.text import frames

SHOWN = {"loss", "learning_rate", "sequences_per_second", "f1", "exact_match", "matthews", "pearson", "spearman"}
EARLIER = (
    "its scores were from 0 to 1, and are now from 0 to 100 as those of later updates; the events for TensorBoard stay "
    "as they are"
)


class Log:
    """The logs of one run. `active` is true on rank 0 only."""

    def __init__(self, run: Path, *, steps: int, first: int, active: bool) -> None:
        """first: step after which the run starts. Remove the lines of later steps: the run writes them again."""
        self.active, self.steps = active, steps
        self.progress = Progress("train", "updates", steps, first)  # a block while the updates are made
        if not active:
            return
        self._path = run / journal.NAME
        self._remove_after(first)
        self._remove_events(run / "events", first)
        events = run / "events"
        events.mkdir(parents=True, exist_ok=True)  # TensorFlow's own has 0755, whatever the umask allows
        self._events = tf.summary.create_file_writer(str(events))
        self._last = ""  # line of training, if only the bar has shown it

    def _remove_after(self, step: int) -> None:
        if self._path.exists():
            lines = [line for line in self._path.read_bytes().split(b"\n") if _step_of(line) <= step]
            on_scale = [_on_scale(line) for line in lines]
            with files.atomic_write(self._path, "wb") as stream:
                stream.writelines(line + b"\n" for line in on_scale)
            if lines != on_scale:
                print(f"note: {self._path}: {EARLIER}", file=sys.stderr)

    def _remove_events(self, folder: Path, step: int) -> None:
        """Cut each TensorBoard file before its first event of a later update. The events of a file are in order."""
        for path in sorted(folder.glob("events.out.tfevents.*")):
            if path.is_symlink() or not path.is_file():
                continue
            later = (frame.offset for frame in frames.walk(path) if _step_of_event(frame.payload) > step)
            if offset := next(later, 0):
                os.truncate(path, offset)

    def write(self, step: int, split: str, values: dict[str, float], text: str | None = None) -> None:
        """Log the values of `split` ("train", "heldout" or "fed") after update `step`. text: what to show instead."""
        if not self.active:
            return
        head = {"step": step, "split": split, "scale": journal.SCALE}
        line = head | {key: _plain(value) for key, value in values.items()}
        with open(self._path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        with self._events.as_default(step=step):
            for key, value in values.items():
                tf.summary.scalar(f"{split}/{key}", value)
        self._events.flush()
        self._show(step, split, _text(values) if text is None else text)

    def _show(self, step: int, split: str, text: str) -> None:
        line = f"{split} {step}/{self.steps} {text}"
        if split == "train" and SCREEN.is_terminal:  # there the bar is enough
            self.progress.remark, self._last = text.partition(" ")[0], line
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Flush and close the logs."""
        if self.active:
            self._events.close()
            if self._last:
                print(self._last, file=sys.stderr)


def _text(values: dict[str, float]) -> str:
    return " ".join(f"{key}={value:.4g}" for key, value in values.items() if _is_shown(key))


def _is_shown(measure: str) -> bool:
    return measure in SHOWN or measure.endswith("accuracy")


def _step_of(line: bytes) -> float:
    try:
        return float(files.parse_json(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return math.inf  # a line cut off when the process was killed


def _step_of_event(payload: bytes) -> int:
    try:
        return int(tf.compat.v1.Event.FromString(payload).step)
    except Exception:  # protobuf's DecodeError is in no public module
        return 0  # damaged: as it was


def _on_scale(line: bytes) -> bytes:
    """Return a line with scores from 0 to 100. Earlier versions wrote scores from 0 to 1, and no `scale`."""
    fields = files.parse_json(line)
    if "scale" in fields or "split" not in fields:
        return line
    first = {key: fields[key] for key in ("step", "split")}
    scores = {key: _plain(value) if type(value) is float else value for key, value in journal.rescaled(fields).items()}
    return json.dumps(first | {"scale": journal.SCALE} | scores).encode()


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)  # JSON has no NaN and no infinity


class Clock:
    """Measure the time that a run spends, by kind.

    "input" is the time that it waits for samples. "compute" and "communication" are the update. "communication"
    includes waiting for slower ranks. Collectives that run within the computation count as "compute": overlapped sums,
    the sums of tensor parallelism, and the collectives of a sharded optimizer's update. "other" is everything else:
    logging, evaluation, saving.
    """

    def __init__(self, flops: Callable[[int, float], float], replicas: int, peak: float) -> None:
        """flops: function of a row's tokens and number of sequences. peak: FLOP/s of a replica; 0: unknown."""
        self._flops_of, self.replicas, self.peak = flops, replicas, peak
        self._since = self._asked = time.perf_counter()
        self._reset()

    def _reset(self) -> None:
        self.sequences, self.tokens, self.padding, self.flops = 0, 0, 0, 0.0
        self.seconds = dict.fromkeys(("input", "compute", "communication", "other"), 0.0)

    def count(self, sequences: int, mask: np.ndarray) -> None:
        """Count a micro-batch of `sequences` for each replica. mask: [rows, tokens], 0 at padding."""
        rows, tokens = mask.shape
        self.sequences += sequences * self.replicas
        self.tokens += mask.size * self.replicas
        self.padding += (mask.size - int(np.count_nonzero(mask))) * self.replicas
        self.flops += rows * self.replicas * self._flops_of(tokens, sequences / rows)

    def lap(self, kind: str) -> None:
        """Count the time since the last call as `kind`."""
        now = time.perf_counter()
        self.seconds[kind] += now - self._since
        self._since = now

    def since_last_asked(self) -> float:
        """Return the seconds since the last call of this method."""
        now = time.perf_counter()
        before, self._asked = self._asked, now
        return now - before

    def rates(self) -> dict[str, float]:
        """Return the rates since the last call, for the time of the updates and, as "overall", for the whole time."""
        spent, everything = self.seconds, sum(self.seconds.values()) or 1.0
        step = spent["compute"] + spent["communication"] or 1.0
        rates = {
            "sequences_per_second": self.sequences / step,
            "tokens_per_second": self.tokens / step,
            "padding": self.padding / (self.tokens or 1),
            "sequences_per_second_overall": self.sequences / everything,
            "input_share": spent["input"] / everything,
            "communication_share": spent["communication"] / everything,
            "model_teraflops_per_second": self.flops / step / 1e12,
        }
        if self.peak:
            rates["utilisation"] = self.flops / step / (self.peak * self.replicas)
        self._reset()
        return rates
