"""Checkpoints: one folder per step, written completely or not at all, and verified by hash before it is read.

`checkpoints/step-00001000/` holds a TensorFlow tensor bundle with every variable under its plain name (read it with
`tf.train.load_checkpoint(folder / "variables")`) and a manifest with the step and the hashes of the files that describe
the run. Ranks that have pieces of the variables write them to bundles of their own, in
`checkpoints/.step-00001000.parts/`; rank 0 joins these to one, which holds whole variables.
"""

import contextlib
import functools
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from bert import heads
from bert.core import files, manifest, outputs
from bert.core.config import OPTIMIZERS
from bert.core.errors import InputError, IntegrityError, ResourceError, UsageError
from bert.core.manifest import Manifest
from bert.model import added
from bert.model.weights import depth, in_encoder, num_layers
from bert.training import description, selection
from bert.training.division import DividedVariable, State, bundle

STAGE, BUNDLE = "checkpoint", "variables"
FOLDER = "checkpoints"  # of a run directory
HIDDEN = re.compile(r"\.step-\d+\.(partial|parts|old|lock)")  # the last two: of versions up to 0.1.0
EMA, EMA_TOTAL = "ema", "ema_total"  # the moving average of the weights, and what it is to be divided by
DESCRIPTION = "description"  # in a manifest: the hashes of the files that describe the run
DISTILLATION = "distillation"  # variables by which a model is compared with its teacher
OF_OBJECTIVE = "objective"  # heads that one objective of pretraining has, and that nothing else reads
# Of training: first parts of names.
SLOTS = dict.fromkeys(slot for kind in OPTIMIZERS.values() for slot in kind.slots)
STATE = (*SLOTS, "applied", DISTILLATION, OF_OBJECTIVE, EMA, EMA_TOTAL, "guard", "loss_scale", "spikes", "run")
OWN_WORDS = "embeddings/difference"  # what an earlier model added to the embeddings of its generator
MAX_LISTED = 4  # names in a message
GLOB_CHARACTERS = set("*?[\\")  # TensorFlow writes to the path itself, but reads it as a pattern


def save(
    run: Path,
    step: int,
    values: Mapping[str, tf.Tensor],
    keep: int,
    keep_every: int = 0,
    described: description.Hashes | None = None,
    release: Callable[[], None] = lambda: None,
) -> Path:
    """Write the checkpoint of `step`, then remove old ones (see `remove_old`); return its folder.

    described: hashes of the files that describe the run; None: hash them now. release: called when the values are
    written, before the files are flushed and hashed. Raise ResourceError if there is no space for the checkpoint.
    """
    variables = len(values)

    def write(partial: Path) -> None:
        write_bundle(partial / BUNDLE, values)
        release()

    return _publish(run, step, write, variables, keep, keep_every, described)


def write_part(
    run: Path,
    step: int,
    rank: int,
    values: Mapping[str, tf.Tensor],
    places: Mapping[str, str],
    release: Callable[[], None] = lambda: None,
) -> None:
    """Write the variables and pieces of variables that one rank saves. Raise ResourceError if there is no space.

    places: `Piece.place` of each piece, by the variable's name. release: as in `save`.
    """
    folder = _parts(run, step)
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"{rank:05d}"
    write_bundle(prefix, values, places)
    release()
    for path in folder.glob(f"{prefix.name}.*"):
        files.flush(path)


def join(
    run: Path,
    step: int,
    parts: int,
    variables: int,
    keep: int,
    keep_every: int = 0,
    described: description.Hashes | None = None,
) -> Path:
    """Join the parts that ranks wrote to the checkpoint of `step`, then remove old ones; return its folder.

    parts: number of ranks that wrote a part. variables: number of variables in the checkpoint. described: as in `save`.
    Raise ResourceError if this rank does not see all parts.
    """
    folder = _parts(run, step)
    prefixes = sorted(str(path.with_suffix("")) for path in folder.glob("*.index"))
    if len(prefixes) != parts:
        raise ResourceError(
            f"{folder}: {len(prefixes)} of {parts} ranks' parts of the checkpoint are here; give a --run.directory "
            "that all ranks share"
        )

    def write(partial: Path) -> None:
        with _space(partial, need=sum(Path(f"{prefix}.index").stat().st_size for prefix in prefixes)):
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(partial / BUNDLE))

    made = _publish(run, step, write, variables, keep, keep_every, described)
    shutil.rmtree(folder, ignore_errors=True)
    return made


