"""A forecast as a table for a person, and as JSON."""

from collections.abc import Sequence
from typing import Any

from bert.model import cost
from bert.plan import forecast as forecasts
from bert.plan.forecast import Forecast, Interval
from bert.plan.preparation import Preparation

GIB, GB = 2**30, 1e9
LABEL = 22  # columns


def lines(phases: Sequence[Forecast], preparation: Preparation) -> str:
    """Return the forecast of one or several phases as lines of text."""
    rows: list[tuple[str, str]] = []
    for phase in phases:
        rows += [("", ""), (phase.name, _headline(phase)), *_phase(phase)]
    rows += [("", ""), *_total(phases), *_preparation(preparation)]
    return "\n".join(f"{label:<{LABEL}} {text}".rstrip() for label, text in rows[1:])


def _headline(phase: Forecast) -> str:
    cluster, gpu = phase.cluster, phase.cluster.gpu
    network = f", {cluster.network * 8e-9:,.0f} Gb/s a node" if cluster.nodes > 1 else ""
    parts = (
        f", in groups of {phase.config.parallel.tensor} that hold one model" if phase.config.parallel.tensor > 1 else ""
    )
    return f"{cluster.nodes:,} x {cluster.per_node} {gpu.name}{network}{parts}"


def _phase(phase: Forecast) -> list[tuple[str, str]]:
    config, memory, update = phase.config, phase.memory, phase.update
    exposed = update.reduction - update.hidden
    rows = [
        ("  model", f"{cost.parameters(config.model, config.further):,} parameters, {phase.job.sequence} tokens"),
        ("  updates", f"{config.run.steps:,} of {config.batch.total:,} sequences"),
        (
            "  micro-batches",
            f"{phase.accumulation:,} of {config.batch.per_device} per GPU and update; {phase.largest} fit",
        ),
        (
            "  memory of a GPU",
            f"{memory.total / GIB:.1f} of {memory.available / GIB:.1f} GiB: {memory.state / GIB:.1f} of weights, "
            f"gradients and moments, {sum(memory.activations.values()) / GIB:.1f} of activations",
        ),
        ("  sequences per second", f"{phase.rate:,.0f} ({phase.share:.0%} of the peak in {config.precision.compute})"),
        (
            "  update",
            f"{_milliseconds(phase.seconds)}: compute {1e3 * update.compute:,.0f}, tensor parallelism "
            f"{1e3 * update.tensor:,.0f}, optimizer {1e3 * update.optimizer:,.0f}, reduction {1e3 * exposed:,.0f} "
            f"exposed and {1e3 * update.hidden:,.0f} hidden",
        ),
        ("  time", _hours(phase.hours)),
        (
            "  checkpoint",
            f"{phase.checkpoint / GB:.1f} GB, {phase.checkpoint / forecasts.CHECKPOINT_RATE:.0f} s at 1 GB/s beside "
            f"training, every {_hours(Interval(*(phase.seconds.value * config.run.save_every / 3600,) * 3), False)}",
        ),
    ]
    return rows + [("  note", remark) for remark in phase.remarks]


def _total(phases: Sequence[Forecast]) -> list[tuple[str, str]]:
    hours, money, energy = totals(phases)
    rows = [("total time", _hours(hours)), ("energy", f"{energy.value:,.0f} kWh, an estimate from the GPUs' power")]
    if phases[0].job.price:
        rows.append(("money", f"{money.value:,.0f} ({money.low:,.0f} to {money.high:,.0f}){phases[0].job.unit}"))
    disk = max(phase.checkpoint * (phase.config.run.keep + 1) for phase in phases)
    return [*rows, ("disk for checkpoints", f"{disk / GB:,.1f} GB of each phase")]


def _preparation(data: Preparation) -> list[tuple[str, str]]:
    return [
        (
            "data preparation",
            f"{data.hours:.1f} h for {data.text / GB:,.0f} GB of text on {data.cores} cores, {data.disk / GB:,.0f} GB "
            f"of disk, {data.memory / GB:,.0f} GB of memory",
        )
    ]


def totals(phases: Sequence[Forecast]) -> tuple[Interval, Interval, Interval]:
    """Return hours, money and kilowatt-hours of all phases."""
    sums = [Interval(0.0, 0.0, 0.0)] * 3
    for phase in phases:
        parts = phase.hours, phase.money, phase.kilowatt_hours
        sums = [total.plus(part) for total, part in zip(sums, parts, strict=True)]
    return sums[0], sums[1], sums[2]


def _milliseconds(seconds: Interval) -> str:
    return f"{1e3 * seconds.value:,.0f} ms ({1e3 * seconds.low:,.0f} to {1e3 * seconds.high:,.0f})"


def _hours(hours: Interval, interval: bool = True) -> str:
    unit, name = forecasts.unit_of(hours.value)
    text = f"{hours.value * unit:,.1f}"
    return f"{text} {name} ({hours.low * unit:,.1f} to {hours.high * unit:,.1f})" if interval else f"{text} {name}"


def as_json(phases: Sequence[Forecast], preparation: Preparation) -> dict[str, Any]:
    """Return the forecast as plain values. Times in seconds or hours as named; sizes in bytes."""
    hours, money, energy = totals(phases)
    return {
        "phases": [_phase_json(phase) for phase in phases],
        "hours": vars(hours),
        "money": vars(money),
        "currency": phases[0].job.currency,
        "kilowatt_hours": vars(energy),
        "preparation": vars(preparation),
    }


def _phase_json(phase: Forecast) -> dict[str, Any]:
    config, memory = phase.config, phase.memory
    return {
        "name": phase.name,
        "gpu": phase.cluster.gpu.name,
        "nodes": phase.cluster.nodes,
        "gpus_per_node": phase.cluster.per_node,
        "network_gigabits": phase.cluster.network * 8e-9,
        "tensor_parts": config.parallel.tensor,
        "parameters": cost.parameters(config.model, config.further),
        "sequence": phase.job.sequence,
        "updates": config.run.steps,
        "batch": config.batch.total,
        "per_device": config.batch.per_device,
        "accumulation": phase.accumulation,
        "largest_per_device": phase.largest,
        "memory": {
            "state": memory.state,
            "activations": memory.activations,
            "update": memory.update,
            "total": memory.total,
            "available": memory.available,
        },
        "update_seconds": vars(phase.seconds),
        "update_parts": vars(phase.update),
        "sequences_per_second": phase.rate,
        "share_of_peak": phase.share,
        "hours": vars(phase.hours),
        "money": vars(phase.money),
        "kilowatt_hours": vars(phase.kilowatt_hours),
        "checkpoint_bytes": phase.checkpoint,
        "notes": phase.remarks,
    }


def plan_json(phases: Sequence[Forecast]) -> dict[str, Any]:
    """Return hours, money and choices of all phases on one cluster as plain values."""
    hours, money, _ = totals(phases)
    first = phases[0].config
    return {
        "nodes": phases[0].cluster.nodes,
        "hours": hours.value,
        "money": money.value,
        "tensor_parts": first.parallel.tensor,
        "shard_optimizer": first.parallel.shard_optimizer,
        "recompute_activations": first.model.recompute_activations,
        "per_device": [phase.config.batch.per_device for phase in phases],
    }
