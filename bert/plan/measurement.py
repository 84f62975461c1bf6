"""The rate of this code on a GPU, from `metrics.jsonl` of a short run."""

import array
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core import checked_json, files, journal
from bert.core.config import ModelConfig, ObjectiveConfig
from bert.core.errors import InputError
from bert.model import cost
from bert.plan import update_time
from bert.plan.forecast import Measured
from bert.plan.hardware import Cluster
from bert.plan.rates import Setting
from bert.plan.update_time import Work
from bert.recipes import predictions

SKIPPED = 1  # lines at the start of a run, whose updates include compilation


@dataclass(frozen=True)
class Observed:
    """What a run did in an update, and how long it took."""

    work: Work
    seconds: float
    width: int
    precision: str
    code: str
    tokens: int  # of a micro-batch


def observe(path: Path, ranks: int) -> Observed:
    """Return what `metrics.jsonl` and the `config.json` beside it say of a run on `ranks` ranks.

    Raise InputError if one of the files is not what a run writes.
    """
    config = _config(path.with_name("config.json"))
    speed, sequence = _speeds(path)
    try:
        model: ModelConfig = checked_json.take(ModelConfig, _section(config, "model."))
        objective: ObjectiveConfig = checked_json.take(ObjectiveConfig, _section(config, "objective."))
        further = objective.further(model)
        total, per_device = int(config["batch.total"]), int(config["batch.per_device"])
        precision, xla = str(config["precision.compute"]), bool(config["precision.xla"])
        recomputed, parts = bool(config["model.recompute_activations"]), int(config.get("parallel.tensor", 1))
        travels = 2.0 if config["precision.compress"] else 4.0
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path.with_name('config.json')}: {error}; give a run of bert.pretrain") from error
    if parts > 1 or per_device < 1 or total % (per_device * ranks):
        raise InputError(
            f"{path}: its batch of {total} in micro-batches of {per_device} was not made by {ranks} ranks with the "
            "whole model each; give their number"
        )
    scored, count = predictions(model, sequence), cost.parameters(model, further)
    work = Work(
        flops=cost.flops(model, sequence, scored, None if model.causal else cost.states_read(scored), further=further),
        per_device=per_device,
        accumulation=total // (per_device * ranks),
        parameters=count,
        gradients=count * travels if ranks > 1 else 0.0,
        recomputed=1 / 3 if recomputed else 0.0,
    )
    return Observed(work, total / speed, model.hidden_size, precision, "xla" if xla else "plain", per_device * sequence)


def read(path: Path, cluster: Cluster, ranks: int) -> Measured:
    """Return what a run measured on `ranks` GPUs of the cluster's kind. path: its `metrics.jsonl`.

    Raise InputError as `observe` does.
    """
    observed = observe(path, ranks)
    per_node = min(ranks, cluster.per_node)
    where = Cluster(cluster.gpu, -(-ranks // per_node), per_node, cluster.network)
    rate = update_time.rate(observed.work, where, observed.seconds)
    if not rate:
        raise InputError(f"{path}: an update of {observed.seconds:.3g} s is too short for a {cluster.gpu.name}")
    setting = Setting(cluster.gpu, observed.precision, observed.width, observed.tokens, observed.code)
    return Measured(rate, setting, observed.work)


def _speeds(path: Path) -> tuple[float, int]:
    """Return the median sequences per second, and the tokens of a sequence."""
    rates = array.array("d")  # sequences a second
    tokens = array.array("d")  # of a sequence
    for line in journal.intact(path):
        if line["split"] == "train" and (rate := line.get("sequences_per_second", 0)) > 0:
            rates.append(rate)
            tokens.append(line["tokens_per_second"] / rate)
    if len(rates) <= SKIPPED:
        raise InputError(f"{path}: {len(rates)} lines of training; give a run with more (--run.log_every 10)")
    return statistics.median(rates[SKIPPED:]), round(statistics.median(tokens[SKIPPED:]))


def _config(path: Path) -> dict[str, Any]:
    try:
        config = files.read_json(path)["config"]
        if not isinstance(config, dict):
            raise TypeError
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; --measured needs the metrics.jsonl in a run's folder") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the configuration of a run; give a run of bert.pretrain") from error
    return config


def _section(config: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
