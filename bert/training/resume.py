"""Start and resume a run: its directory, its `config.json`, and the initial weights of every rank."""

import dataclasses
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert import labels
from bert.config import RunConfig, TrainConfig, defaults, flatten
from bert.errors import IntegrityError, UsageError
from bert.inputs import byte_bpe, rules, vocabulary
from bert.inputs.vocabulary import load_vocab
from bert.storage import files, manifest, outputs
from bert.storage.manifest import Manifest
from bert.training import checkpoint, division
from bert.training.distributed import Communicator
from bert.training.division import State

NOTHING: Mapping[str, Any] = MappingProxyType({})
VERSION = 2  # of the run directory's layout, in config.json; run directories without a version are of version 1

# Settings that may change when a run is resumed: the weights do not depend on them.
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
    "run.patience",
    "run.target_accuracy",
    "run.max_skipped",
    "run.peak_teraflops",
    "run.profile",
    "run.stall_seconds",
    "run.spike_factor",
    "run.on_spike",
    "batch.per_device",
    "batch.max_per_device",
    "batch.fit",
    "data.skip_bad",
    "length.evaluations",
    "model.recompute_activations",
    "parallel.overlap",
    "parallel.bucket_megabytes",
    "parallel.shard_optimizer",
    "parallel.tensor",
}


def place(run: RunConfig, default: Path, steps: int) -> RunConfig:
    """Return `run` with the default directory and number of steps filled in where the command gives none."""
    directory = default if run.directory is None else run.directory
    return dataclasses.replace(run, directory=directory, steps=run.steps or steps)


def sample_rules(run: Path, comm: Communicator) -> int:
    """Return the version of the rules (`bert.inputs.rules`) of a run; one that has no checkpoint takes the newest."""
    version = rules.RULES
    if comm.rank == 0 and checkpoint.steps(run):
        checkpoint.check_description(run)
        version = rules.of(run)
    return int(comm.broadcast_object(version))


def restore(config: TrainConfig, comm: Communicator, state: State, data: Manifest) -> int:
    """Restore the run's newest checkpoint on every rank; return its step, or 0 if there is none.

    Raise UsageError if the run has another configuration, other data, or a layout of another version; IntegrityError if
    a file that describes it has changed.
    """
    step = None
    if comm.rank == 0:
        checkpoint.sweep(config.run.path)
    if comm.rank == 0 and checkpoint.steps(config.run.path):
        checkpoint.check_description(config.run.path)
        _check_same(config, data)
        step = checkpoint.restore(config.run.path, state)
        if step is not None:  # the process may have been killed before it removed old ones
            checkpoint.remove_old(config.run.path, step, config.run.keep, config.run.keep_every)
        print(f"resuming {config.run.path} after step {step}", file=sys.stderr)
    restored: int = comm.broadcast_object(step) or 0
    if restored:
        division.synchronise(state, comm)
    return restored


def begin(
    config: TrainConfig,
    comm: Communicator,
    weights: State,
    data: Manifest,
    vocab: Path,
    start_from: Path | None,
    new_heads: tuple[str, ...],
    facts: Mapping[str, Any] = NOTHING,
) -> None:
    """Set the initial weights on every rank, and describe the run in its directory.

    Heads in `new_heads`, and those that an import lacks, are initialised randomly if `start_from` has none; so is the
    head of a task if its classes have other names, or another order, than those that `facts` names. Raise UsageError if
    `start_from` has another vocabulary, IntegrityError if a file that describes it has changed.

    facts: more entries of `config.json`, such as those of `bert.labels.Head.facts` and the name of the recipe.
    """
    if comm.rank == 0:
        if start_from is not None:
            checkpoint.check_description(start_from)
            _check_vocabulary(vocabulary.path_in(start_from), vocab, config.model.causal)
            taken = _without(weights, _head_of_other_classes(start_from, facts))
            checkpoint.load_weights(start_from, taken, (*new_heads, *_missing_heads(start_from)))
        directory = config.run.path
        fixed = {"version": VERSION, "config": flatten(config), "versions": outputs.versions()}
        fixed |= {"data": manifest.content_hash(data.path), "rules": rules.RULES}
        files.write_json(directory / "config.json", {"recipe": None} | dict(facts) | fixed)
        config.model.save(directory / "bert_config.json")
        with files.atomic_write(directory / vocabulary.name_for(vocab), "wb") as stream:
            stream.write(vocab.read_bytes())
    division.synchronise(weights, comm)


