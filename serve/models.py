"""The models of a service: what each run directory can be asked, and how a changed one takes the place of the old."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.core import manifest, object_urls
from bert.core.errors import IntegrityError, UsageError
from bert.core.rows import Rows
from bert.engines import engine as engines
from bert.hardware.choices import Compute, EngineName
from bert.runs import SHARED, Base, Bases, Run
from bert.text import vocabulary
from bert.training import selection
from serve.heads import Answering, Head, Reads, of_run

ANSWER = Answering.route
SEARCH: Rows[Callable[[Path | None, Path | None, Compute, int, EngineName, Reads], Head]] = Rows(
    {"load": "extensions.search.serving:load"}
)
"""loads what is searched: an index, the model that made it, and how it computes, as `Models` has them"""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A loaded model."""

    name: str
    run: Path
    heads: dict[str, Head]
    """by their routes"""
    details: dict[str, Any]
    """what clients are told of it"""


def load(run: Path | Run, name: str, compute: Compute, batch: int, engine: EngineName = "tensorflow") -> Served:
    """Load the checkpoint of a run directory with its head, and compute one example with each of its uses.

    batch: maximum rows that are computed at once. Raise InputError if it is no run directory, IntegrityError if it is
    damaged.
    """
    opened = run if isinstance(run, Run) else _open(run)
    heads = of_run(opened, compute, batch, engine)
    return _served(name, opened.path, opened, compute, heads)


