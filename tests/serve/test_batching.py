"""The queue against a model of it, and the thread that computes: nothing lost, nothing late, nothing twice."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, wait
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from serve.batching import Expired, Job, Queue, QueueFull, Worker

NEVER = 1e9
SIZE, MOST = 5, 13


class Doubles:
    """Computes twice the row; rows that are not numbers fail."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.gate = threading.Event()
        self.gate.set()

    def compute(self, rows: Sequence[Any]) -> list[Any]:
        self.gate.wait(10)
        self.batches.append(list(rows))
        return [2 * row if isinstance(row, int) else 1 / 0 for row in rows]


class QueueMachine(RuleBasedStateMachine):
    """Jobs come, are cancelled, expire and are taken; a list stands for what the queue should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.closed = 0.0, False
        self.queue = Queue(MOST, clock=lambda: self.now)
        self.heads = [Doubles(), Doubles()]
        self.waiting: list[tuple[Job, int]] = []
        self.taken: list[tuple[Job, int]] = []

    def expire(self) -> None:
        self.waiting = [(job, row) for job, row in self.waiting if job.deadline > self.now and not job.future.done()]

    @rule(head=st.integers(0, 1), sizes=st.lists(st.integers(1, 7), min_size=1, max_size=3), life=st.integers(1, 9))
    def put(self, head: int, sizes: list[int], life: int) -> None:
        self.expire()
        jobs = [Job(self.heads[head], range(size), [size] * size, self.now + life) for size in sizes]
        if self.closed or len(self.waiting) + sum(sizes) > MOST:
            with pytest.raises(QueueFull):
                self.queue.put(jobs)
            return
        self.queue.put(jobs)
        self.waiting += [(job, row) for job in jobs for row in range(len(job.rows))]

    @precondition(lambda self: self.now > 15)
    @rule()
    def close(self) -> None:
        self.queue.close()
        self.closed = True

    @rule(passed=st.integers(1, 4))
    def wait(self, passed: int) -> None:
        self.now += passed

    @rule(number=st.integers(0, MOST))
    def cancel(self, number: int) -> None:
        if number < len(self.waiting):
            self.waiting[number][0].future.cancel()

    @rule()
    def take(self) -> None:
        late = [job for job, _ in self.waiting if job.deadline <= self.now and not job.future.done()]
        self.expire()
        if not self.waiting:
            assert not self.closed or self.queue.take(SIZE, 0.0) == []
            return  # an open queue would wait
        found = self.queue.take(SIZE, 0.0)
        oldest, number = self.waiting[0]
        alike = [entry for entry in self.waiting if entry[0].head is oldest.head]
        assert found[0] == (oldest, number) and len(found) == min(SIZE, len(alike))
        assert all(entry in alike for entry in found)
        farthest = max(self.distance(entry) for entry in found)
        left = [entry for entry in alike if entry not in found]
        assert all(self.distance(entry) >= farthest for entry in left)  # the queue is shorter than it looks ahead
        self.waiting = [entry for entry in self.waiting if entry not in found]
        self.taken += found
        assert all(isinstance(job.future.exception(), Expired) for job in late)

    def distance(self, entry: tuple[Job, int]) -> int:
        oldest, number = self.waiting[0]
        return abs(entry[0].lengths[entry[1]] - oldest.lengths[number])

    @invariant()
    def nothing_is_taken_twice_and_the_bound_holds(self) -> None:
        assert len({(id(job), row) for job, row in self.taken}) == len(self.taken)
        assert len(self.queue) <= MOST


@pytest.mark.slow
def test_the_queue_does_what_a_list_does() -> None:
    run_state_machine_as_test(QueueMachine, settings=settings(max_examples=150, stateful_step_count=40))


def job(head: Doubles, rows: list[Any], deadline: float = NEVER) -> Job:
    return Job(head, rows, [7] * len(rows), deadline)


@pytest.fixture
def worker() -> Any:
    made = Worker(Queue(1000), size=SIZE, delay=0.0)
    made.start()
    yield made
    made.queue.close()
    made.join(60)
    assert not made.is_alive()


def test_a_job_of_many_rows_gets_its_results_in_order(worker: Worker) -> None:
    head = Doubles()
    jobs = [job(head, list(range(count))) for count in (23, 1, 7)]
    worker.queue.put(jobs)
    for one, count in zip(jobs, (23, 1, 7), strict=True):
        assert one.future.result(10) == [2 * row for row in range(count)]
    assert max(map(len, head.batches)) == SIZE
    assert worker.rate > 0 and 1 <= worker.retry_after() <= 60


def test_a_bad_row_fails_its_own_job_only(worker: Worker) -> None:
    head = Doubles()
    head.gate.clear()
    jobs = [job(head, rows) for rows in ([1, 2], ["bad"], [3], ["worse"], [4])]
    worker.queue.put(jobs)
    head.gate.set()
    wait([one.future for one in jobs], 10)
    assert [one.future.result() for one in jobs[::2]] == [[2, 4], [6], [8]]
    for one in jobs[1::2]:
        with pytest.raises(ZeroDivisionError):
            one.future.result()


def test_what_nobody_waits_for_is_never_computed(worker: Worker) -> None:
    head = Doubles()
    head.gate.clear()
    first = job(head, [1])
    worker.queue.put([first])
    while len(worker.queue):
        time.sleep(0.001)
    gone, late, kept = job(head, [2]), job(head, [3], time.monotonic() + 0.01), job(head, [4])
    worker.queue.put([gone, late, kept])
    gone.future.cancel()
    time.sleep(0.02)
    head.gate.set()
    assert kept.future.result(10) == [8]
    assert head.batches == [[1], [4]]
    with pytest.raises(Expired):
        late.future.result(10)
    with pytest.raises(CancelledError):
        gone.future.result(10)


def test_rows_wait_for_others_as_long_as_they_may() -> None:
    worker, head = Worker(Queue(100), size=SIZE, delay=30.0), Doubles()
    worker.start()
    jobs = [job(head, [number]) for number in range(SIZE)]
    for one in jobs:
        worker.queue.put([one])
    wait([one.future for one in jobs], 10)  # a full batch does not wait
    assert head.batches == [list(range(SIZE))]
    alone = job(head, [7])
    worker.queue.put([alone])
    time.sleep(0.05)
    assert not alone.future.done()
    worker.queue.close()  # nothing more can come
    assert alone.future.result(10) == [14]
    with pytest.raises(QueueFull):
        worker.queue.put([job(head, [1])])
    worker.join(60)


def test_one_model_does_not_wait_for_another(worker: Worker) -> None:
    one, other = Doubles(), Doubles()
    jobs = [job(head, [number]) for number in range(9) for head in (one, other)]
    worker.queue.put(jobs)
    wait([one.future for one in jobs], 10)
    assert [one.future.result() for one in jobs] == [[2 * one.rows[0]] for one in jobs]


def test_a_batch_has_rows_of_similar_length_and_the_oldest() -> None:
    queue, head = Queue(100), Doubles()
    lengths = [60, 10, 61, 12, 300, 59, 11]
    queue.put([Job(head, list(range(len(lengths))), lengths, NEVER)])
    batches = [[lengths[row] for _, row in queue.take(3, 0.0)] for _ in range(3)]
    assert batches == [[60, 61, 59], [10, 12, 11], [300]]