def _publish(
    run: Path,
    step: int,
    write: Callable[[Path], None],
    variables: int,
    keep: int,
    keep_every: int,
    described: description.Hashes | None,
) -> Path:
    """Make the folder of a checkpoint and remove old checkpoints. write: writes the bundle into a folder."""
    folder = _folder(run, step)
    extra = {"step": step, DESCRIPTION: description.hashes(run) if described is None else described}

    def make(partial: Path) -> outputs.StageResult:
        write(partial)
        return outputs.StageResult(counts={"variables": variables}, extra=extra)

    if folder.exists():  # written before the run returned to an earlier checkpoint
        outputs.remove(folder)
    outputs.build(folder, stage=STAGE, parameters={"step": step}, inputs=[], make=make)
    remove_old(run, step, keep, keep_every)
    return folder


def remove_old(run: Path, step: int, keep: int, keep_every: int = 0) -> None:
    """Remove old checkpoints. Keep the newest `keep`, the best one and, if `keep_every` is not 0, its multiples."""
    best = selection.read(run)
    for old in superseded(map(step_of, steps(run)), step, keep, keep_every, best.step if best else None):
        outputs.remove(_folder(run, old))


def superseded(steps: Iterable[int], step: int, keep: int, keep_every: int, best: int | None) -> list[int]:
    """Return the steps, up to `step`, whose checkpoints `remove_old` removes."""
    older = sorted(old for old in steps if old <= step)  # newer ones are damaged
    return [old for old in older[:-keep] if (not keep_every or old % keep_every) and old != best]


