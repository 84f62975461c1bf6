"""Print the progress of a stage and its summary."""

import sys
import time

INTERVAL = 10.0  # seconds


class Progress:
    """Count the items and bytes that a stage has processed, and print them to stderr every ten seconds."""

    def __init__(self, stage: str, unit: str = "documents") -> None:
        self.stage, self.unit = stage, unit
        self.items, self.bytes = 0, 0
        self._begin = self._printed = time.monotonic()

    def add(self, items: int, size: int) -> None:
        """Count `items` with `size` bytes in all."""
        self.items += items
        self.bytes += size
        if time.monotonic() - self._printed > INTERVAL:
            self._printed = time.monotonic()
            self._print("")

    def done(self, remark: str) -> None:
        """Print the summary line."""
        self._print(f"; {remark}")

    def _print(self, remark: str) -> None:
        seconds = time.monotonic() - self._begin
        rate = self.bytes / 1e6 / max(seconds, 1e-3)
        line = f"{self.items:,} {self.unit}, {self.bytes / 1e6:,.1f} MB in {seconds:,.0f} s ({rate:,.1f} MB/s){remark}"
        print(f"{self.stage}: {line}", file=sys.stderr, flush=True)
