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
    """A single process; also the interface of every communicator.

    The ranks that hold the parts of one model are a group; the ranks that hold the same part of different replicas of
    it are `replicas`. Both are communicators too. Without tensor parallelism a group is one rank.
    """

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    device = devices.Device()
    parts: Parts = UNSHARDED

    @property
    def replicas(self) -> "Communicator":
        """Return the communicator of the ranks that have this rank's part of the model."""
        return self

    @property
    def group(self) -> "Communicator":
        """Return the communicator of the ranks that have the parts of this rank's replica of the model."""
        return Communicator()

    library = ""
    """what the ranks communicate by; empty in a single process"""

    def start(self) -> None:
        """Join the other ranks, when the device is chosen and before any tensor is made."""

    def reducer(self) -> str | None:
        """Return what sums over the ranks: NCCL, MPI, Gloo or gRPC; None in a single process."""
        return None

    def all_reduce(self, tensors: Sequence[tf.Tensor], num_fp16: int = 0) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective; send the first `num_fp16` of them as float16."""
        return list(tensors)

    def reduce_in_graph(
        self, tensors: Sequence[tf.Tensor], name: str, *, fp16: bool = False, scatter: bool = False
    ) -> list[tf.Tensor]:
        """Sum each tensor over the ranks in one fused collective, which starts when the last of them is computed.

        Call it in a graph that XLA does not compile, and run that graph within `collective`. name: unique among the
        collectives that may be under way at one time. scatter: return the rows of this rank only (`parts.share`).
        """
        return list(tensors)

    def reduce_scatter(self, tensors: Sequence[tf.Tensor], *, fp16: bool = False) -> list[tf.Tensor]:
        """Sum each tensor over the ranks; return the rows of this rank (`parts.share`)."""
        return list(tensors)

    def all_gather(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the rows of all ranks, one after the other, for each tensor."""
        return [tf.identity(tensor) for tensor in tensors]

    def broadcast(self, value: tf.Tensor) -> tf.Tensor:
        """Return rank 0's value, which has the same shape on every rank."""
        return value

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Note the time, and raise UserError if a collective in the block fails.

        Raise UsageError if no sum has worked before and no other rank has ended: it would fail again. (The gathering of
        `gpus_of_their_own` comes first, and may not use NCCL.)
        """
        yield

    def sums_over_parts(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of a forward or backward pass, which has sums over the parts of a divided model."""
        return self.collective() if self.parts.count > 1 else contextlib.nullcontext()

    def broadcast_variables(self, variables: Sequence[tf.Variable]) -> None:
        """Assign rank 0's values on every rank."""

    def broadcast_object(self, value: Any) -> Any:
        """Return rank 0's value, which must be picklable, on every rank."""
        return value

    def start_timeline(self, path: Path) -> None:
        """Start to record the collectives of all ranks in a file; a single process records nothing."""

    def stop_timeline(self) -> None:
        """Stop the record."""

    def stalled_peers(self, seconds: float) -> str | None:
        """Return a description of the ranks that this one has waited for so long, or None if it has not."""
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
        """Return whether this error, in a block with collectives, is that of one of them."""
        raise NotImplementedError

    def lost_peer(self, error: tf.errors.OpError) -> bool:
        """Return whether such an error says that another rank has gone."""
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
        """Return the error of a collective that failed with this one."""
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
        """Return the ranks that do not report that they wait too, at the rendezvous server of the launcher.

        Ranks from 2 on only report, because too many readers would overload the server: they say "another rank".
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
