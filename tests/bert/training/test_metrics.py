"""The clock's rates follow from the times of its laps."""

import numpy as np
import pytest

from bert.training import metrics


def test_rates_of_updates_only_and_of_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    clock = metrics.Clock(flops=lambda tokens, sequences: tokens * 3e10 + sequences * 1.28e12, replicas=2, peak=5e14)
    mask = np.arange(16 * 128).reshape(16, 128) % 4
    for kind, seconds, sequences in (
        ("input", 1.0, 0),
        ("compute", 3.0, 0),
        ("communication", 1.0, 16),
        ("other", 2.0, 0),
        ("input", 1.0, 0),
        ("compute", 2.0, 16),
    ):
        now[0] += seconds
        clock.lap(kind)
        if sequences:
            clock.count(sequences, mask)
    found = clock.rates()
    assert found["sequences_per_second"] == pytest.approx(64 / 6)
    assert found["tokens_per_second"] == pytest.approx(128 * 64 / 6) and found["padding"] == 0.25
    assert found["sequences_per_second_overall"] == pytest.approx(6.4)
    assert found["input_share"] == pytest.approx(0.2) and found["communication_share"] == pytest.approx(0.1)
    assert found["model_teraflops_per_second"] == pytest.approx(5.12 * 64 / 6)
    assert found["utilisation"] == pytest.approx(5.12e12 * 64 / 6 / 1e15)
    now[0] += 1
    clock.lap("compute")
    clock.count(4, np.ones((4, 32), np.int32))
    found = clock.rates()
    assert found["sequences_per_second"] == 8 and found["padding"] == 0  # since the last call
    assert "utilisation" not in metrics.Clock(flops=lambda tokens, sequences: 1.0, replicas=1, peak=0.0).rates()


def test_packed_sequences_are_counted_as_sequences_and_their_rows_as_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    clock = metrics.Clock(flops=lambda tokens, sequences: tokens * 1e9 + sequences * 7e12, replicas=3, peak=0.0)
    now[0] = 2.0
    clock.lap("compute")
    clock.count(11, np.repeat([[1, 2, 2, 0, 0]], 5, axis=0))  # 11 sequences in 5 rows of 5 tokens
    found = clock.rates()
    assert found["sequences_per_second"] == 3 * 11 / 2 and found["tokens_per_second"] == 3 * 25 / 2
    assert found["padding"] == pytest.approx(0.4)
    assert found["model_teraflops_per_second"] == pytest.approx(3 * (25 * 1e-3 + 11 * 7) / 2)
