"""Train a variant by transformers instead of bert.pretrain, up to one update, and write its run directory.

    python -m benchmarks.laboratory.peer --python PYTHON --text SHARDS --words "RECIPE --flag ..." --seed 0 \\
        --directory RUN --stop_at 100

The peer (benchmarks/peers/transformers_pretraining.py) gets the sentences of the folder of data.shards, the
architecture, the hyperparameters and the learning rate of each update. Tokens, order, masks, initial weights and
dropout are its own. Its weights are imported by bert.convert, and the held-out figures are computed as for ours.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.laboratory.children import Children
from benchmarks.laboratory.plan import split
from bert import pretrain, pretraining, recipes
from bert.convert import __main__ as convert
from bert.core import cli, files, journal, manifest, ranges
from bert.core.config import Count, PretrainConfig
from bert.core.errors import InputError, UsageError, UserError
from bert.core.ranges import Seed
from bert.model.encoder import variables
from bert.text import sampler, vocabulary
from bert.training import checkpoint, loop, resume, schedule
from bert.training.communicator import Communicator
from bert.training.evaluation import Evaluation
from bert.training.task import Execution, Task

PROGRAM = "benchmarks.peers.transformers_pretraining"
STATE = "state-{}.pt"  # of the peer after an update


@dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of `python -m benchmarks.laboratory.peer`."""

    python: Path
    """interpreter with torch and transformers (scripts/extra_venv.sh parity)"""
    text: Path
    """folder of data.shards that the records of the plan are made of"""
    words: str
    """recipe and flags of bert.pretrain"""
    seed: Seed = 0
    """for the initial weights, the order of sentences, masks and dropout"""
    directory: Path
    """run directory"""
    stop_at: Count
    """last update"""

    def __post_init__(self) -> None:
        ranges.check(self)


def check(config: PretrainConfig, data: loop.Data, text: Path) -> None:
    """Raise UsageError for settings that the peer does not have, InputError for text that the data are not made of."""
    made = data.description.instances
    if made is None:
        raise InputError(f"{data.manifest.path}: has no samples of sentences; give those of data.tfrecords")
    needed: dict[str, tuple[object, object]] = {
        "optimizer.name": (config.optimizer.name, "adamw"),
        "optimizer.layer_decay": (config.optimizer.layer_decay, 1.0),
        "optimizer.ema": (config.optimizer.ema, 0.0),
        "model.causal": (config.model.causal, False),
        "model.norm_placement": (config.model.norm_placement, "post"),
        "model.embedding_size": (config.model.embedding_size, 0),
        "init.checkpoint": (config.init.source, None),
        "init.frozen_layers": (config.init.frozen_layers, 0),
        "--pairs of data.tfrecords": (made.pairs, "none"),
        "--single_sentences of data.tfrecords": (made.single_sentences, True),
        "--whole_word_mask of data.tfrecords": (made.whole_word_mask, False),
        "--max_ngram of data.tfrecords": (made.max_ngram, 1),
        "--kind of data.tfrecords": (data.description.kind, "documents"),
    }
    for name, (actual, needed_value) in needed.items():
        if actual != needed_value:
            raise UsageError(f"{name} is {actual}, but a variant with `peer` needs {needed_value}")
    if config.precision.compute not in ("float32", "bfloat16"):
        raise UsageError(f"precision.compute is {config.precision.compute}; give a variant with `peer` one by its name")
    if manifest.content_hash(text) not in data.manifest.inputs.values():
        raise InputError(f"{text}: {data.manifest.path} is made of other text; give the folder that it is made of")


def write_sentences(shards: Path, path: Path) -> None:
    """Write the training sentences of a folder of data.shards, one a line. Raise InputError if there are none."""
    parts = sorted(shards.glob("train-*.jsonl"))
    if not parts:
        raise InputError(f"{shards}: has no train-*.jsonl; give the folder of data.shards that the records are made of")
    with open(path, "w", encoding="utf-8") as stream:
        for part in parts:
            with open(part, encoding="utf-8") as lines:
                for line in lines:
                    stream.writelines(" ".join(sentence.split()) + "\n" for sentence in json.loads(line)["sentences"])


