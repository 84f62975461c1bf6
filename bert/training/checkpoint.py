"""Checkpoints: a folder per step, whole or absent, hashed, and checked before it is believed.

`checkpoints/step-00001000/` holds one TensorFlow tensor bundle with every variable under its plain name (read any of
them with `tf.train.load_checkpoint(folder / "variables")`) and a manifest with the step.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import tensorflow as tf

from bert.errors import InputError, IntegrityError, ResourceError, UsageError
from bert.storage import files, manifest

STAGE, BUNDLE = "checkpoint", "variables"
PATTERN = set("*?[\\")  # TensorFlow writes under a name with these, but reads what matches it

Variables = dict[str, tf.Variable]


class Saver:
    """Writes a run's checkpoints beside the training, one at a time, from a copy of the values."""

    def __init__(self, run: Path, keep: int, keep_every: int) -> None:
        """Of the checkpoints only the newest `keep` stay, and those of steps that `keep_every`, if not 0, divides."""
        self.run, self.keep, self.keep_every = run, keep, keep_every
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Path] | None = None

    def save(self, step: int, variables: Variables) -> None:
        """Begins to write the checkpoint of `step`. Raises what writing the one before it has raised."""
        self.wait()
        values = {name: tf.identity(variable) for name, variable in variables.items()}
        self._writing = self._thread.submit(save, self.run, step, values, self.keep, self.keep_every)

    def wait(self) -> None:
        """Returns when all is on the disk. Raises ResourceError if there was no room for it."""
        if self._writing:
            writing, self._writing = self._writing, None
            writing.result()


def save(run: Path, step: int, values: Mapping[str, tf.Tensor], keep: int, keep_every: int = 0) -> Path:
    """Writes the checkpoint of `step`, then removes those that are not to be kept. ResourceError: there is no room."""
    folder = _folder(run, step)

    def make(partial: Path) -> manifest.StageResult:
        write_bundle(partial / BUNDLE, values)
        return manifest.StageResult(counts={"variables": len(values)}, extra={"step": step})

    shutil.rmtree(folder, ignore_errors=True)  # left from before a damaged one was passed over
    manifest.build(folder, stage=STAGE, parameters={"step": step}, inputs=[], make=make)
    older = [old for old in steps(run) if _step_of(old) <= step]  # newer ones were damaged, and passed over
    for old in older[:-keep]:
        if not keep_every or _step_of(old) % keep_every:
            hidden = old.with_name(f".{old.name}.old")  # while it goes it is not whole, and must not have the name
            os.replace(old, hidden)
            shutil.rmtree(hidden)
    return folder


def sweep(run: Path) -> None:
    """Removes what a killed process was writing or removing; nobody else may be at work in the run."""
    for left in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def write_bundle(prefix: Path, values: Mapping[str, tf.Tensor]) -> None:
    """Writes a TensorFlow tensor bundle, files whose names begin with `prefix`. ResourceError: there is no room."""
    names = sorted(values)
    tensors = [tf.convert_to_tensor(values[name]) for name in names]
    try:
        tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors)
    except (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError) as error:  # a full disk, a limit
        need, free = sum(tensor.dtype.size * int(tf.size(tensor)) for tensor in tensors), files.free_bytes(prefix)
        what = f"{need:,} bytes are needed, {free:,} are free"
        raise ResourceError(f"{prefix.parent}: {what}; make room, then repeat") from error


def check_name(run: Path) -> None:
    """Raises UsageError if checkpoints in `run` could not be read again."""
    if odd := PATTERN & set(str(run.absolute())):
        raise UsageError(f"{run}: TensorFlow takes {' '.join(sorted(odd))} for a pattern; give the folder another name")


def steps(run: Path) -> list[Path]:
    """The run's checkpoints, oldest first."""
    found = (run / "checkpoints").glob("step-*")
    return sorted(path for path in found if path.name.removeprefix("step-").isdecimal() and path.is_dir())


def _folder(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def restore(run: Path, variables: Variables) -> int | None:
    """Assigns the newest undamaged checkpoint of the run and returns its step, or None if it has none yet.

    A damaged one is named on stderr and the one before it taken; with all of them damaged, IntegrityError. What is kept
    of a run beside its weights may be missing, where that of an earlier version did not keep it.
    """
    return _newest_good(run, lambda folder: _assign(folder, variables, missing=("guard/", "run/")))


def load_weights(run: Path, variables: Variables, fresh: tuple[str, ...] = ()) -> Path:
    """Starts from another run: assigns its newest checkpoint to `variables`; returns the checkpoint's folder.

    Of the heads in `fresh` those keep their values, and are named on stderr, of which the checkpoint has nothing at
    all. Raises InputError if the run has no checkpoint, lacks a variable, or has one of another shape; UsageError if
    its name cannot be read.
    """
    return _take(run, lambda folder: _start(folder, variables, fresh))


def newest(run: Path) -> Path:
    """Folder of another run's newest undamaged checkpoint. Raises InputError if it has none."""
    return _take(run, lambda folder: None)


def _take(run: Path, take: Callable[[Path], None]) -> Path:
    check_name(run)
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of a finished phase")
    if (step := _newest_good(run, take)) is None:
        raise InputError(f"{run}: no checkpoint in it; give the run directory of a finished phase")
    return _folder(run, step)


def _newest_good(run: Path, take: Callable[[Path], None]) -> int | None:
    found = steps(run)
    for folder in reversed(found):
        try:
            whole = manifest.load(folder)
            manifest.verify(whole)
            if (step := whole.extra.get("step")) != _step_of(folder):
                raise IntegrityError(f"{folder}: holds the checkpoint of step {step}; give it its own name back")
            take(folder)
            return _step_of(folder)
        except (IntegrityError, tf.errors.DataLossError) as error:
            print(f"warning: {error}; trying the checkpoint before it", file=sys.stderr)
        except InputError as error:
            if (folder / manifest.NAME).exists():
                raise
            print(f"warning: {error}; trying the checkpoint before it", file=sys.stderr)
    if found:
        where = run / "checkpoints"
        raise IntegrityError(f"{where}: none of its {len(found)} checkpoints is undamaged; start a new run")
    return None


def _start(folder: Path, variables: Variables, fresh: tuple[str, ...]) -> None:
    needed, there = (
        {name.split("/")[0] for name in names}
        for names in (variables, tf.train.load_checkpoint(str(folder / BUNDLE)).get_variable_to_shape_map())
    )
    absent = [head for head in dict.fromkeys(fresh) if head in needed - there]
    _assign(folder, variables, missing=tuple(f"{head}/" for head in absent))
    if absent:
        print(f"note: {folder}: has no {', '.join(absent)}; what is missing starts fresh", file=sys.stderr)


def _assign(folder: Path, variables: Variables, missing: tuple[str, ...]) -> None:
    reader = tf.train.load_checkpoint(str(folder / BUNDLE))
    shapes = reader.get_variable_to_shape_map()
    for name, variable in variables.items():
        if name not in shapes and name.startswith(missing or ("\0",)):
            continue
        problem = _mismatch(name, variable, shapes)
        if problem:
            raise InputError(f"{folder}: {problem}; the architecture differs from this run's")
        variable.assign(reader.get_tensor(name))


def _mismatch(name: str, variable: tf.Variable, shapes: dict[str, list[int]]) -> str | None:
    if name not in shapes:
        return f"no variable {name}"
    if list(variable.shape) != shapes[name]:
        return f"{name} has shape {shapes[name]}, {list(variable.shape)} is needed"
    return None
