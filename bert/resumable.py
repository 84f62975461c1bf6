"""Keep what a model has computed for a long input, so that the same command goes on after a stop or a kill.

While the output `NAME` is made, the results of the model's batches are kept in `.NAME.parts`, a folder beside it: a
file each time that `SECONDS` have passed or `BYTES` have been computed, so a short run has none. The same command takes
these batches from there. It reads and prepares the input again, so that all else is as in a run without interruption.
The folder also says what the results belong to: other input, weights, flags or versions begin anew. It is removed when
the output has its name.
"""

import contextlib
import dataclasses
import importlib.metadata
import itertools
import shutil
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert import __version__
from bert.core import checked_json, files, outputs
from bert.core.errors import InputError, IntegrityError, Stopped, UsageError
from bert.core.stopping import stops
from bert.runs import Run

SECONDS = 20.0  # of computing that a kill can lose
BYTES = 64 << 20  # of results that are held in memory
ORIGIN = "belongs_to.json"

Results = list[np.ndarray]  # of one batch
Batch = Callable[[], Results]  # computes it
Compute = Callable[[int, Batch], Results]  # returns the results of a batch with this number of sequences


def at_once(sequences: int, batch: Batch) -> Results:
    """Compute the results of a batch. Readers use this without `keep`."""
    return batch()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """What results were computed from."""

    input: dict[str, str]
    """SHA-256 by the name of the file, or of each file in a folder"""
    flags: dict[str, str]
    """those of the command that are no paths"""
    model: dict[str, str]
    """content hash of the weights, and hashes of the files that describe them"""
    versions: dict[str, str]


class Kept:
    """Takes the batches that an interrupted run stored in its folder; computes and stores the batches after those."""

    def __init__(self, output: Path, origin: Origin, stops: Sequence[int]) -> None:
        """stops: received signals that ask to stop."""
        self.output, self.sequences = output, 0
        self.folder, self._origin, self._stops = output.parent / f".{output.name}.parts", origin, stops
        self._parts, self._unsaved, self._size = 0, list[Results](), 0
        self._earlier: Iterator[Results] | None = None
        self._written = time.monotonic()

    def __call__(self, sequences: int, batch: Batch) -> Results:
        """Return the results of the next batch. sequences: number of its sequences."""
        results = self._results(batch)
        self.sequences += sequences
        return results

    def _results(self, batch: Batch) -> Results:
        if self._earlier is None:  # not before: now this process holds the lock of the output
            self._earlier = self._read()
        if (results := next(self._earlier, None)) is not None:
            return results
        if self._stops:
            self._write()
            done = f"stopped after {self.sequences:,} sequences, kept"
            raise Stopped(f"{done}; the same command goes on with {self.output}")
        results = batch()
        self._unsaved.append(results)
        self._size += sum(result.nbytes for result in results)
        if time.monotonic() - self._written >= SECONDS or self._size >= BYTES:
            self._write()
        return results

    def _path(self, part: int) -> Path:
        return self.folder / f"{part:05d}.npz"

    def _read(self) -> Iterator[Results]:
        """Yield the results of an interrupted run, in order; remove files that cannot be used."""
        if not self.folder.is_dir():
            return
        if problem := self._problem():
            print(f"note: {self.folder}: {problem}; beginning anew", file=sys.stderr)
            self.remove()
            return
        while (path := self._path(self._parts)).exists():
            try:
                part = _load(path)
            except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
                print(f"note: {path}: damaged ({error}); computing anew from there", file=sys.stderr)
                break
            yield from part
            self._parts += 1
        print(f"{self.output}: going on after {self.sequences:,} sequences that are done", file=sys.stderr)
        for path in self.folder.glob("*.npz"):
            if path.name >= self._path(self._parts).name:
                path.unlink()
        self._written = time.monotonic()

    def _problem(self) -> str | None:
        """Return why the folder's content cannot be used, or None."""
        try:
            stored = checked_json.read(self.folder / ORIGIN, Origin, what="of this program", remedy="remove the folder")
        except (IntegrityError, FileNotFoundError) as error:
            return "damaged" if isinstance(error, IntegrityError) else "unfinished"
        names = [field.name for field in dataclasses.fields(Origin)]
        others = [name for name in names if getattr(stored, name) != getattr(self._origin, name)]
        return f"of other {' and '.join(others)}" if others else None

    def _write(self) -> None:
        """Write the results in memory as a new part."""
        if self._unsaved:
            with files.room(self.folder):
                self.folder.mkdir(exist_ok=True)
                if not self._parts:
                    checked_json.write(self.folder / ORIGIN, dataclasses.asdict(self._origin))
                with files.atomic_write(self._path(self._parts), "wb") as stream:
                    named = {f"{b}.{r}": x for b, batch in enumerate(self._unsaved) for r, x in enumerate(batch)}
                    np.savez(stream, allow_pickle=False, **named)
            self._parts += 1
        self._unsaved, self._size, self._written = [], 0, time.monotonic()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _load(path: Path) -> list[Results]:
    """Return the batches of a part. numpy verifies the ZIP format's checksum of each array."""
    with np.load(path, allow_pickle=False) as arrays:
        grouped = itertools.groupby(arrays.files, key=lambda name: name.split(".")[0])
        return [[arrays[name] for name in names] for _, names in grouped]


@contextlib.contextmanager
def keep(written: Sequence[Path | None], source: Path, options: Any, run: Run) -> Iterator[Compute]:
    """Yield a function that computes batches and stores their results. It first returns results of an interrupted run.

    In the block, signals that ask to stop raise Stopped at the next batch. If `source` is standard input or another
    pipe, or if results go to standard output, nothing is stored and signals are not handled.

    written: the output files, which the block must open before the first batch; None for an output that the user does
    not want. options: the dataclass of the command's flags. run: the model, with its weights.
    """
    paths = [path for path in written if path is not None]
    if "-" in map(str, (*paths, source)) or not (source.is_file() or source.is_dir()):
        yield at_once
        return
    origin = _origin(source, options, run)
    with stops() as requested:
        kept = Kept(paths[0], origin, requested)
        try:
            yield kept
        except (InputError, IntegrityError, UsageError):  # the same command would end in the same way
            kept.remove()
            raise
        kept.remove()


def _origin(source: Path, options: Any, run: Run) -> Origin:
    inputs = [source] if source.is_file() else sorted(files.below(source))
    flags = {name: ascii(value) for name, value in vars(options).items() if not isinstance(value, Path)}
    devices = sorted({device.device_type for device in tf.config.get_visible_devices()})
    try:
        openvino = importlib.metadata.version("openvino")  # which --engine auto depends on
    except importlib.metadata.PackageNotFoundError:
        openvino = ""
    return Origin(
        input={ascii(str(path.relative_to(source.parent))): files.sha256(path) for path in inputs},
        flags=flags | {"device": ascii(devices)},
        model=run.identity,
        versions={"bert": __version__, "openvino": openvino} | outputs.versions(),
    )
