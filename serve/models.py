"""The models of a service: what each run directory can be asked, and how a changed one takes the place of the old."""

import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core import object_urls
from bert.core.errors import IntegrityError, UsageError
from bert.hardware.choices import Compute, Engine
from bert.runs import Run
from bert.text import vocabulary
from bert.training import selection
from serve import searching
from serve.heads import Answering, Head, of_run

ANSWER = Answering.route


@dataclass(frozen=True, kw_only=True)
class Served:
    """A loaded model."""

    name: str
    run: Path
    heads: dict[str, Head]
    """by their routes"""
    details: dict[str, Any]
    """what clients are told of it"""


def load(run: Path, name: str, compute: Compute, batch: int, engine: Engine = "tensorflow") -> Served:
    """Load the checkpoint of a run directory with its head, and compute one example with each of its uses.

    batch: maximum rows that are computed at once. Raise InputError if it is no run directory, IntegrityError if it is
    damaged.
    """
    opened = Run.open(run, "a run directory")
    heads = of_run(opened, compute, batch, engine)
    return _served(name, run, opened, compute, heads)


def _served(name: str, folder: Path, run: Run, compute: Compute, heads: Sequence[Head]) -> Served:
    """Compute one example with each head, and describe the model."""
    for one in heads:
        prepared = one.prepare(one.example(), sys.maxsize)
        prepared.finish(one.compute(prepared.rows))
    details: dict[str, Any] = {"name": name, "compute": compute, "engine": heads[0].encoder.name}
    details |= {"longest": run.config.max_position_embeddings}
    details |= heads[0].details() | {"uses": [one.route for one in heads]}
    details |= {"checkpoint": run.checkpoint.name, "weights": run.weights}
    return Served(name=name, run=folder, heads={one.route: one for one in heads}, details=details)


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched."""

    index: Path | None
    """folder of an index; None: only documents that are sent with a request"""
    encoder: Path | None
    """run directory of its model; None: where it was when the index was made"""

    @property
    def folder(self) -> Path:
        """The folder that is loaded again when it has changed, and gives the name."""
        assert self.index is not None or self.encoder is not None, "the command checks that one is given"
        return self.index or self.encoder  # type: ignore[return-value]


def named(flags: Sequence[str]) -> dict[str, Path]:
    """Return run directories by name, from a list of `RUN` and `NAME=RUN`; the name of a folder is its own.

    Raise UsageError if two have one name.
    """
    runs: dict[str, Path] = {}
    for text in flags:
        name, separator, rest = text.partition("=")
        run = object_urls.path(rest if separator and "/" not in name else text)
        name = name if separator and "/" not in name else run.resolve().name
        if not name or name in runs:
            raise UsageError(f"--model {text}: a model is called {name!r} already; give it another name: NAME={run}")
        runs[name] = run
    return runs


class Models:
    """The models of a service by name. Each is loaded again when its run directory has changed."""

    def __init__(
        self,
        runs: Mapping[str, Path],
        compute: Compute,
        batch: int,
        engine: Engine = "tensorflow",
        search: Search | None = None,
    ) -> None:
        """Load all models, which are given by name. Raise as `load` and `searching.load` do.

        search: what is searched, under the name of its folder, or another one if a model has that.
        """
        self.compute, self.batch, self.engine = compute, batch, engine
        self.failures = 0  # of loading a changed model
        self._loads = {name: functools.partial(load, run, name, compute, batch, engine) for name, run in runs.items()}
        if search is not None:
            name = search.folder.resolve().name
            name = f"{name}-search" if name in runs else name
            runs = {**runs, name: search.folder}
            self._loads[name] = functools.partial(self._load_search, search, name)
        self._seen = {name: state_of(run) for name, run in runs.items()}
        self._loaded: dict[str, Served] = {}
        for name, one in self._loads.items():
            self._loaded[name] = one()
        self._reloading = threading.Lock()

    def _load_search(self, search: Search, name: str) -> Served:
        one = searching.load(search.index, search.encoder, self.compute, self.batch, self.engine, self._reads)
        return _served(name, search.folder, one.run, self.compute, [one])

    def _reads(self) -> Head | None:
        """Return the head that answers questions."""
        model = self.choose(None, ANSWER)
        return model.heads[ANSWER] if model else None

    def all(self) -> list[Served]:
        """Return all models, in the order of the command line."""
        return list(self._loaded.values())

    def choose(self, name: str | None, route: str) -> Served | None:
        """Return the model of a name that has the route, or the first model that has it; None if there is none."""
        models = [model for model in self._loaded.values() if route in model.heads and name in (None, model.name)]
        return models[0] if models else None

    def reload(self, force: bool = False, stopping: Callable[[], bool] = lambda: False) -> list[str]:
        """Load the models whose run directories have changed; return their names.

        A model that cannot be loaded is reported and stays as it was, until its run directory changes again.
        stopping: says before each model whether the service ends, so that no further one is loaded.
        """
        changed = []
        with self._reloading:
            for name, model in list(self._loaded.items()):
                if stopping():
                    break
                state = state_of(model.run)
                if not force and state == self._seen[name]:
                    continue
                self._seen[name] = state
                try:
                    loaded = self._loads[name]()
                    _check_not_older(loaded, model)
                    self._loaded[name] = loaded
                    changed.append(name)
                except Exception as error:  # whatever it is, the service goes on with the earlier one
                    self.failures += 1
                    print(f"warning: {name} is not loaded again, the earlier one serves on: {error}", file=sys.stderr)
        return changed


def _check_not_older(loaded: Served, earlier: Served) -> None:
    """Raise IntegrityError if an older checkpoint was loaded because that of the earlier model is damaged on disk."""
    folder = earlier.run / "checkpoints" / earlier.details["checkpoint"]
    best = selection.read(earlier.run)
    if best is None and loaded.details["checkpoint"] < folder.name and folder.is_dir():
        raise IntegrityError(f"{folder}: damaged on disk; write it again, or remove it to serve an older one")


def state_of(run: Path) -> tuple[Any, ...]:
    """Return what changes with a run's checkpoints, settings and thresholds: names, sizes and times of its files."""
    checkpoints = run / "checkpoints"  # with their files, which may be copied one after another
    paths = [run, *sorted(run.glob("*.json")), vocabulary.path_in(run), *sorted(checkpoints.glob("*"))]
    paths += sorted(checkpoints.glob("*/*"))
    states = []
    for path in paths:
        try:
            status = path.stat()
            size = 0 if path.is_dir() else status.st_size
            states.append((path.name, status.st_ino, size, 0 if path == run else status.st_mtime_ns))
        except OSError:  # removed meanwhile
            states.append((path.name, 0, 0, 0))
    return tuple(states)
