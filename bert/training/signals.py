"""What comes between two updates that is no part of them: requests to stop, and the watch over stalls."""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from bert.training.distributed import Communicator

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@contextlib.contextmanager
def stops() -> Iterator[list[int]]:
    """A list that signals to stop are added to while the block runs."""
    received: list[int] = []
    before = {kind: signal.signal(kind, lambda number, _: received.append(number)) for kind in STOP_SIGNALS}
    try:
        yield received
    finally:
        for kind, handler in before.items():  # once asked it is ending; asked again, it must still end with 75
            signal.signal(kind, signal.SIG_IGN if received else handler)


@contextlib.contextmanager
def watchdog(seconds: float, comm: Communicator) -> Iterator[Callable[[], None]]:
    """Shows all stacks if the function that it gives is not called for so long, while the block runs; ends the process
    if it has waited twice that for another rank, which Horovod itself was not seen to do.

    Not by faulthandler.dump_traceback_later, which walks the stacks of running threads without the interpreter's lock:
    that has crashed runs that were only slow.
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
            if late := comm.stalled_peers(2 * seconds):
                said = f"{late} hung while it waited for {2 * seconds:g} seconds; the same command resumes"
                print(f"error: {who}: {said}", file=sys.stderr, flush=True)
                os._exit(1)  # the main thread is within Horovod, and will not come back

    watcher = threading.Thread(target=watch, name="watchdog", daemon=True)
    watcher.start()
    try:
        yield called.set
    finally:
        ended.set()
        called.set()
        watcher.join()
