"""The forecast of a run on a cluster: batch, memory, time with its uncertainty, money, energy, checkpoints."""

import dataclasses
import math
from dataclasses import dataclass, field

from bert.core.config import BatchConfig, ModelConfig, PretrainConfig
from bert.core.errors import ResourceError, UsageError
from bert.model import cost
from bert.plan import demand, hardware, memory, network, rates, update_time
from bert.plan.hardware import Cluster
from bert.plan.memory import Memory
from bert.plan.rates import Setting
from bert.plan.update_time import Times, Work

CHECKPOINT_RATE = 1e9  # bytes/s to the disk; an assumption
BYTES = {"float32": 4, "tf32": 4, "float16": 2, "bfloat16": 4}  # of a state that travels: Horovod sums no bfloat16
KILO = 1000.0
SMALLEST = 0.5  # share of the possible micro-batch below which another batch is taken instead of a divisor
SLOWER, FASTER = 1.5, 0.9  # factors on the time of communication at the ends of the interval; an assumption
SLOW_NETWORK = 5e9  # bytes/s of a node: 40 Gb/s
CAUTION = 0.9  # share of the largest micro-batch that is taken where none is given: the memory is an estimate
ROOMY = 2  # ratio of micro-batches from which on the larger one is worth a remark


@dataclass(frozen=True)
class Interval:
    """A number, and the interval that holds it with a probability of 90 %."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Interval":
        """Return the interval times a factor, such as in another unit."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, other: "Interval") -> "Interval":
        """Return the sum of two numbers whose errors go in the same direction."""
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Measured:
    """One measured run of this code on this kind of GPU, which replaces the estimated rate."""

    rate: float  # FLOP/s within a micro-batch
    setting: Setting
    work: Work
    width: float = rates.MEASURED


@dataclass(frozen=True)
class Job:
    """What a forecast needs beside the configuration and the cluster."""

    sequence: int
    predictions: int
    price: float = 0.0  # of a GPU-hour
    measured: Measured | None = None
    currency: str = ""  # of the price
    teacher: ModelConfig | None = None  # of a distillation

    @property
    def unit(self) -> str:
        """Return the text after a sum of money."""
        return f" {self.currency}" if self.currency else ""


@dataclass(frozen=True)
class Forecast:
    """What one phase of training takes."""

    name: str
    config: PretrainConfig  # with the batch that was chosen
    cluster: Cluster
    job: Job
    memory: Memory
    largest: int  # sequences of a micro-batch that fit
    update: Times
    seconds: Interval  # of an update
    rate: float  # sequences per second
    share: float  # of the peak, in the products that are counted
    hours: Interval
    money: Interval
    kilowatt_hours: Interval
    checkpoint: float  # bytes
    remarks: list[str] = field(default_factory=list)

    @property
    def accumulation(self) -> int:
        return self.config.batch.accumulation(replicas(self.config, self.cluster))


def unit_of(hours: float) -> tuple[float, str]:
    """Return the unit in which hours are shown: its number in an hour, and its name."""
    return (1 / 24, "days") if hours >= 72 else (1, "h") if hours >= 1.5 else (60, "min")


def replicas(config: PretrainConfig, cluster: Cluster) -> int:
    """Return the number of copies of the model. Raise UsageError if its parts do not fit the ranks and the model."""
    parts, divided = config.parallel.tensor, [("GPUs", cluster.ranks)]
    for of, model in (("", config.model), (" of the generator", config.further)):
        if model:
            divided.append((f"attention heads{of}", model.num_attention_heads))
            divided.append((f"elements of the feed-forward layer{of}", model.intermediate_size))
    for what, number in divided:
        if number % parts:
            raise UsageError(f"--parallel.tensor {parts} does not divide {number:,} {what}; give a divisor of it")
    if parts <= cluster.per_node and cluster.per_node % parts:
        raise UsageError(f"--parallel.tensor {parts} does not divide the {cluster.per_node} GPUs of a node")
    return cluster.ranks // parts


