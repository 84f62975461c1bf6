"""What is checked before the first update: a run that cannot end well says so while it has cost nothing."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from bert import files, manifest
from bert.errors import ResourceError, UsageError, UserError
from bert.manifest import Manifest
from bert.world import World

CHECKPOINTS = 2  # that there must be room for: one is written before an older one is removed


def apart(run: Path, data: Path) -> None:
    """Raises UsageError if `run` is, or would be, in the folder `data`."""
    if run.resolve().is_relative_to(data.resolve()):
        raise UsageError(f"{run}: is in the folder of the data, and would go when they are made again; choose another")


def check(settings: dict[str, Any], data: Manifest, state: dict[str, tf.Variable], run: Path, world: World) -> None:
    """Raises UsageError if a rank has other settings, data or versions than rank 0, ResourceError if the disk is too
    small for the checkpoints. All ranks end together, and the collectives have been used once.

    settings: the configuration, flat, less what may differ from rank to rank.
    """
    mine = {**settings, **manifest.versions(), "data": manifest.content_hash(data.path)}
    theirs = world.share(mine)
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    wrong = int(world.sum([tf.constant(float(bool(differing)))])[0])
    if differing:
        facts = ", ".join(f"{key} is {mine.get(key)}, on rank 0 {theirs.get(key)}" for key in differing)
        raise UsageError(f"rank {world.rank}: {facts}; give all ranks the same command, code and data")
    if wrong:
        raise UserError(f"rank {world.rank}: {wrong} of {world.size} ranks differ from rank 0, as their messages say")
    need = CHECKPOINTS * sum(variable.dtype.size * variable.shape.num_elements() for variable in state.values())
    free = world.share(files.free_bytes(run))
    if free < need:
        raise ResourceError(
            f"{run}: {CHECKPOINTS} checkpoints need {need:,} bytes, {free:,} are free; make room or give another "
            "--run.directory"
        )
