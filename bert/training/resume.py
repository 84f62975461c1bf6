"""Start and resume a run: its directory, its `config.json`, and the initial weights of every rank."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert import heads, labels
from bert.core import files, manifest, outputs
from bert.core.aliases import DISENTANGLED, REMOVED
from bert.core.config import OptimizerConfig, RunConfig, TrainConfig, as_flags, defaults, flatten, may_change
from bert.core.errors import InputError, IntegrityError, UsageError
from bert.core.manifest import Manifest
from bert.model import added
from bert.text import rules, tokenizer_kind, vocabulary
from bert.text.vocabulary import rules_of
from bert.training import checkpoint, division, length, preflight, schedule
from bert.training.communicator import Communicator
from bert.training.division import State

OFFSET = "run/sample_offset"  # in the state: updates whose samples rollbacks left out
DATA = "the hash of the data"  # among the recorded settings, for messages
VERSION = 2  # of the run directory's layout, in config.json; run directories without a version are of version 1


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
        settings = _check_same(config, data)
        step = checkpoint.restore(config.run.path, state)
        if step is not None:  # the process may have been killed before it removed old ones
            checkpoint.remove_old(config.run.path, step, config.run.keep, config.run.keep_every)
        print(f"resuming {config.run.path} after step {step}", file=sys.stderr)
        if step is not None:
            _record_extension(config, settings, step, int(state[OFFSET]) if OFFSET in state else 0)
    restored: int = comm.broadcast_object(step) or 0
    if restored:
        division.synchronise(state, comm)
    return restored


MAY_BRANCH = {"run.steps", "init.checkpoint", "init.step"}  # settings of a run that goes on after update `init.step`
MAY_BRANCH |= {f"optimizer.{name}" for name in ("schedule", "decay_start", "decay_steps", "decay_power")}
MAY_BRANCH |= {"optimizer.minimum_rate", "optimizer.continuous"}


def branch(config: TrainConfig, comm: Communicator, state: State, data: Manifest, vocab: Path) -> int:
    """Restore update `config.init.step` of the run `config.init.source` on every rank, for a new run; return that step.

    The new run becomes what the source run would have become with the new settings. Raise UsageError if the new run
    would have made other updates up to that step: because of another configuration, other data, or other learning
    rates. Raise InputError if the source has no such checkpoint.
    """
    source, step = config.init.source, config.init.step
    if comm.rank == 0:
        assert source is not None, "the configuration checks it"
        checkpoint.check_description(source)
        before = _recorded(source, config, data)
        _check_settings(before, config, data, MAY_BRANCH, source, "go on from it")
        _check_rates(before, config, source)
        check_vocabulary(vocabulary.path_in(source), vocab, config.model.causal)
        checkpoint.restore_step(source, step, state)
        print(f"going on from {source} after step {step}", file=sys.stderr)
    division.synchronise(state, comm)
    return step


def _check_rates(before: Mapping[str, Any], config: TrainConfig, source: Path) -> None:
    """Raise UsageError if the source's updates up to `init.step` had other learning rates than in this run."""
    names = {each.name for each in dataclasses.fields(OptimizerConfig)}
    theirs = OptimizerConfig(**{name: before[f"optimizer.{name}"] for name in names})
    growth = length.changes(source)
    for done in range(config.init.step):
        planned = next((change.steps for change in reversed(growth) if change.after <= done), before["run.steps"])
        was = schedule.learning_rate(done, theirs, planned)
        now = schedule.learning_rate(done, config.optimizer, config.run.steps)
        if was != now:
            raise UsageError(
                f"{source}: update {done + 1} had learning rate {was:.4g}, which would be {now:.4g} here; a run that "
                f"goes on after update {config.init.step} may change it only later (--optimizer.schedule stable "
                f"--optimizer.decay_start {config.optimizer.first_step + config.init.step})"
            )


def is_longer_than(run: RunConfig, steps: Any) -> bool:
    """Return whether a run has more updates than the recorded number."""
    return isinstance(steps, int) and run.steps > steps


def will_be_extended(run: RunConfig) -> bool:
    """Return whether `run` gives more updates than the run that has begun in its directory."""
    saved = checkpoint.steps(run.path)
    if not saved:
        return False
    settings = _settings(run.path).get("config")
    if not isinstance(settings, dict):
        return False
    return is_longer_than(run, length.steps(run.path, settings, checkpoint.step_of(saved[-1])))