def forecast(name: str, config: PretrainConfig, cluster: Cluster, job: Job) -> Forecast:
    """Return the forecast. Raise ResourceError if the model does not fit, UsageError if the batch cannot be divided."""
    gpu, copies = cluster.gpu, replicas(config, cluster)
    precision = config.precision.resolved(gpu=True, bfloat16=gpu.has_bfloat16)
    config = dataclasses.replace(config, precision=precision)
    largest = memory.largest_micro_batch(config, gpu, copies, job.sequence, job.predictions, job.teacher)
    if not largest:
        raise ResourceError(_too_large(config, gpu.name, copies, cluster, job))
    requested = config.batch
    config = dataclasses.replace(config, batch=choose_batch(requested, copies, largest))
    work = work_of(config, cluster, job)
    setting = setting_of(config, cluster, job)
    rate, width = rate_of(setting, work, job.measured)
    update, seconds = _update(config, work, cluster, rate, width)
    per_second = config.batch.total / seconds.value
    hours = seconds.times(config.run.steps / 3600).plus(_evaluation(config, cluster, job, rate, width))
    counted = work.flops * config.batch.total / copies / seconds.value
    return Forecast(
        name=name,
        config=config,
        cluster=cluster,
        job=job,
        memory=memory.estimate(config, gpu, copies, job.sequence, job.predictions, job.teacher),
        largest=largest,
        update=update,
        seconds=seconds,
        rate=per_second,
        share=counted / gpu.peak(precision.compute),
        hours=hours,
        money=hours.times(job.price * cluster.ranks),
        kilowatt_hours=hours.times(cluster.watts / KILO),
        checkpoint=demand.checkpoint_bytes(config, job.teacher),
        remarks=[
            *_remarks(requested, config, largest, cluster),
            *_larger(name, config, cluster, job, largest, hours.value),
        ],
    )


def _too_large(config: PretrainConfig, name: str, copies: int, cluster: Cluster, job: Job) -> str:
    one = dataclasses.replace(config, batch=dataclasses.replace(config.batch, per_device=1))
    need = memory.estimate(one, cluster.gpu, copies, job.sequence, job.predictions, job.teacher)
    return (
        f"one sequence needs {need.total / 2**30:,.1f} GiB on a {name}, which has {need.available / 2**30:,.1f}; "
        "give --parallel.tensor N, --parallel.shard_optimizer true, --model.recompute_activations true, or another GPU"
    )


def choose_batch(requested: BatchConfig, copies: int, largest: int) -> BatchConfig:
    """Return the batch in micro-batches that fit: the requested total if it divides, else another one by `fit`."""
    limit = min(requested.per_device or max(1, int(largest * CAUTION)), largest)
    share = requested.total // copies
    if requested.total % copies == 0:
        size = max(size for size in range(1, min(share, limit) + 1) if share % size == 0)
        if size >= SMALLEST * min(limit, share):
            return dataclasses.replace(requested, per_device=size)
    fit = "nearest" if requested.fit == "exact" else requested.fit
    return dataclasses.replace(requested, per_device=limit, fit=fit).divided(copies)


def _remarks(requested: BatchConfig, config: PretrainConfig, largest: int, cluster: Cluster) -> list[str]:
    chosen, remarks = config.batch.per_device, [config.batch.change(requested)]
    if requested.per_device and chosen != requested.per_device:
        reason = f"{largest} fit" if requested.per_device > largest else "the batch divides so"
        remarks.append(f"micro-batches of {chosen} instead of {requested.per_device}: {reason}")
    if config.parallel.tensor > cluster.per_node:
        remarks.append("tensor parallelism over several nodes: every layer waits for the network")
    if cluster.nodes > 1 and cluster.network <= SLOW_NETWORK:
        remarks.append("slow networks may deliver a tenth of their data sheet: measure it, and give it as --network")
    remarks.append(hardware.REMARKS.get(cluster.gpu.name, ""))
    return [remark for remark in remarks if remark]


def _larger(name: str, config: PretrainConfig, cluster: Cluster, job: Job, largest: int, hours: float) -> list[str]:
    """Return the remark on a micro-batch that is much larger than the chosen one, if it fits: what it would gain."""
    batch = choose_batch(dataclasses.replace(config.batch, per_device=0), replicas(config, cluster), largest)
    if batch.per_device < ROOMY * config.batch.per_device:
        return []
    other = forecast(name, dataclasses.replace(config, batch=batch), cluster, job)
    flag = f"--batch.per_device {batch.per_device}"
    scale, unit = unit_of(hours)
    gain = f"{other.hours.value * scale:,.1f} {unit} instead of {hours * scale:,.1f} {unit}"
    if job.price:
        gain += f", {other.money.value:,.0f} instead of {hours * job.price * cluster.ranks:,.0f}{job.unit}"
    return [f"larger micro-batches fit: with {flag} it is {gain}"]


