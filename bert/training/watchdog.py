"""The watchdog that detects stalls."""

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator

from bert.training.communicator import Communicator


@contextlib.contextmanager
def watchdog(seconds: float, comm: Communicator) -> Iterator[Callable[[], None]]:
    """Yield a function. If the block does not call it for this many seconds, print the stacks of all threads.

    End the process if it has waited twice that long for another rank, because Horovod does not end it. This does not
    use faulthandler.dump_traceback_later: that walks the stacks of running threads without holding the interpreter's
    lock, and has crashed runs that were only slow.
    """
    called, ended = threading.Event(), threading.Event()

    def watch() -> None:
        shown = False
        while not ended.is_set():
            if called.wait(seconds):
                called.clear()
                shown = False
                continue
            who = f"rank {comm.rank}"
            if not shown:
                print(f"warning: {who}: no update for {seconds:g} seconds", file=sys.stderr, flush=True)
                faulthandler.dump_traceback()
                shown = True
            if stalled := comm.stalled_peers(2 * seconds):
                message = f"{stalled} did not answer for {2 * seconds:g} seconds; the same command resumes"
                print(f"error: {who}: {message}", file=sys.stderr, flush=True)
                os._exit(1)  # the main thread is blocked in Horovod

    watcher = threading.Thread(target=watch, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield called.set
    finally:
        ended.set()
        called.set()
        watcher.join()