def _record_extension(config: TrainConfig, settings: Mapping[str, Any], step: int, offset: int) -> None:
    """Record and report that the run is longer than before, if it is. settings: `config` of its config.json.

    offset: number of updates whose samples were skipped so far.
    """
    before, now = length.steps(config.run.path, settings, step), config.run.steps
    if before != now:
        print(f"note: {length.describe(config, step, before)}", file=sys.stderr)
    length.record(config.run.path, step, before, now, before + offset)


def begin(
    config: TrainConfig,
    comm: Communicator,
    weights: State,
    data: Manifest,
    vocab: Path,
    start_from: Path | None,
    new_heads: tuple[str, ...],
    entries: Mapping[str, Any],
) -> None:
    """Set the initial weights on every rank, and write the files that describe the run to its directory.

    A head in `new_heads`, or one that an import lacks, is initialised randomly if `start_from` has no such head. So is
    the head of a task if `entries` names other classes than the head of `start_from`, or another order. Raise
    UsageError if `start_from` has another vocabulary, IntegrityError if a file that describes it has changed.

    entries: more entries of `config.json`, such as `bert.labels.Head.entries` and the name of the recipe.
    """
    if comm.rank == 0:
        if start_from is not None:
            checkpoint.check_description(start_from)
            check_vocabulary(vocabulary.path_in(start_from), vocab, config.model.causal)
            weights_loaded = _without(weights, _head_of_other_classes(start_from, entries))
            weights_loaded = {
                name: weight
                for name, weight in weights_loaded.items()
                if not added.tunes(name) and not name.startswith(f"{checkpoint.DISTILLATION}/")
            }
            checkpoint.load_weights(
                start_from, weights_loaded, (*new_heads, *_missing_heads(start_from)), config.init.layers
            )
        directory = config.run.path
        fixed = {"version": VERSION, "config": flatten(config), "versions": outputs.versions()}
        fixed |= {"data": manifest.content_hash(data.path), "rules": rules.RULES, "code": preflight.code()}
        files.write_json(directory / "config.json", {"recipe": None} | dict(entries) | fixed)
        config.model.save(directory / "bert_config.json")
        vocabulary.copy(vocab, directory)
    division.synchronise(weights, comm)


def _missing_heads(run: Path) -> tuple[str, ...]:
    """Return the heads that an imported model lacks, from its `config.json`; none for a run that was trained here."""
    settings = _settings(run)
    try:
        return tuple(map(str, settings.get("imported", {}).get("missing_heads", ())))
    except (TypeError, AttributeError) as error:
        raise IntegrityError(f"{run / 'config.json'}: damaged ({error}); restore it, or import {run} again") from error


def _head_of_other_classes(run: Path, entries: Mapping[str, Any]) -> str | None:
    """Return the head that `entries` names if the run has the same head with other classes; report it on stderr."""
    ours, theirs = labels.of(entries, run), labels.of(_settings(run), run / "config.json")
    if ours is None or theirs is None or ours.kind != theirs.kind or not heads.KINDS[ours.kind].has_classes:
        return None
    numbers = ours.regression and theirs.regression and ours.activation == theirs.activation
    if ours == theirs or numbers:
        return None
    of_logit = {
        head: f"the {head.activation} of a number" if head.activation else "a number" for head in (theirs, ours)
    }
    meant = [f"classes {head.listed()}" if not head.regression else of_logit[head] for head in (theirs, ours)]
    print(f"note: {run}: {ours.kind} has {meant[0]}, not {meant[1]}; initialised randomly", file=sys.stderr)
    return ours.kind


def _without(weights: State, head: str | None) -> State:
    return {name: weight for name, weight in weights.items() if name.split("/")[0] != head}


def _settings(run: Path) -> dict[str, Any]:
    """Return the content of a run's `config.json`. Raise IntegrityError if it is damaged."""
    try:
        return labels.settings(run)
    except InputError as error:
        raise IntegrityError(str(error)) from error


