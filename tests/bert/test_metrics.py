"""Rates are those of the clock's laps."""

import pytest

from bert import metrics


def test_rates_with_and_without_what_is_between_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    clock = metrics.Clock(tokens=128, flops=5e12, peak=1e15)
    for kind, seconds, sequences in (("input", 1.0, 0), ("compute", 3.0, 0), ("communication", 1.0, 32),
                                     ("other", 2.0, 0), ("input", 1.0, 0), ("compute", 2.0, 32)):  # fmt: skip
        now[0] += seconds
        clock.lap(kind, sequences)
    found = clock.rates()
    assert found["sequences_per_second"] == pytest.approx(64 / 6)
    assert found["tokens_per_second"] == pytest.approx(128 * 64 / 6)
    assert found["sequences_per_second_overall"] == pytest.approx(6.4)
    assert found["input_share"] == pytest.approx(0.2) and found["communication_share"] == pytest.approx(0.1)
    assert found["model_teraflops_per_second"] == pytest.approx(5 * 64 / 6)
    assert found["utilisation"] == pytest.approx(5e12 * 64 / 6 / 1e15)
    now[0] += 1
    clock.lap("compute", 8)
    assert clock.rates()["sequences_per_second"] == 8  # since the last call
    assert "utilisation" not in metrics.Clock(tokens=1, flops=1.0, peak=0.0).rates()
