"""Whether all replicas of a model have the same weights.

They begin with the same ones and apply the same sums, so that they have the same bits after each update. They differ if
a rank runs other code, or if a device computes wrongly. Nothing else would show it: only rank 0's are saved.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert.core.errors import IntegrityError
from bert.hardware import graphs
from bert.training.distributed import Communicator


def checksum(weights: Sequence[tf.Variable]) -> tf.Tensor:
    """Return the sums of the weights' bits, one for each variable [N]; they do not depend on the order of additions."""
    return tf.stack([tf.reduce_sum(tf.cast(tf.bitcast(weight, tf.int32), tf.int64)) for weight in weights])


def check(weights: Sequence[tf.Variable], update: int, comm: Communicator) -> None:
    """Raise IntegrityError on all replicas if their weights differ after update number `update`.

    weights: float32, of this rank.
    """
    replicas = comm.replicas
    if replicas.size == 1:
        return
    program = graphs.function(checksum, jit_compile=comm.device.is_gpu)  # there XLA reads each weight once
    (sums,) = replicas.all_gather([program(weights)[tf.newaxis]])
    unequal = np.any(sums.numpy() != sums.numpy()[0], axis=1)
    if ranks := [str(rank) for rank in np.flatnonzero(unequal)]:
        who = f"replicas {', '.join(ranks)} have" if len(ranks) > 1 else f"replica {ranks[0]} has"
        raise IntegrityError(
            f"after update {update} {who} other weights than replica 0; no checkpoint was written; check the devices "
            "and the code of the ranks, then resume"
        )
