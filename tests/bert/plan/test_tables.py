"""Forecasts as text and as JSON."""

import dataclasses
import json

from bert.plan import hardware, tables
from bert.plan.forecast import Forecast, Job, forecast
from bert.plan.preparation import Preparation
from bert.recipes import RECIPES

DATA = Preparation.of(20e9, 7, 1, instances=True)


def plan(**job: float) -> Forecast:
    config = RECIPES["bert_large_phase1"]()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_522))
    cluster = hardware.cluster("a100-sxm-40", 3)
    return forecast("phase", config, cluster, dataclasses.replace(Job(128, 20), **job))  # type: ignore[arg-type]


def test_money_is_shown_if_there_is_a_price() -> None:
    assert "money" not in tables.lines([plan()], DATA)
    assert "money" in tables.lines([plan(price=3.0)], DATA)


def test_the_json_has_what_the_table_has() -> None:
    one = plan(price=3.0)
    values = json.loads(json.dumps(tables.as_json([one, one], DATA)))
    assert values["hours"]["value"] == 2 * values["phases"][0]["hours"]["value"]
    assert values["phases"][0]["memory"]["total"] <= values["phases"][0]["memory"]["available"]
    assert tables.plan_json([one, one])["hours"] == values["hours"]["value"]


def test_totals_add_the_phases() -> None:
    one = plan(price=3.0)
    hours, money, energy = tables.totals([one, one, one])
    assert (hours.value, money.high, energy.low) == (
        3 * one.hours.value,
        one.money.high + one.money.high + one.money.high,
        one.kilowatt_hours.low + one.kilowatt_hours.low + one.kilowatt_hours.low,
    )