def _open(run: Path) -> Run:
    return Run.open(run, "a run directory")


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
    """Return run directories by name, from a list of `RUN` and `NAME=RUN`; `RUN` alone has the name of its folder.

    Raise UsageError if two have the same name.
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
    """The models of a service by name. Each is loaded again when its run directory has changed.

    Models of one base (`bert.runs.Base`) share an encoder. Low-rank updates beside shared kernels take more time than
    updates that are added to the kernels. So a model uses a shared encoder only if another model has the same base.
    """

    def __init__(
        self,
        runs: Mapping[str, Path],
        compute: Compute,
        batch: int,
        engine: EngineName = "tensorflow",
        search: Search | None = None,
    ) -> None:
        """Load all models. Raise as `load` and the row of `SEARCH` do.

        runs: run directories by the names of the models. search: what is searched; its name is its folder's name, with
        "-search" added if a model has that name.
        """
        self.compute, self.batch, self.engine = compute, batch, engine
        self.failures = 0  # of loading a changed model
        self._runs, self._search = dict(runs), search
        self._base_of = dict[str, Base]()  # by name, if there are several models
        self._bases: Bases | None = SHARED["bases"]() if len(runs) > 1 else None
        folders = dict(runs)
        if search is not None:
            name = search.folder.resolve().name
            while name in runs:
                name += "-search"
            folders[name] = search.folder
        self._seen = {name: self._state_of(folder) for name, folder in folders.items()}
        self._loaded: dict[str, Served] = {}
        opened = {name: self._open(name) for name in folders}  # first: how a model is loaded depends on all bases
        for name, run in opened.items():
            self._loaded[name] = self._load(name, run)
        self._reloading = threading.Lock()

    def _open(self, name: str) -> Run | None:
        """Return the run of a model, and remember its base; None for a search, which loads a separate encoder."""
        if name not in self._runs:
            return None
        run = _open(self._runs[name])
        if len(self._runs) > 1:
            self._base_of[name] = run.base
        return run

    def _load(self, name: str, run: Run | None) -> Served:
        """Load a model. run: as `_open` returns it."""
        if run is None:
            assert self._search is not None, "only a search has no run of its own"
            return self._load_search(self._search, name)
        return load(run, name, self.compute, self.batch, self._share(name, run))

    def _share(self, name: str, run: Run) -> EngineName:
        """Let a run use the encoder that other models of its base use; return its engine.

        Only TensorFlow computes low-rank updates beside shared kernels. "auto" takes TensorFlow for such updates, to
        save memory.
        """
        base = self._base_of.get(name)
        of_base = [one for one in self._base_of.values() if base and one.digest == base.digest]
        if base is None or len(of_base) == 1 or self.engine == "openvino_int8":
            return self.engine
        updated = any(one.updated for one in of_base)
        auto: EngineName = "tensorflow" if updated else "auto"
        engine = engines.choose(auto if self.engine == "auto" else self.engine, run.config, self.compute)
        if engine == "tensorflow" or not base.updated:
            run.bases = self._bases
        return engine

    def _load_search(self, search: Search, name: str) -> Served:
        one = SEARCH["load"](search.index, search.encoder, self.compute, self.batch, self.engine, self._reads)
        return _served(name, search.folder, one.run, self.compute, [one])

    def _reads(self) -> Head | None:
        """Return the head that answers questions."""
        model = self.choose(None, ANSWER)
        return model.heads[ANSWER] if model else None

    def all(self) -> list[Served]:
        """Return all models, in the order of the command line."""
        return list(self._loaded.values())

    def sharing(self) -> list[tuple[str, list[str]]]:
        """Return the engine, and the names of the models, of each encoder that several models share."""
        if self._bases is None:
            return []
        models: dict[int, tuple[str, list[str]]] = {}
        for model in self.all():
            encoder = SHARED["shared_part"](next(iter(model.heads.values())).encoder)
            models.setdefault(id(encoder), (encoder.name, []))[1].append(model.name)
        return [one for one in models.values() if len(one[1]) > 1]

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
            opened = list(self._opened_again(force))  # first: how a model is loaded depends on all bases
            for name, run in opened:
                if stopping():
                    break
                with self._reported(name):
                    loaded = self._load(name, run)
                    _check_not_older(loaded, self._loaded[name])
                    self._loaded[name] = loaded
                    changed.append(name)
        return changed

    def _opened_again(self, force: bool) -> Iterator[tuple[str, Run | None]]:
        """Yield the name of each model whose run directory has changed, or of all, and what `_open` returns for it."""
        for name, model in self._loaded.items():
            state = self._state_of(model.run)
            if force or state != self._seen[name]:
                self._seen[name] = state
                with self._reported(name):
                    yield name, self._open(name)

    def _state_of(self, run: Path) -> tuple[Any, ...]:
        return state_of(run, in_8_bits=self.engine == "openvino_int8")

    @contextlib.contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """Report that a model cannot be loaded again."""
        try:
            yield
        except Exception as error:  # whatever it is, the service goes on with the earlier one
            self.failures += 1
            print(f"warning: {name} is not loaded again, the earlier one serves on: {error}", file=sys.stderr)


def _check_not_older(loaded: Served, earlier: Served) -> None:
    """Raise IntegrityError if an older checkpoint was loaded because the earlier model's is damaged on disk."""
    folder = earlier.run / "checkpoints" / earlier.details["checkpoint"]
    best = selection.read(earlier.run)
    if best is None and loaded.details["checkpoint"] < folder.name and folder.is_dir():
        raise IntegrityError(f"{folder}: damaged on disk; write it again, or remove it to serve an older one")


def state_of(run: Path, in_8_bits: bool) -> tuple[Any, ...]:
    """Return a value that changes with a run's checkpoints, settings and thresholds: names, sizes and times of files.

    in_8_bits: whether the model is computed from its export in 8 bits, which is made after the checkpoint.
    """
    checkpoints = run / "checkpoints"  # with their files, which may be copied one after another
    paths = [run, *sorted(run.glob("*.json")), vocabulary.path_in(run), *sorted(checkpoints.glob("*"))]
    paths += sorted(checkpoints.glob("*/*"))
    paths += [run / engines.INT8 / manifest.NAME] if in_8_bits else []
    states = []
    for path in paths:
        try:
            status = path.stat()
            size = 0 if path.is_dir() else status.st_size
            states.append((path.name, status.st_ino, size, 0 if path == run else status.st_mtime_ns))
        except OSError:  # removed meanwhile
            states.append((path.name, 0, 0, 0))
    return tuple(states)