def check_vocabulary(theirs: Path, ours: Path, causal: bool) -> None:
    """Raise UsageError if the vocabularies differ. With equal sizes, nothing else would show that the words differ."""
    if not theirs.exists():
        return
    if theirs.name != vocabulary.name_for(ours):
        raise UsageError(
            f"{theirs} and {ours} are of different kinds; make the data with the vocabulary of the weights"
        )

    def read(path: Path) -> Any:
        return tokenizer_kind.content(path, causal)

    if (tokens := read(theirs)) != read(ours):
        raise UsageError(f"{theirs} and {ours} differ; make the data with the vocabulary of the weights")
    if ours.suffix != ".json" and not rules_of(theirs, tokens).agrees(rules_of(ours, tokens)):
        print(
            f"note: {theirs} and {ours} have other rules by which texts become words; this run keeps those of the data",
            file=sys.stderr,
        )


def _check_same(config: TrainConfig, data: Manifest) -> dict[str, Any]:
    """Return the configuration that the run recorded, with the number of updates that it began with.

    Raise UsageError if the configuration or the data differ in something that the weights depend on. The run may have
    become longer.
    """
    path = config.run.path / "config.json"
    recorded = _recorded(path.parent, config, data)
    steps = length.steps(path.parent, recorded, checkpoint.newest(path.parent))
    before = recorded | {"run.steps": steps}
    may_differ = {"run.steps"} if is_longer_than(config.run, before["run.steps"]) else set[str]()
    _check_settings(before, config, data, may_differ, path.parent, "go on with it")
    _tell_other_code(path.parent, files.read_json(path))
    return recorded


def _recorded(run: Path, config: TrainConfig, data: Manifest) -> dict[str, Any]:
    """Return the configuration that a run recorded, in the form of `flatten`, and the hash of its data.

    Raise IntegrityError if it is damaged. Raise UsageError if it is of another version, or if its samples were made by
    other rules.
    """
    path = run / "config.json"
    try:
        recorded = files.read_json(path)
        version, before = recorded.get("version", 1), defaults(type(config)) | recorded["config"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path}: damaged ({error}); restore it, or start a new run") from error
    if version != VERSION:
        raise UsageError(
            f"{run}: its layout is of version {version}, and this program resumes version {VERSION} only; give "
            "another --run.directory, with this one as --init.checkpoint"
        )
    rules.check(run)
    for key, value in REMOVED.items():
        if (was := before.pop(key, value)) != value:
            raise UsageError(f"{path}: {key} {was} {DISENTANGLED}")
    return before | {DATA: recorded.get("data", manifest.content_hash(data.path))}


def _check_settings(
    before: Mapping[str, Any], config: TrainConfig, data: Manifest, may: set[str], run: Path, remedy: str
) -> None:
    """Raise UsageError if the configuration differs from a run's, `before`, in a field that may not differ.

    may: fields that may differ beside the result of `may_change`. remedy: what the run's own flags would make possible,
    for the message.
    """
    resolved = flatten(config) | {DATA: manifest.content_hash(data.path)}
    differing = sorted(key for key in resolved.keys() | before.keys() if resolved.get(key) != before.get(key))
    if changed := [key for key in differing if key not in may_change(config) | may]:
        listed = ", ".join(f"{key} was {before.get(key)}, now {resolved.get(key)}" for key in changed)
        flags_known = before.keys() & flatten(config).keys()  # no hash of the data, no flags of other versions
        flags = " ".join(as_flags({key: before[key] for key in changed})) if flags_known.issuperset(changed) else ""
        old = f"{flags} to {remedy}, or " if flags else ""
        raise UsageError(f"{run}: holds a run of another configuration ({listed}); give {old}another --run.directory")


def _tell_other_code(run: Path, recorded: Mapping[str, Any]) -> None:
    """Report that other code or other versions began the run. It resumes, but its bits may differ."""
    versions = recorded.get("versions")
    then = dict(versions) if isinstance(versions, dict) else {}
    then |= {"code": recorded["code"]} if "code" in recorded else {}
    now = {**outputs.versions(), "code": preflight.code()}
    both = sorted(then.keys() & now.keys())
    if changed := [f"{key} was {then[key]}, is {now[key]}" for key in both if then[key] != now[key]]:
        print(
            f"note: {run} was begun by another program ({', '.join(changed)}): its updates may have other bits from "
            "here on",
            file=sys.stderr,
        )
