"""The learning rate: tables of expected values, and the jump after the warm-up, which `continuous` avoids."""

from typing import Any

import pytest

from bert.training import schedule

PHASE1: dict[str, Any] = {"peak": 6e-3, "warmup_steps": 2000, "steps": 7038, "power": 0.5}  # of NVIDIA's LAMB recipe


@pytest.mark.parametrize(
    ("done", "rate"), [(0, 0.0), (2, 0.5), (3, 0.75), (4, 0.6), (5, 0.5), (9, 0.1), (9.5, 0.05), (10, 0.0), (14, 0.0)]
)
def test_schedule_warms_up_then_falls_on_a_line_to_zero(done: float, rate: float) -> None:
    assert schedule.polynomial(done, peak=1.0, warmup_steps=4, steps=10) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("done", "published", "continuous"),
    [  # 6e-3 * done / 2000, then 6e-3 * sqrt(1 - done / 7038), or * sqrt((7038 - done) / 5038)
        (1000, 3.0e-3, 3.0e-3),
        (1999, 5.997e-3, 5.997e-3),
        (2000, 5.076398e-3, 6.0e-3),
        (4519, 3.589556e-3, 4.242641e-3),
        (7037, 7.151985e-5, 8.453220e-5),
        (7038, 0.0, 0.0),
    ],
)
def test_the_square_root_of_lamb(done: int, published: float, continuous: float) -> None:
    assert schedule.polynomial(done, **PHASE1) == pytest.approx(published, rel=1e-6)
    assert schedule.polynomial(done, **PHASE1, continuous=True) == pytest.approx(continuous, rel=1e-6)


def test_only_the_published_one_jumps_down_after_the_warm_up() -> None:
    last = schedule.polynomial(1999, **PHASE1)
    assert schedule.polynomial(2000, **PHASE1) / last == pytest.approx(0.8465, abs=1e-4)
    assert schedule.polynomial(2000, **PHASE1, continuous=True) > last
    assert schedule.polynomial(9, peak=1.0, warmup_steps=10, steps=10, continuous=True) == pytest.approx(0.9)