def settings(config: PretrainConfig, data: loop.Data, start: int, stop: int) -> dict[str, Any]:
    """Return what the peer learns with from update `start` to `stop`, as our trainer does."""
    optimizer, made = config.optimizer, data.description.instances
    assert made is not None, "`check` has looked at it"
    same = {name: getattr(optimizer, name) for name in ("epsilon", "weight_decay", "clip_norm")}
    return same | {
        "start": start,
        "stop": stop,
        "rates": [schedule.learning_rate(done, optimizer, config.run.steps) for done in range(stop)],
        "betas": [optimizer.beta_1, optimizer.beta_2],
        "batch": config.batch.total,
        "compute": config.precision.compute,
        "length": data.spec["input_ids"]["shape"][0],
        "mask_shares": config.data.mask_shares or made.mask_shares,
        "masked_lm_prob": made.masked_lm_prob,
        "seed": config.run.seed,
        "log_every": config.run.log_every,
    }


def train(options: Options, config: PretrainConfig, data: loop.Data, folder: Path, start: int) -> list[dict[str, Any]]:
    """Let the peer train in `folder`; return what it logged."""
    vocabulary.copy(data.manifest.path / vocabulary.NAME, folder)
    config.model.save(folder / "bert_config.json")
    sentences, settings_file = folder / "sentences.txt", folder / "settings.json"
    write_sentences(options.text, sentences)
    files.write_json(settings_file, settings(config, data, start, options.stop_at))
    children = Children()
    children.listen()
    code = children.run([*map(str, (options.python.absolute(), "-m", PROGRAM, settings_file, sentences, folder))])
    children.check()
    sentences.unlink()
    if code:
        raise UserError("the peer failed; see its message above")
    return list(journal.intact(folder / journal.NAME))


def heldout_figures(task: Task, config: PretrainConfig, heldout: loop.Data) -> dict[str, float]:
    """Return losses and accuracies on held-out samples, the same as those that bert.pretrain evaluates."""
    evaluation = Evaluation(task, Execution(tf.as_dtype(config.precision.compute)), Communicator())
    batches: dict[str, list[sampler.Batch]] = {source: [] for source in heldout.sources}
    for source, batch in sampler.evaluation(heldout, config.batch, config.run.evaluate_sequences):
        batches[source].append(batch)
    return evaluation.of_all_ranks(batches)


def main(argv: list[str]) -> None:
    """Run the command."""
    options = cli.parse(Options, argv, prog="python -m benchmarks.laboratory.peer", description=__doc__)
    own = ["--run.seed", str(options.seed), "--run.directory", str(options.directory)]
    phases = recipes.choose([*split(options.words), *own], prog="bert.pretrain", description="")
    (phase,) = pretraining.with_architectures(pretrain.placed(phases, ""))
    comm = Communicator()
    assert phase.config.data.train is not None, "`placed` checks it"
    data, heldout = pretraining.datasets(phase.config.data.train, phase.config)
    config = pretraining.resolve(phase.config, data, comm.device, 1)
    assert heldout is not None, "the laboratory has checked the plan"
    check(config, data, options.text)
    done = [int(path.name.removeprefix("step-")) for path in checkpoint.steps(options.directory)]
    start, folder, record = max(done, default=0), options.directory.parent / "peer", options.directory / journal.NAME
    folder.mkdir(parents=True, exist_ok=True)
    logged = train(options, config, data, folder, start)

    task = pretraining.task_for(config, data, comm.parts)
    if not start:
        options.directory.mkdir(exist_ok=True)
        vocab = data.manifest.path / vocabulary.NAME
        resume.begin(config, comm, {}, data.manifest, vocab, None, (), {"recipe": f"{phase.name}, by transformers"})
    with tempfile.TemporaryDirectory(dir=folder) as imported:
        convert.main(["import", "huggingface", str(folder / "model"), f"{imported}/run"])
        checkpoint.load_weights(Path(imported) / "run", variables(task.module))
    line = {"step": options.stop_at, "split": "heldout"} | heldout_figures(task, config, heldout)
    before = [line for line in journal.intact(record) if line["step"] <= start] if start else []
    with files.atomic_write(record) as stream:
        stream.writelines(f"{json.dumps(each | {'scale': journal.SCALE})}\n" for each in [*before, *logged, line])
    checkpoint.save(options.directory, options.stop_at, variables(task.module), config.run.keep)
    (folder / STATE.format(start)).unlink(missing_ok=True)


if __name__ == "__main__":
    cli.main(main)