def _missing_heads(run: Path) -> tuple[str, ...]:
    """Return the heads that an import lacks, from its `config.json`; a run that was trained here lacks none."""
    facts = _facts(run)
    try:
        return tuple(map(str, facts.get("imported", {}).get("missing_heads", ())))
    except (TypeError, AttributeError) as error:
        raise IntegrityError(f"{run / 'config.json'}: damaged ({error}); restore it, or import {run} again") from error


def _head_of_other_classes(run: Path, facts: Mapping[str, Any]) -> str | None:
    """Return the head that `facts` names if it is the run's as well, with other classes; report it on stderr."""
    ours, theirs = labels.of(facts, run), labels.of(_facts(run), run / "config.json")
    if ours is None or theirs is None or ours.kind != theirs.kind or ours.kind == "choice":
        return None
    if ours == theirs or (ours.regression and theirs.regression):
        return None
    meant = [f"classes {head.listed()}" if not head.regression else "a number" for head in (theirs, ours)]
    print(f"note: {run}: {ours.kind} has {meant[0]}, not {meant[1]}; initialised randomly", file=sys.stderr)
    return ours.kind


def _without(weights: State, head: str | None) -> State:
    return {name: weight for name, weight in weights.items() if name.split("/")[0] != head}


def _facts(run: Path) -> dict[str, Any]:
    """Return the content of the `config.json` of a run, which is empty if there is none."""
    path = run / "config.json"
    try:
        facts = files.read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise IntegrityError(f"{path}: damaged ({error}); restore it, or import {run} again") from error
    if not isinstance(facts, dict):
        raise IntegrityError(f"{path}: damaged (not an object); restore it, or import {run} again")
    return facts


def _check_vocabulary(theirs: Path, ours: Path, causal: bool) -> None:
    """Raise UsageError if the vocabularies differ; equal sizes would hide that the weights are for other words."""
    if not theirs.exists():
        return
    if theirs.name != vocabulary.name_for(ours):
        raise UsageError(
            f"{theirs} and {ours} are of different kinds; make the data with the vocabulary of the weights"
        )

    def read(path: Path) -> Any:
        if path.suffix != ".json":
            return load_vocab(path)
        return byte_bpe.read_tables(path, byte_bpe.GPT2 if causal else byte_bpe.ROBERTA)

    if read(theirs) != read(ours):
        raise UsageError(f"{theirs} and {ours} differ; make the data with the vocabulary of the weights")


def _check_same(config: TrainConfig, data: Manifest) -> None:
    """Raise UsageError if the run's configuration or data differ in anything that its weights depend on."""
    path = config.run.path / "config.json"
    try:
        facts = files.read_json(path)
        version, before = facts.get("version", 1), defaults(type(config)) | facts["config"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); restore it, or start a new run") from error
    if version != VERSION:
        raise UsageError(
            f"{path.parent}: its layout is of version {version}, and this program resumes version {VERSION} only; give "
            "another --run.directory, with this one as --init.checkpoint"
        )
    if config.batch.bucket_by_length and rules.of(path.parent) == 1:
        raise UsageError(
            f"{path.parent}: begun by an older version, whose batch.bucket_by_length left samples out; begin anew in "
            "another --run.directory"
        )
    hashed = manifest.content_hash(data.path)
    before["the hash of the data"] = facts.get("data", hashed)
    resolved = flatten(config) | {"the hash of the data": hashed}
    differing = sorted(key for key in resolved.keys() | before.keys() if resolved.get(key) != before.get(key))
    if changed := [key for key in differing if key not in FREE]:
        listed = ", ".join(f"{key} was {before.get(key)}, now {resolved.get(key)}" for key in changed)
        known = before.keys() & flatten(config).keys()  # without the hash of the data, and flags of other versions
        old = f"{_flags(before, changed)} to go on with it, or " if known.issuperset(changed) else ""
        raise UsageError(
            f"{path.parent}: holds a run of another configuration ({listed}); give {old}another --run.directory"
        )


def _flags(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return these values of a configuration, in the form of `flatten`, as they are written on the command line."""
    words = {key: str(value).lower() if isinstance(value := values[key], bool | None) else str(value) for key in keys}
    return " ".join(f"--{key} {shlex.quote(word)}" for key, word in words.items())