def sweep(run: Path) -> None:
    """Remove incomplete checkpoints that killed processes left. No other process may use the run directory."""
    for path in (run / "checkpoints").glob(".step-*"):
        if HIDDEN.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def write_bundle(
    prefix: Path, values: Mapping[str, tf.Tensor], places: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write a TensorFlow tensor bundle: files whose names begin with `prefix`.

    places: `Piece.place` of the values that are pieces of a variable. Raise ResourceError if there is no space.
    """
    names = sorted(values)
    tensors, slices = [tf.convert_to_tensor(values[name]) for name in names], [places.get(name, "") for name in names]
    with _space(prefix.parent, need=sum(tensor.dtype.size * int(tf.size(tensor)) for tensor in tensors)):
        tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)


@contextlib.contextmanager
def _space(folder: Path, need: int) -> Iterator[None]:
    """Raise ResourceError if TensorFlow cannot write `need` bytes to `folder`: no space, or a limit is reached."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError) as error:
        what = f"{need:,} bytes are needed, {files.free_bytes(folder):,} are free"
        raise ResourceError(f"{folder}: {what}; make room, then repeat") from error


def check_name(run: Path) -> None:
    """Raise UsageError if TensorFlow cannot read checkpoints under this path."""
    if files.SURROGATE.search(str(run.absolute())):
        raise UsageError(f"{run}: TensorFlow takes only UTF-8; give the folder another name")
    if special := GLOB_CHARACTERS & set(str(run.absolute())):
        raise UsageError(
            f"{run}: TensorFlow takes {' '.join(sorted(special))} for a pattern; give the folder another name"
        )


def steps(run: Path) -> list[Path]:
    """Return the folders of the run's checkpoints, oldest first."""
    paths = (run / "checkpoints").glob("step-*")
    return sorted(path for path in paths if path.name.removeprefix("step-").isdecimal() and path.is_dir())


def newest(run: Path) -> int:
    """Return the step of the run's newest checkpoint; 0 if it has none."""
    return max(map(step_of, steps(run)), default=0)


def exists(run: Path, step: int) -> bool:
    """Return whether the run has a checkpoint of `step`."""
    return _folder(run, step).is_dir()


def _folder(run: Path, step: int) -> Path:
    return run / FOLDER / name_of(step)


def name_of(step: int) -> str:
    """Return the name of a checkpoint's folder."""
    return f"step-{step:08d}"


def _parts(run: Path, step: int) -> Path:
    """Return the folder into which the ranks write their parts of a checkpoint."""
    return _folder(run, step).with_name(f".step-{step:08d}.parts")


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint's folder."""
    return int(folder.name.removeprefix("step-"))


def check_description(run: Path) -> Manifest | None:
    """Raise IntegrityError, naming the file, if a file that describes the run is not as its checkpoints recorded it.

    Return the manifest of the checkpoint that recorded it; None if no checkpoint can be read. Raise InputError if such
    a file is gone. Call this before reading these files: a changed configuration may ask for more memory than there is.
    Warn on stderr, once, if the newest checkpoint is of a version that did not record them.
    """
    differing: list[IntegrityError] = []
    for folder in reversed(steps(run)):
        try:
            stored = _manifest(folder)
        except (InputError, IntegrityError):
            continue  # is reported when the weights are read
        recorded = stored.extra.get(DESCRIPTION)
        if recorded is None:
            _warn_of_age(folder)
            return stored
        try:
            description.check(run, recorded, folder / manifest.NAME)
            return stored
        except IntegrityError as error:  # unless that manifest itself is damaged
            differing.append(error)
    if differing:
        raise differing[0]
    return None


def check_size(run: Path, stored: Manifest, numbers: int) -> None:
    """Raise IntegrityError if a checkpoint has less than half the bytes of this many weights.

    Building a model takes the memory and time that its description asks for, whatever the checkpoint holds. stored: the
    checkpoint's manifest.
    """
    size = sum(file.bytes for file in stored.files.values())
    if size < tf.float32.size * numbers // 2:
        raise IntegrityError(
            f"{run}: its bert_config.json describes {numbers:,} weights of an encoder, but its checkpoint has only "
            f"{size:,} bytes; restore that file"
        )


def check_entries(run: Path) -> None:
    """Raise UsageError if a file or folder that the run writes to is a link or a special file.

    A resumed run would write and delete outside its folder, or wait forever for the reader of a FIFO.
    """
    kinds = {"metrics.jsonl": stat.S_ISREG, "events": stat.S_ISDIR, "checkpoints": stat.S_ISDIR}
    paths = {run / name: is_kind for name, is_kind in kinds.items()}
    paths |= {folder: stat.S_ISDIR for folder in (run / "checkpoints").glob("*step-*")}
    for path, is_kind in paths.items():
        if os.path.lexists(path) and not is_kind(os.lstat(path).st_mode):
            raise UsageError(f"{path}: is a link or a special file; link the whole run directory instead, or remove it")


@functools.cache
def _warn_of_age(folder: Path) -> None:
    unchecked = ", ".join(description.FILES)
    print(f"warning: {folder}: an earlier version wrote it; {unchecked} of the run are not checked", file=sys.stderr)


def restore(run: Path, variables: State) -> int | None:
    """Assign the newest undamaged checkpoint of the run; return its step, or None if the run has no checkpoint.

    Report damaged checkpoints on stderr. Raise IntegrityError if all are damaged, or if a file that describes the run
    has changed. Raise InputError unless the checkpoint has exactly these variables.
    """
    check_description(run)
    return _newest_undamaged(run, lambda folder: _assign(folder, variables, exactly=True))


def restore_step(run: Path, step: int, variables: State) -> None:
    """Assign the checkpoint of update `step` of a run.

    Raise as `verified` does, and InputError unless the checkpoint has exactly these variables.
    """
    _assign(verified(run, step), variables, exactly=True)


def verified(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint of update `step` of a run.

    Raise InputError if it is not there, IntegrityError if it is damaged.
    """
    folders = {step_of(folder): folder for folder in steps(run)}
    if step not in folders:
        there = ", ".join(map(str, sorted(folders))) or "none"
        raise InputError(
            f"{run}: has no checkpoint of update {step}; there are {there} (--run.keep_every keeps more of them)"
        )
    manifest.verify(_manifest(folders[step]))
    return folders[step]


def load_weights(run: Path, variables: State, new_heads: tuple[str, ...] = (), layers: Sequence[int] = ()) -> Path:
    """Assign to `variables` from the best or newest checkpoint of another run; return the checkpoint's folder.

    The best one is in `best.json`; without that file, the newest one is used. If a checkpoint is damaged, the next
    newest one is used.

    A head in `new_heads` keeps its values if the checkpoint has no variable of it; this is reported on stderr. The
    state of training, and heads that `variables` lacks, may remain in the checkpoint. layers: as in `Stored`. Raise
    InputError if the run has no checkpoint, or if the checkpoint lacks another variable, has one of another shape, or
    has one too many; IntegrityError if all checkpoints are damaged or a file that describes the run has changed;
    UsageError if TensorFlow cannot read the path.
    """
    return _read_to_use(run, lambda folder: _assign_with_new_heads(folder, variables, new_heads, layers))


def to_use(run: Path) -> Path:
    """Return the folder of the checkpoint that `load_weights` reads. Raise InputError if the run has none.

    Raise IntegrityError if all checkpoints are damaged, or if a file that describes the run has changed.
    """
    return _read_to_use(run, lambda folder: None)


def check_trained(run: Path) -> None:
    """Raise InputError if the run has no checkpoint, IntegrityError if a file that describes it has changed.

    Raise UsageError if TensorFlow cannot read the path.
    """
    check_name(run)
    if not run.is_dir():
        raise InputError(f"{run}: no such folder; give the run directory of a finished phase")
    check_description(run)
    if not steps(run):
        raise InputError(f"{run}: has no checkpoint; give the run directory of a finished phase")


def _read_to_use(run: Path, read: Callable[[Path], None]) -> Path:
    check_trained(run)
    best = selection.read(run)
    step = _newest_undamaged(run, read, best.step if best else None)
    assert step is not None, "there is a checkpoint"
    return _folder(run, step)


def _newest_undamaged(run: Path, read: Callable[[Path], None], first: int | None = None) -> int | None:
    """Call `read` with the folder of the newest undamaged checkpoint; return its step, or None without checkpoints.

    first: step of the checkpoint to try before all others. Raise IntegrityError if all are damaged.
    """
    folders = sorted(steps(run), key=lambda folder: (step_of(folder) == first, step_of(folder)))
    for folder in reversed(folders):
        try:
            manifest.verify(_manifest(folder))
            read(folder)
            return step_of(folder)
        except (IntegrityError, tf.errors.DataLossError) as error:
            print(f"warning: {error}; trying another checkpoint", file=sys.stderr)
        except InputError as error:
            if (folder / manifest.NAME).exists():
                raise
            print(f"warning: {error}; trying another checkpoint", file=sys.stderr)
    if folders:
        where = run / "checkpoints"
        raise IntegrityError(f"{where}: all {len(folders)} checkpoints are damaged; start a new run")
    return None


def _manifest(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint. Raise IntegrityError if it is damaged or belongs to another folder."""
    stored, step = manifest.load(folder), step_of(folder)
    if (recorded_step := stored.extra.get("step")) != step:
        raise IntegrityError(f"{folder}: holds the checkpoint of step {recorded_step}; restore its name")
    recorded = stored.extra.get(DESCRIPTION, {})
    is_ours = (
        stored.stage == STAGE and stored.parameters == {"step": step} and stored.extra.keys() <= {"step", DESCRIPTION}
    )
    if not is_ours or not isinstance(recorded, dict) or not recorded.keys() <= set(description.FILES):
        raise IntegrityError(f"{folder / manifest.NAME}: damaged: not the manifest of a checkpoint")
    return stored


Read = Callable[[str], np.ndarray]  # returns the value of a stored name


def as_stored(reader: Any) -> Read:
    """Return a function that reads a value as it is stored. reader: TensorFlow's reader of the checkpoint."""
    read: Read = reader.get_tensor
    return read


def _none(name: str) -> bool:
    return False


class Stored:
    """The variables of a checkpoint as a model needs them: low-rank updates are added to their weights.

    Code that reads a model's weights need not know about these updates (`bert.model.added`).
    """

    def __init__(
        self,
        folder: Path,
        layers: Sequence[int] = (),
        apart: Callable[[str], bool] = _none,
        values: Callable[[Any], Read] = as_stored,
    ) -> None:
        """layers: the layers that a smaller model takes as its layers 0, 1, ...; (): all layers.

        apart: whether to keep a low-rank update's variable of this name, instead of adding the update to its weight.
        values: makes the function that reads a value, such as `as_stored`. Raise InputError for a checkpoint with
        embeddings of a kind that was removed.
        """
        reader = tf.train.load_checkpoint(str(folder / BUNDLE))
        stored: dict[str, list[int]] = reader.get_variable_to_shape_map()
        if OWN_WORDS in stored:
            raise InputError(
                f"{folder}: has {OWN_WORDS}, of --objective.embeddings disentangled, which was removed; use the "
                "version of the program that wrote it, or pretrain again"
            )
        self._value = values(reader)
        self._names = _renumbered(stored, layers)  # names of variables here -> there
        gone = {name for name in self._names if added.tunes(name) and not apart(name)}
        self.shapes = {name: stored[theirs] for name, theirs in self._names.items() if name not in gone}
        self._terms = added.terms(filter(in_encoder, gone))

    def is_as_stored(self, name: str) -> bool:
        """Return whether a variable has the value that the checkpoint stores under this name."""
        return name not in self._terms and self._names[name] == name

    def beside(self) -> dict[str, np.ndarray]:
        """Return, by name, the variables of low-rank updates that are kept apart from their weights."""
        return {name: self.get(name) for name in self.shapes if in_encoder(name) and added.tunes(name)}

    def get(self, name: str) -> np.ndarray:
        """Return the value of a variable."""
        value = self._value(self._names[name])
        for row, made_of in self._terms.get(name, ()):
            value = value + added.term(row, [self._value(self._names[each]) for each in made_of])
        return value


def _renumbered(names: Iterable[str], layers: Sequence[int]) -> dict[str, str]:
    """Return the stored name of each variable, by the name that it has here.

    layers: the layers that become layers 0, 1, ...; (): keep all layers and names.
    """
    if not layers:
        return {name: name for name in names}
    renumbered: dict[str, str] = {}
    for name in names:
        theirs, rest = depth(name) - 1, name.partition("/")[2]
        places = [f"layer_{place}/{rest}" for place, layer in enumerate(layers) if layer == theirs]
        renumbered |= dict.fromkeys(places if 0 <= theirs < float("inf") else [name], name)
    return renumbered


def _assign_with_new_heads(folder: Path, variables: State, new_heads: tuple[str, ...], layers: Sequence[int]) -> None:
    shapes = Stored(folder).shapes
    needed, present = ({name.split("/")[0] for name in names} for names in (variables, shapes))
    absent = [head for head in dict.fromkeys(new_heads) if head in needed - present]
    needed_here = {name: variable for name, variable in variables.items() if name.split("/")[0] not in absent}
    _assign(folder, needed_here, layers=layers)
    if absent:
        print(f"note: {folder}: has no {', '.join(absent)}; initialised randomly", file=sys.stderr)


def assign(folder: Path, variables: State, apart: Callable[[str], bool] = _none) -> None:
    """Assign the variables of a checkpoint that `to_use` returned. Raise as `load_weights` does.

    apart: which variables of low-rank updates may remain in the checkpoint; as in `Stored`.
    """
    _assign(folder, variables, apart=apart)


def _assign(
    folder: Path,
    variables: State,
    exactly: bool = False,
    layers: Sequence[int] = (),
    apart: Callable[[str], bool] = _none,
) -> None:
    """Assign the variables from a checkpoint. Raise InputError if it lacks one or has one too many.

    exactly: the checkpoint must have no other variables; otherwise it may have any that `left_over` does not return.
    apart: as in `assign`. Unless `exactly`, a low-rank update's variable that the checkpoint lacks keeps its value.
    """
    values = Stored(folder, layers, lambda name: exactly or name in variables or apart(name))
    shapes = values.shapes
    if not exactly:
        variables = {name: each for name, each in variables.items() if name in shapes or not added.tunes(name)}
    if ours := num_layers(variables):
        check_depth(folder, ours, shapes)
    for name, variable in variables.items():
        if problem := _mismatch(name, variable, shapes):
            raise InputError(f"{folder}: {problem}; the architecture differs from this run's")
    of_model = (name for name in shapes if not apart(name))
    if extra := sorted(shapes.keys() - variables) if exactly else left_over(variables, of_model):
        listed = ", ".join(extra[:MAX_LISTED]) + (", ..." if len(extra) > MAX_LISTED else "")
        raise InputError(
            f"{folder}: {len(extra)} variables are not this model's ({listed}); give one of the same architecture"
        )
    stored = bundle(folder / BUNDLE)
    for name, variable in variables.items():
        if isinstance(variable, DividedVariable):
            variable.assign_later(functools.partial(values.get, name), stored if values.is_as_stored(name) else None)
        else:
            variable.assign(values.get(name))


def left_over(variables: Iterable[str], stored: Iterable[str]) -> list[str]:
    """Return the names of stored variables that a model with `variables` must not ignore, sorted.

    It may ignore the state of training. It may ignore the encoder, or a head, if it has no variable of it.
    """
    ours = set(variables)
    others = {"encoder", *heads.PRETRAINED, *heads.KINDS, heads.EMBEDDING.name} - {_part(name) for name in ours}
    return sorted(name for name in set(stored) - ours if _part(name) not in {*STATE, *others})


def _part(name: str) -> str:
    """Return which part of the model, or of the state of training, a variable belongs to."""
    return "encoder" if in_encoder(name) else name.split("/")[0]


def check_depth(folder: Path, ours: int, names: Iterable[str]) -> None:
    """Raise InputError unless the checkpoint with variables of these names has `ours` layers."""
    if ours != (theirs := num_layers(names)):
        raise InputError(f"{folder}: has {theirs} layers, but this model has {ours}; give one of the same architecture")


def _mismatch(name: str, variable: tf.Variable, shapes: Mapping[str, list[int]]) -> str | None:
    if name not in shapes:
        return f"no variable {name}"
    if list(variable.shape) != shapes[name]:
        return f"{name} has shape {shapes[name]}, {list(variable.shape)} is needed"
    return None
