"""The search for the cheapest or fastest plan."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from bert.core.errors import ResourceError, UsageError
from bert.model import cost, weights
from bert.model.weights import Weight
from bert.plan import hardware, search
from bert.plan.forecast import Job
from bert.plan.search import Phase, Target
from bert.recipes import RECIPES


def phase(name: str = "bert_large_phase1", sequence: int = 128, price: float = 2.0) -> Phase:
    config = RECIPES[name].phases[0].config
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=30_522))
    return name, config, Job(sequence, sequence * 15 // 100 + 1, price)


CLUSTER = hardware.cluster("a100-sxm-80", 1)


def test_a_limit_on_hours_gives_the_cheapest_plan_within_it() -> None:
    plan, plans = search.search([phase()], CLUSTER, Target("hours", 10.0))
    assert plan.hours <= 10.0
    assert all(other.cost >= plan.cost for other in plans if other.hours <= 10.0)


@pytest.mark.slow
def test_a_limit_on_cost_gives_the_fastest_plan_within_it() -> None:
    plans = search.over_nodes([phase()], CLUSTER)
    limit = 1.05 * min(plan.cost for plan in plans)
    plan, _ = search.search([phase()], CLUSTER, Target("cost", limit))
    assert plan.cost <= limit and all(other.hours >= plan.hours for other in plans if other.cost <= limit)


def test_the_frontier_has_no_plan_that_another_beats() -> None:
    plans = search.over_nodes([phase()], CLUSTER)
    kept = search.frontier(plans)
    for plan in kept:
        assert not any(other.hours < plan.hours and other.cost < plan.cost for other in plans)
    assert [plan.hours for plan in kept] == sorted(plan.hours for plan in kept)
    for plan in plans:
        assert any(one.hours <= plan.hours and one.cost <= plan.cost for one in kept)


def test_a_model_beyond_one_gpu_is_divided() -> None:
    plan = search.best_settings([phase("bert_3b9", 512)], hardware.cluster("v100-sxm2-32", 2))
    assert plan and "--parallel." in plan.settings
    assert all(one.memory.fits for one in plan.phases)


def test_no_division_is_taken_where_none_is_needed() -> None:
    plan = search.best_settings([phase()], CLUSTER)
    assert plan and "tensor" not in plan.settings and "recompute" not in plan.settings


def test_a_search_counts_the_parameters_of_a_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of plans differ in their division alone. To list the weights for each of them took minutes."""
    listed = list[str]()

    def pretrained(*models: Any) -> Iterator[Weight]:
        listed.append("a model")
        return weights_of(*models)

    weights_of = weights.pretrained
    monkeypatch.setattr(weights, "pretrained", pretrained)
    for function in (cost.parameters, cost._divided_parameters):
        function.cache_clear()
    assert len(search.over_nodes([phase()], CLUSTER)) > 5
    assert len(listed) <= 10  # with activations recomputed and not, divided and whole


@pytest.mark.slow
def test_impossible_targets_say_what_is_possible() -> None:
    with pytest.raises(ResourceError, match="the least is"):
        search.search([phase()], CLUSTER, Target("hours", 0.001))
    with pytest.raises(ResourceError, match="fits no number"):
        big = phase("bert_3b9", 512)
        model = dataclasses.replace(big[1].model, hidden_size=61_440, intermediate_size=245_760)
        wide = dataclasses.replace(big[1], model=model)
        search.search([(big[0], wide, big[2])], CLUSTER, Target("hours", 1.0))


@pytest.mark.parametrize("text", ["hours", "hours=", "hours=-1", "days=3", "cost=nan", "cost=1e99"])
def test_a_target_is_hours_or_cost(text: str) -> None:
    with pytest.raises(UsageError, match="--target"):
        Target.parse(text)
    assert Target.parse("hours=24") == Target("hours", 24.0)
