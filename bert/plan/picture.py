"""Time and cost of a run over the number of nodes, as a picture."""

from collections.abc import Sequence
from pathlib import Path

from bert.core import charts
from bert.plan import tables
from bert.plan.search import Plan, frontier

COLOUR, PALE = charts.COLOURS[:2]


def draw(plans: Sequence[Plan], path: Path) -> None:
    """Write a PNG: time and cost over nodes with their 90 % intervals, and cost over time with the best plans."""
    nodes = [plan.phases[0].cluster.nodes for plan in plans]
    hours = [tables.totals(plan.phases)[0] for plan in plans]
    best = frontier(plans)
    with charts.plots(path, 3, width=14) as (time, cost, both):
        time.fill_between(nodes, [one.low for one in hours], [one.high for one in hours], color=COLOUR, alpha=0.2)
        time.plot(nodes, [one.value for one in hours], color=COLOUR, marker="o", markersize=3)
        time.set(title="Hours (pale: 90 % interval)", xlabel="nodes", xscale="log", yscale="log")
        scales = [plan.cost / one.value for plan, one in zip(plans, hours, strict=True)]
        lows, highs = ([getattr(one, end) * scale for one, scale in zip(hours, scales, strict=True)]
                       for end in ("low", "high"))  # fmt: skip
        cost.fill_between(nodes, lows, highs, color=COLOUR, alpha=0.2)
        cost.plot(nodes, [plan.cost for plan in plans], color=COLOUR, marker="o", markersize=3)
        priced = bool(plans and plans[0].phases[0].job.price)
        unit = f"Cost{plans[0].phases[0].job.unit}" if priced else "GPU-hours"
        cost.set(title=unit, xlabel="nodes", xscale="log", ylim=(0, None))
        both.plot([plan.hours for plan in plans], [plan.cost for plan in plans], "o", color=COLOUR, markersize=3)
        both.plot([plan.hours for plan in best], [plan.cost for plan in best], color=PALE, marker="o", markersize=5)
        for plan in best:
            both.annotate(f" {plan.phases[0].cluster.nodes}", (plan.hours, plan.cost), fontsize=8)
        both.set(title="Plans that no other beats, with their nodes", xlabel="hours", ylabel=unit, xscale="log")
