"""The learning rate: tables of expected values, the jump after the warm-up, one schedule over several phases."""

import dataclasses
from typing import Any

import pytest

from bert.core.config import OptimizerConfig
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


def test_a_warm_up_as_long_as_the_run_ends_at_zero() -> None:
    found = [schedule.polynomial(done, peak=1.0, warmup_steps=10, steps=10, continuous=True) for done in (9, 10, 11)]
    assert found == pytest.approx([0.9, 0.0, 0.0])


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
    config = RECIPES["gpt2_345m"].phases[0].config
    assert schedule.learning_rate(done, config.optimizer, config.run.steps) == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(
    ("done", "line", "root"),  # 1 and sqrt of the share of the decay, from 8 to 18, between 1 and 0.2
    [
        (1, 0.25, 0.25),
        (4, 1.0, 1.0),
        (8, 1.0, 1.0),
        (10.5, 0.8, 0.6),
        (17, 0.28, 0.2410533),
        (18, 0.2, 0.2),
        (30, 0.2, 0.2),
    ],
)
def test_a_stable_rate_falls_from_the_given_update_on(done: float, line: float, root: float) -> None:
    optimizer = OptimizerConfig(
        learning_rate=1.0, minimum_rate=0.2, warmup_steps=4, schedule="stable", decay_start=8, decay_steps=18
    )
    assert schedule.learning_rate(done, optimizer, 100) == pytest.approx(line)
    optimizer = dataclasses.replace(optimizer, decay_power=0.5, decay_steps=0)
    assert schedule.learning_rate(done, optimizer, 18) == pytest.approx(root)
    never = OptimizerConfig(learning_rate=1.0, warmup_steps=4, schedule="stable")
    assert schedule.learning_rate(done, never, 18) == pytest.approx(min(1.0, done / 4))


def test_a_polynomial_ends_where_it_is_told_to() -> None:
    optimizer = OptimizerConfig(learning_rate=1.0, minimum_rate=0.2, warmup_steps=2, decay_steps=8)
    found = [schedule.learning_rate(done, optimizer, 100) for done in (1, 2, 4, 8, 50)]
    assert found == pytest.approx([0.5, 0.8, 0.6, 0.2, 0.2])


@pytest.mark.parametrize("name", ["bert_base", "bert_large_adam"])
def test_two_phases_follow_one_schedule_over_a_million_updates(name: str) -> None:
    first, second = (RECIPES[f"{name}_phase{phase}"].phases[0].config for phase in (1, 2))

    def rate(done: int) -> float:
        phase, made = (first, done) if done < 900_000 else (second, done - 900_000)
        return schedule.learning_rate(made, phase.optimizer, phase.run.steps)

    for done in (0, 1, 4999, 9999, 10_000, 450_000, 899_999, 900_000, 900_001, 909_999, 950_000, 999_999):
        published = 1e-4 * (done / 10_000 if done < 10_000 else 1 - done / 1_000_000)  # optimization.py
        assert rate(done) == pytest.approx(published, rel=1e-9), done
    # The rates of the last 100,000 updates are 1e-10 * (1 + 2 + ... + 100,000).
    assert sum(map(rate, range(900_000, 1_000_000))) == pytest.approx(1e-10 * 100_000 * 100_001 / 2, rel=1e-9)


def test_the_warm_up_of_mlperf_starts_before_the_first_update() -> None:
    config = RECIPES["bert_large_mlperf"].phases[0].config
    found = [schedule.learning_rate(done, config.optimizer, config.run.steps) for done in range(600)]
    # (done + 76) / 287 of the peak below 1, then 1 - done / 600: flags of the README, optimization.py
    expected = [2.88293e-3 * ((done + 76) / 287 if done + 76 < 287 else 1 - done / 600) for done in range(600)]
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", ["polynomial", "cosine"])
def test_a_later_phase_goes_on_where_the_earlier_one_ended(shape: Any) -> None:
    whole = OptimizerConfig(
        learning_rate=1.0, minimum_rate=0.1, schedule=shape, warmup_steps=5, continuous=shape == "polynomial"
    )
    later = dataclasses.replace(whole, first_step=8)
    expected = [schedule.learning_rate(done, whole, 20) for done in range(8, 22)]
    assert [schedule.learning_rate(done, later, 12) for done in range(14)] == pytest.approx(expected)
    again = dataclasses.replace(later, warmup_start=8)  # a warm-up of its own
    risen = [schedule.learning_rate(done, again, 12) for done in range(6)]
    assert risen == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(
    ("start", "warmup", "first"),
    [(0, 0, 0), (0, 6, 0), (0, 7, 0), (-4, 10, 0), (-4, 11, 0), (0, 15, 9), (0, 16, 9), (9, 6, 9), (9, 12, 9)],
)
def test_a_warm_up_that_is_longer_than_the_run_is_reported(start: int, warmup: int, first: int) -> None:
    optimizer = OptimizerConfig(learning_rate=0.5, warmup_start=start, warmup_steps=warmup, first_step=first)
    risen = [(update - start) / warmup if warmup else 1.0 for update in range(first, first + 7)]  # the last is none's
    said = schedule.unfinished(optimizer, 6)
    assert bool(said) == (risen[-1] < 1)
    assert not said or f"its highest learning rate is {0.5 * risen[-2]:.4g} instead of 0.5; give fewer" in said


@pytest.mark.parametrize(("spent", "told"), [(0.0, True), (2.0, True), (21.5, True), (21.7, False), (24.1, False)])
def test_a_budget_that_the_last_update_leaves_unspent_is_reported(spent: float, told: bool) -> None:
    said = schedule.unspent(24.0, spent, 3e-4, 1000)
    assert bool(said) == told
    assert not told or f"run.steps 1000 ended the run after {spent:.3g} of budget.hours 24, which" in said
