"""The time of collectives on a cluster, beside the reduction of gradients (`update_time`)."""

from bert.plan.hardware import Cluster

TENSOR_SHARE = 0.53  # of a link's data sheet, in Megatron-LM's table of tensor parallelism
LATENCY = 20e-6  # seconds of a collective that NCCL starts from the stream of the computation
CYCLE = 330e-6  # seconds of a collective that Horovod's thread agrees on: the best of two ranks on CPU cores
PER_LAYER = 2  # all-reduces of a layer in each pass: after attention and after the feed-forward layer
OUTSIDE = 3  # of a micro-batch: the embedding, the scores of the vocabulary, the gradient of the states


def ring(size: float, ranks: int, bandwidth: float, latency: float = 0.0) -> float:
    """Return the seconds of a ring all-reduce of `size` bytes: 2 (n - 1) steps, each of 1/n of the bytes."""
    return 2 * (ranks - 1) * (size / ranks / bandwidth + latency) if ranks > 1 else 0.0


def tensor_parallel(
    parts: int, layers: int, state_bytes: float, cluster: Cluster, recompute: bool, latency: float = CYCLE
) -> float:
    """Return the seconds of tensor parallelism's collectives in one micro-batch.

    state_bytes: of one micro-batch's hidden state, as it travels. recompute: the forward pass runs twice.
    """
    if parts == 1:
        return 0.0
    count = PER_LAYER * layers * (3 if recompute else 2) + OUTSIDE
    bandwidth = TENSOR_SHARE * (cluster.gpu.link if parts <= cluster.per_node else cluster.network)
    return count * (ring(state_bytes, parts, bandwidth) + latency)
