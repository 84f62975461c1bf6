"""Whether all replicas of a model have the same weights.

They begin with the same ones and apply the same sums, so that they have the same bits after each update. They differ if
a rank runs other code, or if a device computes wrongly. Nothing else would show it: only rank 0's are saved.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert.core.errors import IntegrityError
from bert.hardware import graphs
from bert.training.communicator import Communicator


def checksum(weights: Sequence[tf.Variable]) -> tf.Tensor:
    """Return the sum of the bits of each weight [N]. It does not depend on the order of additions."""
    return tf.stack([tf.reduce_sum(tf.cast(tf.bitcast(weight, tf.int32), tf.int64)) for weight in weights])


@functools.cache
def _program(compiled: bool) -> Callable[[Sequence[tf.Variable]], tf.Tensor]:
    """Return `checksum` as a graph, traced once for all saves. XLA compiles it to read each weight once."""
    return graphs.function(checksum, jit_compile=compiled)


def check(weights: Sequence[tf.Variable], update: int, comm: Communicator) -> None:
    """Raise IntegrityError on all replicas if their weights differ after update number `update`.

    weights: of this rank, float32.
    """
    replicas = comm.replicas
    if replicas.size == 1:
        return
    (sums,) = replicas.all_gather([_program(comm.device.is_gpu)(weights)[tf.newaxis]])
    unequal = np.any(sums.numpy() != sums.numpy()[0], axis=1)
    if others := [str(number) for number in np.flatnonzero(unequal)]:
        who = f"replicas {', '.join(others)} have" if len(others) > 1 else f"replica {others[0]} has"
        raise IntegrityError(
            f"after update {update} {who} other weights than replica 0; no checkpoint was written; check the devices "
            "and the code of the ranks, then resume"
        )
