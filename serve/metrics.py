"""What a service counts, as Prometheus reads it from /metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters and histograms of one service."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """waiting: returns the number of rows in the queue."""
        self.registry = CollectorRegistry()
        self.requests = self._counter("bert_requests_total", "Requests by path and status", "path", "status")
        self.dropped = self._counter("bert_dropped_total", "Inputs without an answer, by reason", "reason")
        self.reloads = self._counter("bert_reloads_total", "Models loaded again, and failures of that", "result")
        self.seconds = Histogram(
            "bert_request_seconds",
            "Seconds from a request to its answer",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.rows = Histogram("bert_batch_rows", "Rows computed together", buckets=ROWS, registry=self.registry)
        self.busy = Counter("bert_compute_seconds_total", "Seconds of computing", registry=self.registry)
        depth = Gauge("bert_waiting_rows", "Rows that wait to be computed", registry=self.registry)
        depth.set_function(waiting)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def batch(self, rows: int, seconds: float) -> None:
        """Count a computed batch."""
        self.rows.observe(rows)
        self.busy.inc(seconds)

    def text(self) -> bytes:
        """Return all figures in Prometheus's text format."""
        return generate_latest(self.registry)
