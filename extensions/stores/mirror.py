"""Run directories in an object store.

A run trains in the local copy of its URL (`bert.core.object_urls`). While it does, a thread of rank 0 sends what is
new: first the files of a checkpoint, then those beside the checkpoints, then the manifest of the checkpoint, last of
all what is to be removed. So the newest checkpoint with a manifest in the store is whole and has the files that it
needs, whenever the process is killed. `fetch` takes that checkpoint to a machine that does not have it.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from bert.core import files, manifest
from bert.core.config import RunConfig
from bert.core.errors import InputError, IntegrityError, Stopped, UsageError, UserError
from bert.training import checkpoint, selection
from bert.training.communicator import Communicator
from bert.training.distributed import on_rank_zero
from extensions.stores import object_store
from extensions.stores.object_store import Place, url_of_copy

EVERY = 2.0  # seconds between looks for a new checkpoint
LOGS_EVERY = 60.0  # seconds between sends of logs that have grown
# A store cannot append. So a log of more bytes is sent between checkpoints only when it has grown by this share; all
# these sends together have at most 9 times the bytes of the log.
SMALL, GROWTH = 256 << 10, 1 / 8
PATIENCE = 60.0  # seconds that a run which fails waits for what is being sent
DESCRIBES = "config.json"  # the same during the whole life of a run


def fetch(run: Path) -> None:
    """Copy a run from its URL to `run`, if the local copy is older: its files, and the checkpoints to use.

    These are the one that `best.json` names and the newest whole one. Newer local checkpoints stay. Raise UsageError if
    the local copy is of another run, InputError if neither it nor the store has a checkpoint, and as
    `object_store.fetch` does.
    """
    if not take_up(run) and not checkpoint.steps(run):
        raise InputError(f"{url_of_copy(run)}: no run directory with a checkpoint; check the URL")


def take_up(run: Path) -> bool:
    """Do as `fetch`; return whether the store has a checkpoint of the run."""
    place = Place(url_of_copy(run))
    beside, folders = place.children()
    whole = _whole(place) if checkpoint.FOLDER in folders else {}
    if not whole:
        return False
    run.mkdir(parents=True, exist_ok=True)
    with files.room(run), files.hold(run / ".fetch"):
        _check_same_run(place, run)
        best, newest = _best(place), max(whole)
        wanted = [step for step in dict.fromkeys((best, newest)) if step in whole]
        if all(checkpoint.exists(run, step) for step in wanted) or checkpoint.newest(run) > newest:
            return True
        for name in beside:
            if not name.startswith(".") and (content := place.read(name)) is not None:
                with files.atomic_write(run / name, "wb") as stream:
                    stream.write(content)
        while whole:
            try:
                for step in wanted:
                    _fetch_checkpoint(place, run, step, whole[step])
                return True
            except IntegrityError as error:
                print(f"warning: {error}; trying another checkpoint", file=sys.stderr)
                whole.pop(step)
                wanted = [max(whole, default=0)] if whole else []
    raise IntegrityError(f"{place.url}: all checkpoints are damaged; start a new run")


def _check_same_run(place: Place, run: Path) -> None:
    """Raise UsageError if the local copy is of another run than that in the store: neither may be lost."""
    if checkpoint.steps(run) and (run / DESCRIBES).exists() and place.read(DESCRIBES) != (run / DESCRIBES).read_bytes():
        raise UsageError(
            f"{run}: the local copy of {place.url} is of another run; move one of them away, or give another URL"
        )


def _whole(place: Place) -> dict[int, bytes]:
    """Return the manifests of the checkpoints in a store that have one, by their steps."""
    _, folders = place.children(checkpoint.FOLDER)
    steps = {name for name in folders if name.startswith("step-") and name.removeprefix("step-").isdecimal()}
    read = {name: place.read(f"{checkpoint.FOLDER}/{name}/{manifest.NAME}") for name in steps}
    return {checkpoint.step_of(Path(name)): content for name, content in read.items() if content is not None}


def _best(place: Place) -> int | None:
    content = place.read(selection.BEST)
    try:
        return int(files.parse_json(content)["step"]) if content is not None else None
    except (ValueError, KeyError, TypeError):
        return None  # `selection.read` names it


def _fetch_checkpoint(place: Place, run: Path, step: int, described: bytes) -> None:
    folder = run / checkpoint.FOLDER / checkpoint.name_of(step)
    if folder.exists() and (folder / manifest.NAME).read_bytes() == described:
        return
    below = Place(f"{place.url}/{checkpoint.FOLDER}/{folder.name}")
    object_store.fetch_finished(below, folder, described)


class _Beside:
    """The files beside the checkpoints of a run, and which of them a store has."""

    def __init__(self, run: Path, place: Place) -> None:
        self.run, self.place = run, place
        self._sent: dict[Path, tuple[int, int]] = {}  # size and time

    def send(self, grown: float = 0.0) -> None:
        """Send those that have changed; one of more than `SMALL` bytes only if it has grown by this share."""
        found = [path for path in [*self.run.glob("*"), *self.run.glob("events/*")] if not path.name.startswith(".")]
        for path in sorted(path for path in found if path.is_file() and not path.is_symlink()):
            status = path.stat()
            state = status.st_size, status.st_mtime_ns
            before = self._sent.get(path, (0, 0))
            if before != state and not max(SMALL, before[0]) < status.st_size < before[0] * (1 + grown):
                content = path.read_bytes()
                self.place.put(str(path.relative_to(self.run)), content, len(content))
                self._sent[path] = state


class Mirror:
    """Sends a run directory to its URL while the run trains. There is one on rank 0, or none for a local directory."""

    def __init__(self, run: RunConfig, url: str) -> None:
        self.run, self.place = run, Place(url)
        self._beside = _Beside(run.path, self.place)
        self._whole: dict[int, bytes] | None = None  # checkpoints in the store; None: not known yet
        self._over, self._warned = threading.Event(), False
        self._thread = threading.Thread(target=self._watch, name="mirror", daemon=True)

    def start(self) -> None:
        """Send what is new from now on, until `stop`."""
        self._thread.start()

    def stop(self, patience: float | None = None) -> None:
        """Send nothing more. Wait for what is being sent, at most `patience` seconds; None: without limit."""
        self._over.set()
        self._thread.join(patience)

    def finish(self) -> str:
        """Send all that is new, and stop. Return where it is. Raise what `Place` raises."""
        self.stop()
        self.send()
        return self.place.url

    def _watch(self) -> None:
        waited = 0.0
        while not self._over.wait(EVERY):
            waited += EVERY
            new = checkpoint.newest(self.run.path) not in (self._whole or {0: b""})
            if new or waited >= LOGS_EVERY:
                waited = 0.0
                self._try(0.0 if new else GROWTH)

    def _try(self, grown: float = 0.0) -> None:
        try:
            self.send(grown)
            self._warned = False
        except (UserError, OSError) as error:  # at the end it is raised
            if not self._warned:
                print(f"warning: {self.run.path}: not sent yet, the run goes on: {error}", file=sys.stderr)
            self._warned = True

    def send(self, grown: float = 0.0) -> None:
        """Make the URL what the run directory is; older checkpoints stay there until a newer one is whole.

        grown: as `_Beside.send` has it, but with a checkpoint all is sent.
        """
        run, place = self.run.path, self.place
        if self._whole is None:
            self._whole = _whole(place)
            self._remove_unfinished()
        for folder in reversed(checkpoint.steps(run)):
            step = checkpoint.step_of(folder)
            with contextlib.ExitStack() as opened:
                try:
                    described = (folder / manifest.NAME).read_bytes()
                    names = manifest.read(folder).files
                    # An open file can be read to its end, also when the run has removed it meanwhile.
                    streams = {name: opened.enter_context(open(folder / name, "rb")) for name in names}
                except (FileNotFoundError, IntegrityError):
                    continue  # the run has just removed it, or it is damaged
                if self._whole.get(step) != described:
                    self._send_checkpoint(f"{checkpoint.FOLDER}/{folder.name}", step, described, streams)
        self._beside.send(grown)
        self._remove_old()

    def _send_checkpoint(self, name: str, step: int, described: bytes, streams: Mapping[str, IO[bytes]]) -> None:
        assert self._whole is not None, "`send` has looked"
        if step in self._whole:  # the run returned to an earlier checkpoint, and has made this one again
            self.place.delete([f"{name}/{manifest.NAME}"])
            del self._whole[step]
        for file, stream in streams.items():
            self.place.put(f"{name}/{file}", stream, os.fstat(stream.fileno()).st_size)
        self._beside.send()
        self.place.put(f"{name}/{manifest.NAME}", described, len(described))
        self._whole[step] = described

    def _remove_unfinished(self) -> None:
        """Remove what a killed process had sent of checkpoints that are not here any more."""
        assert self._whole is not None, "`send` has looked"
        _, folders = self.place.children(checkpoint.FOLDER)
        here = {folder.name for folder in checkpoint.steps(self.run.path)}
        for name in {*folders} - here - {checkpoint.name_of(step) for step in self._whole}:
            beside, _ = self.place.children(f"{checkpoint.FOLDER}/{name}")
            self.place.delete(list(beside))

    def _remove_old(self) -> None:
        """Remove the checkpoints from the store that the run would not keep; the manifest of each is first."""
        assert self._whole is not None, "`send` has looked"
        run = self.run
        best = selection.read(run.path)
        newest = checkpoint.newest(run.path)
        for step in checkpoint.superseded(self._whole, newest, run.keep, run.keep_every, best.step if best else None):
            name = f"{checkpoint.FOLDER}/{checkpoint.name_of(step)}"
            self.place.delete([f"{name}/{manifest.NAME}"])
            del self._whole[step]
            beside, _ = self.place.children(name)
            self.place.delete(list(beside))


@contextlib.contextmanager
def mirrored(run: RunConfig, comm: Communicator) -> Iterator[None]:
    """Send a run to its URL while the block runs; all ranks wait until it is there at the end.

    Raise what `Place` raises at the end; before, a failure is a warning, and is tried again.
    """
    mirror, stopped = Mirror(run, url_of_copy(run.path)), None
    if comm.rank == 0:
        mirror.start()
    try:
        yield
    except Stopped as asked:
        stopped = asked
    except BaseException:
        if comm.rank == 0:
            mirror.stop(PATIENCE)
        raise
    on_rank_zero(mirror.finish, comm)  # launchers end all ranks soon after the first ends
    if stopped is not None:
        raise stopped


def send(run: Path) -> None:
    """Send the files beside the checkpoints of a run that is not trained now."""
    _Beside(run, Place(url_of_copy(run))).send()
