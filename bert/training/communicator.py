"""What ranks do together: sum, gather, broadcast; a single process; what all kinds of several ranks have in common."""

import contextlib
import http.client
import os
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert.core.errors import UsageError, UserError
from bert.hardware import devices
from bert.model.model_shard import UNSHARDED, Parts

GRACE = 5.0  # seconds that waiting ranks have to report that they wait


class Communicator:
    """The communicator of a single process, and the interface of all communicators.

    The ranks that hold the parts of one model are a `group`. The ranks that hold the same part of different replicas of
    the model are `replicas`. Both are communicators too. Without tensor parallelism a group is one rank.
    """

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    device = devices.Device()
    parts: Parts = UNSHARDED

    @property
    def replicas(self) -> "Communicator":
        """Return the communicator of the ranks that hold the same part of the model as this rank."""
        return self

    @property
    def group(self) -> "Communicator":
        """Return the communicator of the ranks that hold the parts of this rank's replica of the model."""
        return Communicator()

    library = ""
    """what the ranks communicate by; empty in a single process"""

    def start(self) -> None:
        """Join the other ranks. Call this after the device is chosen and before any tensor is made."""

    def reducer(self) -> str | None:
        """Return the library that sums over the ranks: NCCL, MPI, Gloo or gRPC; None in a single process."""
        return None

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective; send the first `num_fp16` of them as float16."""
        return list(tensors)

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective, which starts when all of them are computed.

        Call this in a graph that XLA does not compile, and run that graph within `collective`. name: unique among the
        collectives that run at the same time. scatter: return this rank's rows only (`model_shard.share`).
        """
        return list(tensors)

    def reduce_scatter(self, tensors: Sequence[tf.Tensor], *, fp16: bool = False) -> list[tf.Tensor]:
        """Sum each tensor over the ranks; return this rank's rows only (`model_shard.share`)."""
        return list(tensors)

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return each tensor with the rows of all ranks, in the order of the ranks."""
        return [tf.identity(tensor) for tensor in tensors]

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        """Return rank 0's value. All ranks pass a value of the same shape."""
        return value

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Record the time of the block's start; raise UserError if a collective in the block fails.

        Raise UsageError if no sum has succeeded before and no other rank has ended, because the next attempt would fail
        too. (The gathering of `gpus_of_their_own` comes earlier and may not use NCCL, so it does not count.)
        """
        yield

    def sums_over_parts(self) -> contextlib.AbstractContextManager[None]:
        """Return the context for a forward or backward pass, which sums over the parts of a divided model."""
        return self.collective() if self.parts.count > 1 else contextlib.nullcontext()

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        """Assign rank 0's values to the variables of every rank."""

    def broadcast_object(self, value: Any) -> Any:
        """Return rank 0's value on every rank; it must be picklable."""
        return value

    def start_timeline(self, path: Path) -> None:
        """Start to record the collectives of all ranks in a file. A single process records nothing."""

    def stop_timeline(self) -> None:
        """Stop to record collectives."""

    def stalled_peers(self, seconds: float) -> str | None:
        """Return a description of the ranks that this rank has waited for at least this many seconds; None if none."""
        return None


class SeveralRanks(Communicator):
    """Several ranks: all of them, or some."""

    def __init__(self, world: "SeveralRanks | None" = None) -> None:
        """world: the communicator of all ranks; None: this one."""
        self._world = world or self
        self._waiting_since: float | None = None
        self._has_added = False  # a sum has worked: what adds up is set up
        self._replicas: Communicator = self
        self._group = Communicator()

    @property
    def replicas(self) -> Communicator:
        return self._replicas

    @property
    def group(self) -> Communicator:
        return self._group

    def failed(self, error: tf.errors.OpError) -> bool:
        """Return whether this error, raised in a block with collectives, comes from a collective."""
        raise NotImplementedError

    def lost_peer(self, error: tf.errors.OpError) -> bool:
        """Return whether this error of a collective says that another rank has ended."""
        raise NotImplementedError

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        self._world._waiting_since = time.monotonic()
        try:
            yield
        except tf.errors.OpError as error:
            if not self.failed(error):
                raise
            raise self._world._failure(error) from error
        finally:
            self._world._waiting_since = None

    def _failure(self, error: tf.errors.OpError) -> UserError:
        """Return the UserError to raise when a collective failed with this error."""
        message = error.message
        if self.lost_peer(error):
            return UserError(f"rank {self.rank}: another rank has ended (see its message); the same command resumes")
        reason = message.split("\n\n")[-1].splitlines()[0]  # behind where the operation was made
        reason = reason.split("}} ")[-1].split(" [Op:")[0]
        failed = f"rank {self.rank}: a sum over the ranks failed: {reason}"
        if self._has_added:
            return UserError(f"{failed}; the same command resumes")
        return UsageError(f"{failed}; see the messages of {self.reducer()}; NCCL_DEBUG=INFO shows more of NCCL's")

    def stalled_peers(self, seconds: float) -> str | None:
        since = self._waiting_since
        return None if since is None or time.monotonic() - since < seconds else self._stalled()

    def _stalled(self) -> str:
        """Return which ranks are not waiting, according to the launcher's rendezvous server.

        Every waiting rank reports there that it waits. Ranks from 2 on only report and return "another rank": more
        readers would overload the server.
        """
        try:
            address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
            server = http.client.HTTPConnection(*address, timeout=GRACE)
            _request(server, "PUT", self.rank)
            time.sleep(GRACE if self.rank < 2 else 2 * GRACE)
            if self.rank > 1:
                return "another rank"
            stalled = [str(rank) for rank in range(self.size) if _request(server, "GET", rank) == HTTPStatus.NOT_FOUND]
        except (KeyError, OSError, http.client.HTTPException):
            stalled = []  # other launchers have no such server
        return f"rank {', '.join(stalled)}" if stalled else "another rank"


def _request(server: http.client.HTTPConnection, method: str, rank: int) -> int:
    server.request(method, f"/waited/{rank}", body=b"yes" if method == "PUT" else None)
    response = server.getresponse()
    response.read()
    return response.status


def grid(size: int, tensor: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ranks that hold each part of the model, and the ranks of each group."""
    replicas = [list(range(part, size, tensor)) for part in range(tensor)]
    groups = [list(range(first, first + tensor)) for first in range(0, size, tensor)]
    return replicas, groups
