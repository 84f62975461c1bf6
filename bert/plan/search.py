"""The cheapest or the fastest plan within limits, and the plans that no other one beats in both time and money."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bert.core.config import PretrainConfig
from bert.core.errors import ResourceError, UsageError, UserError
from bert.plan import tables
from bert.plan.forecast import Forecast, Job, forecast
from bert.plan.hardware import Cluster

Phase = tuple[str, PretrainConfig, Job]
NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
PARTS = (1, 2, 4, 8)
SIMPLER = 1.02  # times the time of the fastest plan, for one that divides less
LIMITS = ("hours", "cost")


@dataclass(frozen=True)
class Target:
    """A limit on time or money; the search makes the other one small."""

    kind: str  # "hours" or "cost"
    limit: float

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Return the target in `hours=24` or `cost=500`. Raise UsageError for another text."""
        kind, _, number = text.partition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = 0.0
        if kind not in LIMITS or not 0 < limit < 1e12:
            raise UsageError(f"--target {text}: give hours=NUMBER or cost=NUMBER, such as hours=24")
        return cls(kind, limit)


@dataclass(frozen=True)
class Plan:
    """All phases on one cluster."""

    phases: tuple[Forecast, ...]

    @property
    def hours(self) -> float:
        return tables.totals(self.phases)[0].value

    @property
    def cost(self) -> float:
        """Return the money, or the GPU-hours if no price was given."""
        return tables.totals(self.phases)[1].value or self.hours * self.phases[0].cluster.ranks

    @property
    def settings(self) -> str:
        """Return what was chosen beside the recipe, as flags."""
        first = self.phases[0].config
        flags = [f"--nodes {self.phases[0].cluster.nodes}"]
        flags += [f"--parallel.tensor {first.parallel.tensor}"] * (first.parallel.tensor > 1)
        flags += ["--parallel.shard_optimizer true"] * first.parallel.shard_optimizer
        flags += ["--model.recompute_activations true"] * first.model.recompute_activations
        sizes = [str(phase.config.batch.per_device) for phase in self.phases]
        return " ".join([*flags, f"--batch.per_device {' and '.join(sizes)}"])


def variants(config: PretrainConfig) -> Iterator[PretrainConfig]:
    """Yield the configuration with each division of memory, and with micro-batches as large as fit."""
    for parts, shard, recompute in itertools.product(PARTS, (False, True), (False, True)):
        yield dataclasses.replace(
            config,
            model=dataclasses.replace(config.model, recompute_activations=recompute),
            parallel=dataclasses.replace(config.parallel, tensor=parts, shard_optimizer=shard),
            batch=dataclasses.replace(config.batch, per_device=0),
        )


def best_settings(phases: Sequence[Phase], cluster: Cluster) -> Plan | None:
    """Return the fastest plan on the cluster, or None if the model does not fit it in any way.

    If several plans are almost equally fast, return the first, which divides least. All phases have the same division,
    so that the second one continues the run of the first.
    """
    plans: list[Plan] = []
    for choices in zip(*(list(variants(config)) for _, config, _ in phases), strict=True):
        chosen = zip(phases, choices, strict=True)
        try:
            plans.append(Plan(tuple(forecast(name, config, cluster, job) for (name, _, job), config in chosen)))
        except UserError:  # it does not fit, or the parts do not divide
            continue
    fastest = min((plan.hours for plan in plans), default=0.0)
    return next((plan for plan in plans if plan.hours <= fastest * SIMPLER), None)


def over_nodes(phases: Sequence[Phase], cluster: Cluster, numbers: Sequence[int] = NODES) -> list[Plan]:
    """Return the fastest plan for each number of nodes on which the model fits."""
    plans = (best_settings(phases, dataclasses.replace(cluster, nodes=number)) for number in numbers)
    return [plan for plan in plans if plan is not None]


def frontier(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans that no other plan beats in time and money, the fastest first."""
    best: list[Plan] = []
    for plan in sorted(plans, key=lambda plan: (plan.hours, plan.cost)):
        if not best or plan.cost < best[-1].cost:
            best.append(plan)
    return best


def search(phases: Sequence[Phase], cluster: Cluster, target: Target) -> tuple[Plan, list[Plan]]:
    """Return the best plan within the target, and the fastest plan for each number of nodes.

    With a limit on hours it is the cheapest one, with a limit on cost the fastest. Raise ResourceError if there is
    none.
    """
    plans = over_nodes(phases, cluster)
    if not plans:
        raise ResourceError(f"the model fits no number of {cluster.gpu.name} in any division; give a larger GPU")
    of: dict[str, Callable[[Plan], float]] = {"hours": lambda plan: plan.hours, "cost": lambda plan: plan.cost}
    limited, other = of[target.kind], of["cost" if target.kind == "hours" else "hours"]
    within = [plan for plan in plans if limited(plan) <= target.limit]
    if not within:
        least = min(map(limited, plans))
        raise ResourceError(
            f"--target {target.kind}={target.limit:g}: no plan with {NODES[0]} to {NODES[-1]} nodes; the least is "
            f"{least:,.1f}; raise the limit, or give another GPU"
        )
    return min(within, key=other), plans


def rows(plans: Sequence[Plan]) -> list[tuple[str, str]]:
    """Return the plans as rows of a table; those that no other beats in time and money are marked."""
    best = frontier(plans)
    return [
        (
            f"{plan.phases[0].cluster.nodes} nodes",
            f"{plan.hours:10,.1f} h {plan.cost:12,.0f}{plan.phases[0].job.unit} {'*' * (plan in best)} {plan.settings}",
        )
        for plan in plans
    ]
