"""What is checked before the first update: a run that cannot end well says so while it has cost nothing."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from bert.config import ModelConfig, PrecisionConfig
from bert.errors import ResourceError, UsageError, UserError
from bert.model.attention import attend, scale
from bert.model.encoder import padding
from bert.storage import files, manifest
from bert.storage.manifest import Manifest
from bert.training.distributed import Communicator

CHECKPOINTS = 2  # that there must be room for: one is written before an older one is removed
TOLERANCE = 0.05  # of the largest number, that two ways to compute attention in 16 bits may differ by


def apart(run: Path, data: Path) -> None:
    """Raises UsageError if `run` is, or would be, in the folder `data`."""
    if run.resolve().is_relative_to(data.resolve()):
        raise UsageError(f"{run}: is in the folder of the data, and would go when they are made again; choose another")


def fused_attention(model: ModelConfig, precision: PrecisionConfig, tokens: int) -> None:
    """Raises UsageError if cuDNN's attention is asked for and does not run here, or gives something else than ours.

    tokens: length of the run's sequences, for some of which cuDNN has no kernel.
    """
    if not model.fused_attention:
        return
    if not precision.xla or precision.compute not in ("bfloat16", "float16"):
        raise UsageError("model.fused_attention needs --precision.xla true and --precision.compute bfloat16 or float16")
    heads, width, dtype = model.num_attention_heads, model.hidden_size // model.num_attention_heads, precision.compute
    q, k, v, upstream = (
        tf.cast(tf.random.stateless_normal([2, heads, tokens, width], seed=(3, number)), dtype) for number in range(4)
    )
    mask = padding(tf.sequence_mask([tokens, (tokens + 1) // 2]))

    @tf.function(jit_compile=True)
    def both(fused: bool) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            output = attend(q * scale(width), k, v, mask, rate=0.0, fused=fused)
        return [output, *tape.gradient(output, [q, k, v], upstream)]

    try:
        pairs = list(zip(both(fused=True), both(fused=False), strict=True))
    except tf.errors.OpError as error:
        why = error.message.splitlines()[0].split(" [Op:")[0]
        raise UsageError(f"cuDNN's attention does not run here ({why}); leave out --model.fused_attention") from error
    apart = max(float(tf.reduce_max(tf.abs(x - y)) / tf.reduce_max(tf.abs(y))) for x, y in pairs)
    if not apart <= TOLERANCE:
        raise UsageError(
            f"cuDNN's attention gives other numbers here than ours (apart by {apart:.2g} of the largest); leave out "
            "--model.fused_attention"
        )


def check(
    settings: dict[str, Any], data: Manifest, state: dict[str, tf.Variable], run: Path, comm: Communicator
) -> None:
    """Raises UsageError if a rank has other settings, data or versions than rank 0, ResourceError if the disk is too
    small for the checkpoints. All ranks end together, and the collectives have been used once.

    settings: the configuration, flat, less what may differ from rank to rank.
    """
    mine = {**settings, **manifest.versions(), "data": manifest.content_hash(data.path)}
    theirs = comm.broadcast_object(mine)
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    wrong = int(comm.all_reduce([tf.constant(float(bool(differing)))])[0])
    if differing:
        facts = ", ".join(f"{key} is {mine.get(key)}, on rank 0 {theirs.get(key)}" for key in differing)
        raise UsageError(f"rank {comm.rank}: {facts}; give all ranks the same command, code and data")
    if wrong:
        raise UserError(f"rank {comm.rank}: {wrong} of {comm.size} ranks differ from rank 0, as their messages say")
    need = CHECKPOINTS * sum(variable.dtype.size * variable.shape.num_elements() for variable in state.values())
    free = comm.broadcast_object(files.free_bytes(run))
    if free < need:
        raise ResourceError(
            f"{run}: {CHECKPOINTS} checkpoints need {need:,} bytes, {free:,} are free; make room or give another "
            "--run.directory"
        )
