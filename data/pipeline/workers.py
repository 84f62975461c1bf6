"""Run independent tasks in a process pool or on a Dask cluster. Results come in the order of the tasks."""

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

from bert.core import library_log
from bert.core.errors import ResourceError, UsageError

ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false"}  # in each worker; there is one for each core
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}  # for the environment, which workers inherit

ROOT = Path(__file__).parents[2]

AHEAD = 4  # tasks of each worker that are submitted and not done; a queue of all of them takes 1 to 2 KB for each

Task = TypeVar("Task")
Result = TypeVar("Result")


def available() -> int:
    """Return the number of CPU cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    function: Callable[[Task], Result], tasks: Iterable[Task], workers: int, scheduler: str | None = None
) -> Iterator[Result]:
    """Yield `function(task)` for each task, in order. `function` must be picklable. Tasks are taken as needed.

    Processes are spawned, not forked, because TensorFlow's threads do not survive a fork. With a `scheduler`, the tasks
    run on the Dask cluster at this address. Its workers need the same files under the same paths, and the same code.
    Raise what `function` raises, and ResourceError if a worker is killed. Ctrl-C reaches this process alone, which ends
    the workers.
    """
    if scheduler:
        yield from _on_cluster(function, tasks, scheduler)
        return
    rest = iter(tasks)
    first = list(itertools.islice(rest, max(1, workers)))
    every = itertools.chain(first, rest)
    if len(first) <= 1:
        yield from map(function, every)
        return
    with concurrent.futures.ProcessPoolExecutor(
        len(first), multiprocessing.get_context("spawn"), initializer=_begin, initargs=(library_log.path(),)
    ) as pool:
        futures: deque[concurrent.futures.Future[Result]] = deque()  # those that are not yet yielded, in order
        open_ones: set[concurrent.futures.Future[Result]] = set()  # futures that may not be done
        try:
            while True:
                with _without_interrupts():  # an interrupt that came meanwhile is raised at its end
                    for task in itertools.islice(every, AHEAD * len(first) - len(open_ones)):
                        futures.append(pool.submit(function, task))
                        open_ones.add(futures[-1])
                if not futures:
                    return
                open_ones = concurrent.futures.wait(open_ones, return_when=concurrent.futures.FIRST_COMPLETED).not_done
                while futures and futures[0].done():
                    yield futures.popleft().result()  # a future holds its result
        except BrokenProcessPool as error:
            raise ResourceError("a worker was killed, probably out of memory; give fewer --workers") from error
        except (KeyboardInterrupt, GeneratorExit):
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _on_cluster(function: Callable[[Task], Result], tasks: Iterable[Task], scheduler: str) -> Iterator[Result]:
    try:
        import distributed
    except ImportError as error:
        raise UsageError("--scheduler needs Dask; run: make setup") from error
    try:
        client = distributed.Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise UsageError(f"--scheduler {scheduler}: no Dask scheduler answers there ({error})") from error
    payloads = [pickle.dumps((function, task)) for task in tasks]

    def perform(root: str, payload: bytes) -> Any:
        # Dask sends this function by value, because it has no name in a module. So the scheduler, which unpickles all
        # that it is sent, needs nothing of this code, and a worker finds it.
        import pickle
        import sys

        sys.path[:0] = [root] if root not in sys.path else []
        function, task = pickle.loads(payload)
        return function(task)

    with client:
        futures = deque(client.map(perform, [str(ROOT)] * len(payloads), payloads, pure=False))
        try:
            while futures:
                yield futures.popleft().result()  # a future holds its result, here and on the cluster
        except ModuleNotFoundError as error:
            raise UsageError(
                f"--scheduler {scheduler}: a worker cannot import {error.name}; start it with this environment "
                f"({sys.prefix}), on a host that has {ROOT}"
            ) from error
        except distributed.KilledWorker as error:
            raise ResourceError(
                "a worker of the cluster was killed repeatedly, probably out of memory; give the workers more memory"
            ) from error
        finally:
            client.cancel(list(futures))


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT (Ctrl-C) in this thread and in the processes that it starts, for which it stays blocked.

    A terminal sends the signal to the workers as well, and each would print a traceback.
    """
    resource_tracker.ensure_running()  # it would end the block when the first worker starts it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(log: Path | None) -> None:
    """Write what libraries print to the log of the main process, and exit when that dies, even by SIGKILL.

    Otherwise this worker would wait for tasks forever.
    """
    library_log.share(log)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
