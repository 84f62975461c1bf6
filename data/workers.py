"""A process pool for tasks that share nothing: results come in the order of the tasks, however many workers."""

import concurrent.futures
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from bert.errors import ResourceError, UsageError

Task = TypeVar("Task")
Result = TypeVar("Result")


def available() -> int:
    """The number of CPU cores this process may run on: fewer than the machine's in a container or a batch job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check(workers: int) -> None:
    """Raises UsageError unless there is at least one worker."""
    if workers < 1:
        raise UsageError(f"--workers {workers}: at least 1 is needed")


def run(function: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> Iterator[Result]:
    """Yields `function(task)` for each task, in order; `function` must be a module's, so that it can be sent.

    Processes are spawned, not forked: TensorFlow's threads do not survive a fork. Raises what `function` raises, and
    ResourceError if a worker is killed.
    """
    if min(workers, len(tasks)) <= 1:
        yield from map(function, tasks)
        return
    with concurrent.futures.ProcessPoolExecutor(
        min(workers, len(tasks)), multiprocessing.get_context("spawn"), initializer=_end_with_parent
    ) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool as error:
            raise ResourceError("a worker was killed, probably for want of memory; give fewer --workers") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Ends this worker when the main process dies, even by SIGKILL; left alone, it would wait for tasks forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