def work_of(config: PretrainConfig, cluster: Cluster, job: Job) -> Work:
    """Return what one rank does in an update."""
    model, parallel, batch = config.model, config.parallel, config.batch
    copies, parts = cluster.ranks // parallel.tensor, parallel.tensor
    local = cost.local_parameters(model, parts, config.further) + cost.projection_parameters(config, job.teacher)
    travels = 2.0 if config.precision.compress else 4.0
    if parallel.shard_optimizer:  # gradients are scattered, and new weights gathered: each is half of an all-reduce
        travels = (travels + 4.0) / 2
    tokens = batch.per_device * job.sequence

    def collectives(of: ModelConfig) -> float:
        hidden_state = tokens * of.hidden_size * BYTES[config.precision.compute]
        return network.tensor_parallel(parts, of.num_hidden_layers, hidden_state, cluster, model.recompute_activations)

    return Work(
        flops=demand.update_flops(config, job.sequence, job.predictions, job.teacher) / parts,
        per_device=batch.per_device,
        accumulation=batch.accumulation(copies),
        parameters=local / (copies if parallel.shard_optimizer else 1),
        gradients=local * travels if copies > 1 else 0.0,
        collectives=sum(collectives(each) for each in (model, config.further) if each),
        recomputed=1 / 3 if model.recompute_activations else 0.0,
        overlap=parallel.overlap,
        exposed=demand.exposed_share(model, parallel, config.further),
    )


def setting_of(config: PretrainConfig, cluster: Cluster, job: Job) -> Setting:
    """Return what the share of the peak depends on."""
    precision = config.precision
    tokens = config.batch.per_device * job.sequence
    code = "xla" if precision.xla else "plain"
    return Setting(cluster.gpu, precision.compute, config.model.hidden_size, tokens, code)


def rate_of(setting: Setting, work: Work, measured: Measured | None) -> tuple[float, float]:
    """Return the FLOP/s within a micro-batch, and the half width of its logarithm's 90 % interval.

    A measured rate is carried over to other micro-batches by the ratio of the estimates.
    """
    guess = rates.estimate(setting, work)
    if measured is None:
        return guess, rates.uncertainty(setting.gpu, setting.precision)
    return measured.rate * guess / rates.estimate(measured.setting, measured.work), measured.width


def _update(config: PretrainConfig, work: Work, cluster: Cluster, rate: float, width: float) -> tuple[Times, Interval]:
    group = reduction_group(cluster, config.parallel.tensor)

    def at(shift: float, factor: float) -> Times:
        slower = dataclasses.replace(work, gradients=work.gradients * factor, collectives=work.collectives * factor)
        return update_time.times(slower, cluster, rate * math.exp(shift), group=group)

    guess = at(0.0, 1.0)
    return guess, Interval(guess.total, at(width, FASTER).total, at(-width, SLOWER).total)


def reduction_group(cluster: Cluster, parts: int) -> Cluster:
    """Return the GPUs among which one part's gradients are summed; all parts share the network of their nodes."""
    inside = max(1, cluster.per_node // parts)
    nodes = cluster.ranks // parts // inside
    shared = cluster.network * min(1.0, inside / cluster.per_node)
    return dataclasses.replace(cluster, nodes=nodes, per_node=inside, network=shared)


def _evaluation(config: PretrainConfig, cluster: Cluster, job: Job, rate: float, width: float) -> Interval:
    """Return the hours of all evaluations: forward passes, a third of the operations."""
    run = config.run
    count = run.steps // run.evaluate_every if run.evaluate_every else 0
    flops = cost.flops(config.model, job.sequence, job.predictions, further=config.further) / 3
    hours = count * run.evaluate_sequences * flops / (rate * cluster.ranks) / 3600
    return Interval(hours, hours * math.exp(-width), hours * math.exp(width))
