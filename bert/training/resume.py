"""How a run begins, and how it goes on: what its directory says of it, and which weights every rank starts from."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Protocol

from bert.config import ModelConfig, RunConfig, defaults, flatten
from bert.errors import IntegrityError, UsageError
from bert.inputs.vocabulary import load_vocab
from bert.storage import files, manifest
from bert.storage.manifest import Manifest
from bert.training import checkpoint
from bert.training.distributed import Communicator

# What may differ when a run is resumed: nothing that the weights depend on.
FREE = {
    "run.directory",
    "run.device",
    "run.deterministic",
    "run.log_every",
    "run.save_every",
    "run.keep",
    "run.keep_every",
    "run.evaluate_every",
    "run.evaluate_sequences",
    "run.target_accuracy",
    "run.max_skipped",
    "run.peak_teraflops",
    "run.profile",
    "run.stall_seconds",
    "run.spike_factor",
    "run.on_spike",
    "batch.per_device",
    "batch.max_per_device",
    "data.skip_bad",
    "model.recompute_activations",
}


class Described(Protocol):
    """The sections that a run directory's description needs; the whole of a configuration is written down."""

    @property
    def model(self) -> ModelConfig: ...
    @property
    def run(self) -> RunConfig: ...


def place(run: RunConfig, default: Path, steps: int) -> RunConfig:
    """`run` with its directory and length filled in where the command left them open."""
    directory = default if run.directory == Path() else run.directory
    return dataclasses.replace(run, directory=directory, steps=run.steps or steps)


def restore(config: Described, comm: Communicator, state: checkpoint.Variables, data: Manifest) -> int:
    """Brings every rank to the run's newest checkpoint, if it has one; returns its step, or 0."""
    step = None
    if comm.rank == 0:
        checkpoint.sweep(config.run.directory)
    if comm.rank == 0 and checkpoint.steps(config.run.directory):
        _check_same(config, data)
        step = checkpoint.restore(config.run.directory, state)
        print(f"resuming {config.run.directory} after step {step}", file=sys.stderr)
    reached: int = comm.broadcast_object(step) or 0
    if reached:
        comm.broadcast_variables(list(state.values()))
    return reached


def begin(
    config: Described,
    comm: Communicator,
    weights: checkpoint.Variables,
    data: Manifest,
    vocab: Path,
    start_from: Path | None,
    fresh: tuple[str, ...],
    recipe: str | None = None,
) -> None:
    """Gives every rank the first weights, and the run directory its description."""
    if comm.rank == 0:
        if start_from is not None:
            _check_vocabulary(start_from / "vocab.txt", vocab)
            checkpoint.load_weights(start_from, weights, (*fresh, *_lacking(start_from)))
        directory = config.run.directory
        facts = {"recipe": recipe, "config": flatten(config), "data": manifest.content_hash(data.path)}
        files.write_json(directory / "config.json", facts | {"versions": manifest.versions()})
        config.model.save(directory / "bert_config.json")
        shutil.copyfile(vocab, directory / "vocab.txt")
    comm.broadcast_variables(list(weights.values()))


def _lacking(run: Path) -> tuple[str, ...]:
    """Heads that an import says its origin did not have. Of a run that was trained here nothing may be missing."""
    path = run / "config.json"
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        return tuple(map(str, about.get("imported", {}).get("missing_heads", ())))
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); put it back, or make {run} again") from error


def _check_vocabulary(theirs: Path, ours: Path) -> None:
    """Refuses weights that were learnt for other words, which a vocabulary of the same size would hide."""
    if theirs.exists() and load_vocab(theirs) != load_vocab(ours):
        raise UsageError(f"{theirs} and {ours} differ; make the data with the vocabulary of the weights")


def _check_same(config: Described, data: Manifest) -> None:
    """Refuses to go on with a run whose configuration or data differ in anything that its weights depend on."""
    path = config.run.directory / "config.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        before = defaults(type(config)) | facts["config"]
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); put it back, or start a new run") from error
    hashed = manifest.content_hash(data.path)
    before["the data's hash"] = facts.get("data", hashed)
    resolved = flatten(config) | {"the data's hash": hashed}
    differing = sorted(key for key in resolved.keys() | before.keys() if resolved.get(key) != before.get(key))
    if changed := [key for key in differing if key not in FREE]:
        listed = ", ".join(f"{key} was {before.get(key)}, now {resolved.get(key)}" for key in changed)
        where = path.parent
        raise UsageError(f"{where}: holds a run of another configuration ({listed}); give another --run.directory")
