"""Micro-batching: rows of many requests wait in one bounded queue, and one thread computes them together.

A row is one input of a model: a window of a passage, a text, a choice. Requests are divided into rows, so that a long
document and a short question share a batch. A batch has the oldest row and those of the most similar length behind it,
so that little padding is computed. A row of a request that nobody waits for any more is never computed.
"""

import contextlib
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, Protocol

LONGEST_RETRY = 60  # seconds
AHEAD = 4  # batches: rows of similar length are searched among this many batches of waiting rows


class Computes(Protocol):
    """What computes rows."""

    def compute(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return a result for each row."""


class QueueFull(Exception):
    """The queue has no room for this many rows."""


class Expired(Exception):
    """The rows were not computed in time."""


class Job:
    """The rows of one input; `future` gets the list of their results."""

    def __init__(self, head: Computes, rows: Sequence[Any], lengths: Sequence[int], deadline: float) -> None:
        """lengths: of the rows, in tokens. deadline: time of the queue's clock after which the result is of no use."""
        assert rows and len(lengths) == len(rows), "an input has rows, each with its length"
        self.head, self.rows, self.lengths, self.deadline = head, rows, lengths, deadline
        self.future: Future[list[Any]] = Future()
        self._results: list[Any] = [None] * len(rows)
        self._left = len(rows)

    def finish(self, row: int, result: Any) -> None:
        """Take the result of one row."""
        self._results[row] = result
        self._left -= 1
        if not self._left:
            self._settle(lambda: self.future.set_result(self._results))

    def fail(self, error: BaseException) -> None:
        """End with an error, unless it has ended."""
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        with contextlib.suppress(InvalidStateError):  # cancelled, or failed before
            settle()


Row = tuple[Job, int]  # a job and the index of its row


class Queue:
    """A queue of rows, bounded in rows, from which batches are taken for one head at a time."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """most: maximum number of waiting rows."""
        self.most, self.clock = most, clock
        self._waiting: deque[tuple[Job, int, float]] = deque()  # with the time of arrival
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting)

    def put(self, jobs: Sequence[Job]) -> None:
        """Add the rows of all jobs. Raise QueueFull, and add none, if there is no room for all."""
        with self._changed:
            self._drop()
            if self._closed or len(self._waiting) + sum(len(job.rows) for job in jobs) > self.most:
                raise QueueFull
            now = self.clock()
            self._waiting.extend((job, row, now) for job in jobs for row in range(len(job.rows)))
            self._changed.notify()

    def take(self, size: int, delay: float) -> list[Row]:
        """Return the oldest row and at most `size` - 1 others for its head, of similar length; wait for a row.

        delay: seconds that the oldest row may wait for others. Return an empty list once the queue is closed and empty.
        """
        with self._changed:
            while True:
                self._drop()
                if self._waiting:
                    job, _, arrived = self._waiting[0]
                    left = arrived + delay - self.clock()
                    if left <= 0 or self._closed or sum(one.head is job.head for one, _, _ in self._waiting) >= size:
                        return self._similar(size)
                    self._changed.wait(left)
                elif self._closed:
                    return []
                else:
                    self._changed.wait()

    def close(self) -> None:
        """Take no more rows; those that wait can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _similar(self, size: int) -> list[Row]:
        first, number, _ = self._waiting[0]
        alike = (place for place, (job, _, _) in enumerate(self._waiting) if job.head is first.head)
        near = list(itertools.islice(alike, AHEAD * size))
        length = first.lengths[number]

        def distance(place: int) -> int:
            job, row, _ = self._waiting[place]
            return abs(job.lengths[row] - length)

        chosen = {0, *sorted(near[1:], key=distance)[: size - 1]}
        batch = [entry[:2] for place, entry in enumerate(self._waiting) if place in chosen]
        self._waiting = deque(entry for place, entry in enumerate(self._waiting) if place not in chosen)
        return batch

    def _drop(self) -> None:
        """Remove the rows of jobs that have ended, also by cancellation, and of jobs whose deadline has passed."""
        now = self.clock()
        for job in {id(job): job for job, _, _ in self._waiting if job.deadline <= now}.values():
            job.fail(Expired())
        if any(job.future.done() for job, _, _ in self._waiting):
            self._waiting = deque(entry for entry in self._waiting if not entry[0].future.done())


class Worker(threading.Thread):
    """Computes the rows of a queue, batch by batch."""

    def __init__(
        self, queue: Queue, size: int, delay: float, observe: Callable[[int, float], None] = lambda rows, seconds: None
    ) -> None:
        """size: maximum rows of a batch. delay: seconds that a row may wait for others.

        observe: is called with the number of rows and the seconds of each batch.
        """
        super().__init__(name="compute", daemon=True)
        self.queue, self.size, self.delay, self.observe = queue, size, delay, observe
        self.rate = 0.0  # rows per second, a moving average

    def run(self) -> None:
        """Compute until the queue is closed and empty."""
        while batch := self.queue.take(self.size, self.delay):
            begun = time.perf_counter()
            _compute(batch)
            seconds = max(time.perf_counter() - begun, 1e-9)
            self.rate = 0.8 * self.rate + 0.2 * len(batch) / seconds if self.rate else len(batch) / seconds
            self.observe(len(batch), seconds)

    def wait(self) -> float:
        """Return an estimate of the seconds until all waiting rows are computed; 0 before the first batch."""
        return len(self.queue) / self.rate if self.rate else 0.0

    def retry_after(self) -> int:
        """Return the same as whole seconds for the header Retry-After, from 1 to LONGEST_RETRY."""
        return max(1, min(LONGEST_RETRY, math.ceil(self.wait())))


def _compute(batch: Sequence[Row]) -> None:
    """Compute rows of one head. If that fails, compute each job alone, so that a bad row fails only its own job."""
    try:
        results = batch[0][0].head.compute([job.rows[row] for job, row in batch])
    except Exception as error:  # whatever it is, its job answers for it and the service goes on
        jobs = list({id(job): job for job, _ in batch}.values())
        if len(jobs) == 1:
            jobs[0].fail(error)
            return
        for job in jobs:
            _compute([entry for entry in batch if entry[0] is job])
        return
    for (job, row), result in zip(batch, results, strict=True):
        job.finish(row, result)
