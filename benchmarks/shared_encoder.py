"""Memory and time of several adapters of LoRA on one base in the service, beside the same models merged.

    python -m benchmarks.shared_encoder BASE --output DIR [--size base] [--models 1 4] [--batch 1 8] [--rounds 31]

BASE is a run directory with an encoder; with --size it is made, with random weights of that size. The models are
written to DIR: updates of LoRA with random numbers for queries and values, and a head with two classes. The same models
merged are ordinary runs, each with an encoder of its own.

First comes a line of JSON for each form and number of models: the memory of the service, as Linux counts it, when it
listens (VmRSS) and the largest until then (VmHWM), and after a request to each model (Pss, from smaps_rollup). Then a
line for each batch size, length and data type: medians of the processor time of a call by a model alone, merged, by one
that shares its encoder, and by OpenVINO, merged, in alternating turns; the largest difference of a logit to the merged
model in float32, relative to the largest one. Last comes the load. All use the cores that this process may use.
"""

import dataclasses
import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx

from benchmarks import engines
from benchmarks.service_load import free_port, started
from bert.core import cli, files, ranges
from bert.core.config import LoraConfig, ModelConfig
from bert.core.ranges import BatchSize, Range
from bert.hardware import devices
from bert.hardware.choices import Engine
from bert.labels import Head

FORMS = ("shared", "merged")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of `python -m benchmarks.shared_encoder`."""

    base: cli.Run
    """run directory with an encoder"""
    output: Path
    """folder for the models"""
    models: tuple[Annotated[int, Range(1, 100)], ...] = (1, 4)
    """numbers of models in a service"""
    size: str = ""
    """make BASE first: "base" for the shape of BERT-Base, and other names of bert.recipes.SIZES"""
    rank: Annotated[int, Range(1, 1024)] = 8
    """rank of the updates"""
    batch: tuple[BatchSize, ...] = (1, 8)
    """rows of a call"""
    length: tuple[Annotated[int, Range(8, 65_536)], ...] = (128,)
    """tokens of a row"""
    rounds: Annotated[int, Range(0, 10**6)] = 31
    """calls of each model for each shape; 0: memory alone"""

    def __post_init__(self) -> None:
        ranges.check(self)


def make_base(folder: Path, size: str) -> None:
    """Write a run directory with an encoder of this size with its initial weights, and a vocabulary of 30,522 words."""
    from bert.model.encoder import Encoder, variables
    from bert.recipes import SIZES
    from bert.text import vocabulary
    from bert.text.normalization import UNCASED
    from bert.training import checkpoint

    config = dataclasses.replace(SIZES[size], vocab_size=30_522)
    folder.mkdir(parents=True)
    words = [f"w{number}" for number in range(config.vocab_size - len(vocabulary.SPECIAL))]
    vocabulary.write([*vocabulary.SPECIAL, *words], UNCASED, folder)
    config.save(folder / "bert_config.json")
    checkpoint.save(folder, 1, variables(Encoder(config, seed=1)), keep=1)


def write(options: Options, number: int, form: str) -> Path:
    """Write a model, the same in both forms; return its run directory."""
    import tensorflow as tf

    from bert.model.added import tunes
    from bert.model.encoder import variables
    from bert.model.heads import TaskModel
    from bert.runs import Run
    from bert.training import checkpoint
    from extensions.lora.model import adapt

    run, folder = Run.open(options.base), options.output / f"{form}{number}"
    head = Head(kind="classifier", labels=("no", "yes"))
    model = TaskModel(run.config, number, head)
    run.load(model.encoder)
    adapt(model.encoder, LoraConfig(rank=options.rank, alpha=2.0 * options.rank), seed=number)
    for name, variable in variables(model).items():
        if name.endswith("/lora_b"):
            variable.assign(tf.random.stateless_normal(variable.shape, [number, len(name)], stddev=0.02))
    values = {name: tf.identity(variable) for name, variable in variables(model).items()}
    if form == "merged":
        for layer, one in enumerate(model.encoder.layers):
            for part in ("query", "value"):
                name = f"layer_{layer}/attention/{part}/kernel"
                values[name] = getattr(one.attention, part).kernel
        values = {name: value for name, value in values.items() if not tunes(name)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_bytes((options.base / "vocab.txt").read_bytes())
    run.config.save(folder / "bert_config.json")
    files.write_json(folder / "config.json", head.entries())
    checkpoint.save(folder, 1, values, keep=1)
    return folder


def memory(runs: list[Path], log: Path) -> dict[str, int]:
    """Return the memory of a service with these models, in MB."""
    port = free_port()
    command = [sys.executable, "-m", "serve", "--model", *runs, "--port", port, "--engine", "tensorflow"]
    with started(command, port, log) as process:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        for run in runs:
            body = {"model": run.name, "text": "w7 w11 " * 60}
            httpx.post(f"http://127.0.0.1:{port}/v1/classify", json=body, timeout=120).raise_for_status()
        lines += Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    figures = dict(line.split(":") for line in lines if line.startswith(("VmRSS", "VmHWM", "Pss:")))
    return {f"{name}_mb": round(int(value.split()[0]) * 1024 / 1e6) for name, value in figures.items()}


def contenders(options: Options) -> engines.Contenders:
    """Return what computes the logits of rows, by the name of the form and the data type."""
    from bert.runs import Run
    from extensions.lora.bases import Bases
    from tasks import loading

    made: engines.Contenders = {}
    for compute in engines.TYPES:
        shared, merged = (Run.open(options.output / f"{form}0") for form in FORMS)
        shared.bases = Bases()
        for name, run in (("tensorflow", merged), ("shared", shared), ("openvino", merged)):
            engine: Engine = "openvino" if name == "openvino" else "tensorflow"
            made[name, compute] = engines.timed(engines.computing(loading.load(run, compute, engine=engine)))
    return made


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.shared_encoder", description=__doc__)
    devices.hide_gpus()
    if options.size:
        make_base(options.base, options.size)
    options.output.mkdir(parents=True, exist_ok=True)
    runs = {form: [write(options, number, form) for number in range(max(options.models))] for form in FORMS}
    for number, form in itertools.product(options.models, FORMS):
        engines.say(form=form, models=number, **memory(runs[form][:number], options.output / "service.log"))
    vocabulary = ModelConfig.load(options.base / "bert_config.json").vocab_size
    made = contenders(options) if options.rounds else {}
    for length, batch in itertools.product(options.length, options.batch):
        rows = engines.rows_of(vocabulary, batch, length)
        for (form, compute), figures in (engines.measure(made, rows, options.rounds) if made else {}).items():
            engines.say(batch=batch, length=length, form=form, compute=compute, **figures)
    engines.say(load=os.getloadavg(), cores=len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    cli.main(main)
