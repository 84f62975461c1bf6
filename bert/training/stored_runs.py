"""What the ranks of a run do together about object stores (`bert.core.stores`)."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import tensorflow as tf

from bert.core.config import RunConfig
from bert.core.errors import UserError
from bert.core.object_urls import url_of
from bert.core.stores import STORES
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero


def fetch_on_each_host(comm: Communicator, *fetches: Callable[[], None]) -> None:
    """Call the functions on one rank of each host while the others wait. If one fails, all ranks raise an error."""
    problem: Exception | None = None
    if comm.local_rank == 0:
        try:
            for each in fetches:
                each()
        except (UserError, OSError) as error:
            problem = error
    of_the_first = comm.broadcast_object(problem)
    if of_the_first is not None:
        raise of_the_first
    failed = float(comm.all_reduce([tf.constant(float(problem is not None))])[0])
    if problem is not None:
        raise problem
    if failed:
        raise UserError("another host could not fetch its data; see its message")


def take_up(run: Path, comm: Communicator) -> None:
    """Bring a run that goes on from its object store to the machine of rank 0, if it has a URL."""
    if url_of(run) is not None:
        on_rank_zero(lambda: str(STORES["take_up"](run)), comm)


def mirrored(run: RunConfig, comm: Communicator) -> AbstractContextManager[None]:
    """Copy a run to its URL, if it has one, while the block runs. At the end all ranks wait until the copy is complete.

    A failure at the end raises an error, as `bert.core.stores.fetch` does. An earlier failure is a warning, and the
    copy is tried again.
    """
    watch: AbstractContextManager[None] = contextlib.nullcontext()
    if url_of(run.path) is not None:
        watch = STORES["mirrored"](run, comm)
    return watch
