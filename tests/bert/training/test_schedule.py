"""The learning rate: tables of expected values, and the jump after the warm-up, which `continuous` avoids."""

from typing import Any

import pytest

from bert.config import OptimizerConfig
from bert.recipes import RECIPES
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


@pytest.mark.parametrize(
    ("done", "rate"),
    [  # of Megatron-LM's GPT-2: 1e-5 + (1.5e-4 - 1e-5) (1 + cos(pi (done - 3200) / 316800)) / 2
        (0, 0.0),
        (1600, 7.5e-5),
        (3200, 1.5e-4),
        (82_400, 1.294975e-4),  # a quarter: cos = 0.7071068
        (161_600, 8.0e-5),  # half
        (320_000, 1e-5),
        (500_000, 1e-5),
    ],
)
def test_the_cosine_of_gpt2(done: int, rate: float) -> None:
    config = RECIPES["gpt2_345m"]()
    assert schedule.learning_rate(done, config.optimizer, config.run.steps) == pytest.approx(rate, rel=1e-6)


def test_a_polynomial_ends_where_it_is_told_to() -> None:
    optimizer = OptimizerConfig(learning_rate=1.0, minimum_rate=0.2, warmup_steps=2, decay_steps=8)
    found = [schedule.learning_rate(done, optimizer, 100) for done in (1, 2, 4, 8, 50)]
    assert found == pytest.approx([0.5, 0.8, 0.6, 0.2, 0.2])


def test_only_the_published_one_jumps_down_after_the_warm_up() -> None:
    last = schedule.polynomial(1999, **PHASE1)
    assert schedule.polynomial(2000, **PHASE1) / last == pytest.approx(0.8465, abs=1e-4)
    assert schedule.polynomial(2000, **PHASE1, continuous=True) > last
    assert schedule.polynomial(9, peak=1.0, warmup_steps=10, steps=10, continuous=True) == pytest.approx(0.9)
