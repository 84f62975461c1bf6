"""Say what a run will take before anything is rented: does it fit, how long, how much money, which batch.

    python -m bert.plan bert_large --gpu h100-sxm --nodes 8 --price 2.5
    python -m bert.plan bert_large --gpu a100-sxm-80 --price 1.5 --currency EUR --target hours=24
    python -m bert.plan --config run.yaml --gpu rtx-4090

Needs neither data nor TensorFlow. Of a recipe with several phases all are planned, and their sums. Flags of the recipe
(--batch.total, --parallel.tensor, --phase2.batch.total, ...) are as in bert.pretrain. docs/planning.md tells the
formulas and their errors.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bert import recipes
from bert.core import cli, files, object_urls, ranges, stores
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.core.ranges import Range
from bert.plan import hardware, measurement, search, tables
from bert.plan.forecast import Job, forecast
from bert.plan.hardware import Cluster
from bert.plan.preparation import Preparation
from bert.plan.search import Phase, Plan, Target

PROG = "python -m bert.plan"
WORDS, CAUSAL_WORDS = 30_522, 50_257  # sizes of Google's and GPT-2's vocabularies


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options besides the recipe's settings."""

    gpu: str
    """name of the GPU: h100-sxm, a100-sxm-80, v100-sxm2-32, ...; an unknown one is an error with similar names"""
    nodes: Annotated[int, Range(1, 100_000)] = 1
    """number of nodes"""
    gpus_per_node: Annotated[int, Range(0, 64)] = 0
    """GPUs of a node; 0: as in the maker's usual machine"""
    network: Annotated[float, Range(0, 1e5)] = 0.0
    """network of a node in Gb/s; 0: that of the usual machine"""
    price: Annotated[float, Range(0, 1e6)] = 0.0
    """price of a GPU-hour, in any currency"""
    currency: str = ""
    """currency of the price, such as EUR, to show behind sums"""
    measured: Path | None = None
    """metrics.jsonl of a short run on such a GPU, whose rate replaces the estimate"""
    measured_ranks: Annotated[int, Range(1, 1_000_000)] = 1
    """GPUs of that run"""
    sequence: Annotated[int, Range(0, 65_536)] = 0
    """tokens of a sequence; 0: those of the recipe"""
    predictions: Annotated[int, Range(0, 65_536)] = 0
    """predicted tokens of a sequence; 0: those of the recipe or, with --sequence, as data.tfrecords makes them"""
    text_gigabytes: Annotated[float, Range(0.001, 1e6)] = 20.0
    """text to prepare, in GB; English Wikipedia has 20"""
    cores: Annotated[int, Range(0, 100_000)] = 0
    """cores for data preparation; 0: those of this machine"""
    documents: cli.Switch = False
    """data of tokenised documents (--kind documents) instead of instances masked in advance"""
    target: str = ""
    """hours=24: find the cheapest plan that takes at most 24 hours; cost=500: the fastest that costs at most 500;
    nodes, micro-batches, recomputation, sharding and tensor parallelism are chosen"""
    json: cli.Switch = False
    """print JSON instead of a table"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if self.currency and not self.price:
            raise UsageError("--currency has no effect without --price; give the price of a GPU-hour")
        if self.measured is None and self.measured_ranks != 1:
            raise UsageError("--measured_ranks has no effect without --measured; give metrics.jsonl of that run")
        if not self.currency.isprintable():
            raise UsageError(f"--currency {self.currency!a}: not a name; give one such as EUR")


def job(phase: recipes.Phase, options: Options, cluster: Cluster) -> Job:
    """Return what the forecast of one phase needs. Raise UsageError if a sequence is longer than the model allows."""
    model, path = phase.config.model, options.measured
    sequence, predictions = phase.sequence, phase.predictions
    if options.sequence:
        sequence, predictions = options.sequence, recipes.predictions(model, options.sequence)
    if sequence > model.max_position_embeddings:
        raise UsageError(
            f"--sequence {sequence} is more than model.max_position_embeddings {model.max_position_embeddings}"
        )
    measured = None if path is None else measurement.read(path, cluster, options.measured_ranks)
    taught_by = phase.config.distill.teacher
    teacher = _architecture(taught_by) if taught_by else None
    if teacher:
        phase.config.distill.check_fit(model, teacher)
    return Job(
        sequence,
        min(options.predictions or predictions, sequence),
        options.price,
        measured,
        options.currency,
        teacher=teacher,
    )


def _architecture(run: Path) -> ModelConfig:
    """Read the architecture of a run's model; from a store, read only this, without the weights."""
    url = object_urls.url_of(run)
    if url is None:
        return ModelConfig.load(run / "bert_config.json")
    described = stores.read(url, "bert_config.json")
    if described is None:
        raise InputError(f"{url}: has no bert_config.json; give the run directory of a trained model")
    return ModelConfig.parse(lambda: files.parse_json(described), f"{url}/bert_config.json")


def requests(argv: Sequence[str], options: Options, more_help: str) -> tuple[list[Phase], Cluster]:
    """Return the phases that the command names, and the cluster."""
    chosen, requested = recipes.choose(argv, prog=PROG, description=f"{__doc__}\n{more_help}\n"), []
    cluster = hardware.cluster(options.gpu, options.nodes, options.gpus_per_node, options.network)
    for phase in recipes.with_architectures(chosen):
        config = phase.config
        if not config.run.steps:
            raise UsageError("run.steps is 0; give the number of updates with --run.steps")
        words = CAUSAL_WORDS if config.model.causal else WORDS
        model = dataclasses.replace(config.model, vocab_size=config.model.vocab_size or words)
        requested.append((phase.name, dataclasses.replace(config, model=model), job(phase, options, cluster)))
    return requested, cluster


def main(argv: list[str]) -> None:
    """Run the command."""
    if {"-h", "--help"} & set(argv):
        argv = ["--gpu", "none", *argv]
    options, rest, more_help = cli.extract(Options, argv, prog=PROG)
    requested, cluster = requests(rest, options, more_help)
    plans: list[Plan] = []
    if options.target:
        best, plans = search.search(requested, cluster, Target.parse(options.target))
        forecasts = list(best.phases)
    else:
        forecasts = [forecast(name, config, cluster, job) for name, config, job in requested]
    cores = options.cores or os.cpu_count() or 1
    data = Preparation.of(options.text_gigabytes * 1e9, cores, len(forecasts), not options.documents)
    if options.json:
        extra = {"plans": [tables.plan_json(plan.phases) for plan in plans]}
        print(json.dumps(tables.as_json(forecasts, data) | extra, indent=1))
        return
    print(tables.lines(forecasts, data))
    if plans:
        print("\nplans", *(f"  {label:<{tables.LABEL - 2}} {text}" for label, text in search.rows(plans)), sep="\n")


if __name__ == "__main__":
    cli.main(main)
