"""Kill a process group at the n-th call that changes the file system, counted over all its processes.

`sweep` runs a function in a child again and again. It kills the child at its first change, lets the same function run
to its end, and compares; then it kills at the second change, and so on, until a run ends before it is killed. The
children come from a server that has imported what they need and nothing more, because TensorFlow's threads do not
survive a fork.
"""

import mmap
import multiprocessing
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"}
PRELOADED = [
    "__main__",
    "data.books",
    "data.documents",
    "data.tfrecords",
    "data.download",
    "data.wikipedia",
    "bert.training.checkpoint",
    "tests.faults.test_kill_sweep",
]

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(PRELOADED)


class Counter:
    """Counts the changes of this process and of those it forks, and kills them all at number `last`."""

    def __init__(self, last: int | None) -> None:
        self.last, self._memory = last, mmap.mmap(-1, 8)

    def install(self) -> None:
        """Count from now on, until the process ends."""
        os.setpgid(0, 0)
        flush = os.fsync

        def counted(descriptor: int) -> None:
            self.add()
            flush(descriptor)

        os.fsync = counted  # type: ignore[assignment]
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            self.add()

    def add(self) -> None:
        """Count one. Two processes may count the same number, which does not matter here."""
        number = int.from_bytes(self._memory[:], "little") + 1
        self._memory[:] = number.to_bytes(8, "little")
        if number == self.last:
            os.killpg(0, signal.SIGKILL)


def _child(function: Callable[..., None], arguments: Sequence[Any], last: int | None) -> None:
    # Workers that are forked count as well. Processes that are spawned would not, and start slowly.
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: fork  # type: ignore[assignment]
    sys.dont_write_bytecode = True
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    Counter(last).install()
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run(function: Callable[..., None], arguments: Sequence[Any], last: int | None = None) -> bool:
    """Run `function(*arguments)` in a child. Return whether it ended; it was killed at change `last` otherwise."""
    process = _server.Process(target=_child, args=(function, arguments, last))
    process.start()
    process.join(timeout=120)
    assert process.exitcode is not None, f"change {last}: still running after two minutes"
    assert process.exitcode in (0, -signal.SIGKILL), f"change {last}: exit code {process.exitcode}"
    return process.exitcode == 0


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return every file below a folder with its bytes, and every folder with None. Hidden ones as well."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


def sweep(
    function: Callable[..., None],
    arguments: Sequence[Any],
    before: Path,
    work: Path,
    step: int = 1,
    after_kill: Callable[[Path], None] = lambda work: None,
    again: Sequence[Any] | None = None,
) -> int:
    """Kill `function(work, *arguments)` at every `step`-th change; return the number of changes.

    before: what `work` holds at the start. After each kill the same call must end, and leave the bytes of a call that
    nothing disturbed. after_kill: a check of `work` right after each kill. again: arguments after a kill, if others.
    """
    again = arguments if again is None else again

    def prepare() -> None:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(before, work)

    prepare()
    assert run(function, (work, *arguments))
    expected, number = contents(work), 1
    while True:
        prepare()
        if run(function, (work, *arguments), number):
            assert contents(work) == expected
            return number
        after_kill(work)
        assert run(function, (work, *again)), f"after a kill at change {number}"
        found = contents(work)
        assert found == expected, f"a kill at change {number}: {_difference(found, expected)}"
        number += step


def _difference(found: dict[str, bytes | None], expected: dict[str, bytes | None]) -> str:
    return ", ".join(
        sorted(name for name in found.keys() | expected.keys() if found.get(name, 0) != expected.get(name, 0))
    )
