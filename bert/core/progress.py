"""Show that long work goes on: at a terminal a bar with the time left, elsewhere a line a minute.

    with Progress("encode", "texts", total=3000) as progress:
        for text in texts:
            ...
            progress.add()

`add` only counts. One thread looks at the counts twice a second and shows the innermost block: also while the work
waits for a GPU, and before its first item is done. While a bar is shown, what is printed goes above it. Of several
ranks only the first shows anything. Nothing is shown where standard error is closed.
"""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

LOOK = 0.5  # seconds between two looks at the counts
FIRST, EVERY = 5.0, 60.0  # seconds to the first line without a terminal, and between two
SHORTEST = 16  # columns of a bar, with the percentage
STARTED = 4  # looks after which the time before the first of them counts no more
SEEN = 60  # looks that found a changed count; the rate is measured over these
RANKS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # variables with the number of the rank
ROUNDING = 1e-6  # of counts that are added up from fractions
MB = "MB"  # the unit of what is counted in bytes

T = TypeVar("T")


class Progress:
    """How much of some work is done. As a block, show this while the block runs."""

    def __init__(
        self, what: str, unit: str = "", total: float | None = None, done: float = 0, screen: "Screen | None" = None
    ) -> None:
        """unit: what to count, in the plural; `MB`: bytes; "": nothing. total: None if it is not known.

        done: count from earlier runs.
        """
        self.what, self.unit, self.total, self.done = what, unit, total, done
        self._read = 0
        self.inside = ""  # what is done of the item that is under way
        self.remark = ""  # shown behind the rest
        self.deadline = math.inf  # time at which the work ends even if it is not done
        self._screen = screen or SCREEN
        self._seen: deque[tuple[float, float]] = deque(maxlen=SEEN)  # time and count, when it had changed
        self.begun = 0.0

    def add(self, count: float = 1) -> None:
        """Add to the count."""
        self.done += count
        self._read = 0

    def read(self, size: int) -> None:
        """Count bytes that are read for the next item. `add` then counts the whole item instead."""
        self._read += size

    def each(self, items: Iterable[T], count: float = 1) -> Iterator[T]:
        """Yield the items. Add `count` for each item when the caller asks for the next one."""
        for item in items:
            yield item
            self.done += count

    def __enter__(self) -> "Progress":
        self._screen.open(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._screen.close(self)

    def begin(self, now: float) -> None:
        """Start to measure."""
        self.begun = now
        self._seen.append((now, self.done))

    def look(self, now: float) -> None:
        """Record the time and the count; the rate depends on these records."""
        if (done := self._now()) != self._seen[-1][1]:
            self._seen.append((now, done))
            if len(self._seen) == STARTED and self._seen[0][0] == self.begun:
                self._seen.popleft()  # the first items also take what is done once, such as tracing a graph

    def rate(self) -> float:
        """Return the units per second over the last looks; 0 if nothing was done."""
        (begin, before), (end, after) = self._seen[0], self._seen[-1]
        return max(0.0, after - before) / (end - begin) if end > begin else 0.0

    def left(self, now: float) -> float | None:
        """Return the seconds to the end at this rate, or to the deadline if that is earlier; None if not known."""
        rate, end = self.rate(), self.deadline
        if self.total is not None and rate:
            last, done = self._seen[-1]
            end = min(end, last + (self.total - done) / rate)
        return None if end == math.inf else max(0.0, end - now)

    def _now(self) -> float:
        done = self.done + self._read * (self.unit == MB)
        return done if self.total is None else min(done, self.total)

    def _counted(self, number: float) -> str:
        return f"{number / 1e6:,.1f}" if self.unit == MB else f"{int(number + ROUNDING):,}"

    def _speed(self) -> str:
        rate = self.rate()
        if not rate:
            return ""
        if rate < 1 and self.unit != MB:
            return f"{1 / rate:.1f} s/{self.unit.removesuffix('s')}"
        return f"{self._counted(rate) if self.unit == MB or rate >= 100 else f'{rate:.1f}'} {self.unit}/s"

    def bar(self, now: float, columns: int, ascii: bool) -> str:
        """Return the state as one line for a terminal, at most `columns` wide."""
        from tqdm.std import tqdm  # not before: its import takes a tenth of a second

        elapsed, left = now - self.begun, self.left(now)
        times = tqdm.format_interval(elapsed)
        if self.total is not None:
            times += f"<{'?' if left is None else tqdm.format_interval(left)}"
        times += f", {speed}" if (speed := self._speed()) else ""
        of = "" if self.total is None else f"/{self._counted(self.total)}"
        counted = f"{self._counted(self._now())}{of} {self.unit}" if self.unit else ""
        rest = " ".join(part for part in (counted, self.inside, f"[{times}]", self.remark) if part)
        if not self.total:
            return f"{self.what}: {rest}"[:columns]
        rest = rest[: max(0, columns - len(self.what) - SHORTEST)]
        form = f"{self.what}: {{percentage:3.0f}}%|{{bar}}| {rest.replace('{', '{{').replace('}', '}}')}"
        return tqdm.format_meter(self._now(), self.total, elapsed, columns, ascii=ascii, bar_format=form)

    def line(self, now: float) -> str:
        """Return the state as a line for a log."""
        elapsed, left = now - self.begun, self.left(now)
        if not self.unit:
            return f"{self.what}: working for {_words(elapsed)}"
        of = "" if self.total is None else f" of {self._counted(self.total)}"
        inside = f" {self.inside}" if self.inside else ""
        parts = [f"{self._counted(self._now())}{of} {self.unit}{inside} in {_words(elapsed)}"]
        parts += [speed] if (speed := self._speed()) else []
        parts += [f"about {_words(left)} left"] if left is not None else []
        parts += [self.remark] if self.remark else []
        return f"{self.what}: {', '.join(parts)}"


def _words(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Screen:
    """Shows progress on standard error, a terminal or a log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._open = clock, list[Progress]()
        self._lock = threading.RLock()  # a signal's handler may print while this thread has it
        self._stream: Any = None  # standard error, while something is open
        self._bound: Any = None  # what stands in its place
        self.is_terminal = False
        self._width = 0  # of the bar that is shown
        self._is_mid_line = False  # something has been printed without an end of line
        self._due = 0.0  # time of the next line
        self._over: threading.Event | None = None

    def open(self, progress: Progress) -> None:
        """Show this progress instead of what was shown before."""
        with self._lock:
            progress.begin(self._clock())
            self._open.append(progress)
            if len(self._open) == 1:
                self._begin()
            if len(self._open) == 1 or (progress.unit and not any(other.unit for other in self._open[:-1])):
                self._due = progress.begun + (FIRST if progress.unit else EVERY)

    def close(self, progress: Progress) -> None:
        """Stop showing this progress; show again what was shown before it."""
        with self._lock:
            if progress in self._open:  # `quiet` may have closed it
                self._clear()
                self._open.remove(progress)
                if not self._open:
                    self._end()

    def read(self, size: int) -> None:
        """Count bytes that this process has read. They show only if the progress counts bytes."""
        if self._open:
            self._open[-1].read(size)

    def quiet(self) -> None:
        """Close all progress that is shown: this program now waits for others."""
        with self._lock:
            for progress in reversed(list(self._open)):
                self.close(progress)

    def look(self) -> None:
        """Show the state. The thread calls this."""
        with self._lock, contextlib.suppress(OSError, ValueError):  # a terminal that has gone, a stream that is closed
            if not self._open or self._stream is None:
                return
            if sys.stderr is not self._bound:  # somebody has replaced it
                self._bind()
            shown, now = self._open[-1], self._clock()
            for progress in self._open:
                progress.look(now)
            if self.is_terminal:
                self._draw(shown, now)
            elif now >= self._due:
                self._due = now + EVERY
                self._stream.write(f"{shown.line(now)}\n")
                self._stream.flush()

    def _begin(self) -> None:
        self._bind()
        if self._stream is None or not is_first_rank():
            self._stream = None
            return
        self._over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(self._over,), name="progress", daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        watch.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _bind(self) -> None:
        """Use the present standard streams."""
        stream = sys.stderr
        self._stream = None if stream is None or stream.closed else stream
        self.is_terminal = self._stream is not None and stream.isatty() and is_first_rank()
        if self.is_terminal:
            sys.stderr = _Above(stream, self)
            out = sys.stdout
            if out is not None and not isinstance(out, _Above) and not out.closed and out.isatty():
                sys.stdout = _Above(out, self)
        self._bound = sys.stderr

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(LOOK):
            self.look()

    def _end(self) -> None:
        if self._over:
            self._over.set()
        self._over, self._stream, self.is_terminal = None, None, False
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), _Above):
                setattr(sys, name, stream.stream)

    def _draw(self, shown: Progress, now: float) -> None:
        if self._is_mid_line or not _is_in_front(self._stream):
            return
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
        except OSError:
            columns = 80
        bar = shown.bar(now, columns - 1, ascii="utf" not in (self._stream.encoding or "").lower())
        self._stream.write(f"\r{bar.ljust(self._width)}")
        self._stream.flush()
        self._width = len(bar)

    def _clear(self) -> None:
        width, self._width = self._width, 0
        if width and self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(f"\r{' ' * width}\r")
                self._stream.flush()

    def print_above(self, stream: Any, text: str) -> int:
        """Write text to a stream of this terminal in place of the bar. The bar is drawn again below it later."""
        with self._lock:
            if text:
                self._clear()
                self._is_mid_line = not text.endswith("\n")
            return int(stream.write(text))


class _Above:
    """A stream to a terminal whose last line may be the bar."""

    def __init__(self, stream: Any, screen: Screen) -> None:
        self.stream, self._screen = stream, screen

    def write(self, text: str) -> int:
        return self._screen.print_above(self.stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def is_first_rank() -> bool:
    """Return whether this process is the only rank or the first of the ranks that a launcher started."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def _is_in_front(stream: Any) -> bool:
    """Return whether this process may draw on its terminal: it may not in the background (`command &`)."""
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True  # it is not this process's own terminal


SCREEN = Screen()
