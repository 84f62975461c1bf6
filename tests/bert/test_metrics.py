"""Rates are those of the clock's laps."""

import pytest

from bert import metrics


def test_rates_with_and_without_what_is_between_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    clock = metrics.Clock(flops=lambda tokens: tokens * 4e10, ranks=2, peak=5e14)
    for kind, seconds, sequences in (("input", 1.0, 0), ("compute", 3.0, 0), ("communication", 1.0, 16),
                                     ("other", 2.0, 0), ("input", 1.0, 0), ("compute", 2.0, 16)):  # fmt: skip
        now[0] += seconds
        clock.lap(kind)
        clock.count(sequences, 128)
    found = clock.rates()
    assert found["sequences_per_second"] == pytest.approx(64 / 6)
    assert found["tokens_per_second"] == pytest.approx(128 * 64 / 6)
    assert found["sequences_per_second_overall"] == pytest.approx(6.4)
    assert found["input_share"] == pytest.approx(0.2) and found["communication_share"] == pytest.approx(0.1)
    assert found["model_teraflops_per_second"] == pytest.approx(5.12 * 64 / 6)
    assert found["utilisation"] == pytest.approx(5.12e12 * 64 / 6 / 1e15)
    now[0] += 1
    clock.lap("compute")
    clock.count(4, 32)
    assert clock.rates()["sequences_per_second"] == 8  # since the last call
    assert "utilisation" not in metrics.Clock(flops=float, ranks=1, peak=0.0).rates()
