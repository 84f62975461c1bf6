"""A stage made of independent tasks, run in one process pool, on a Dask cluster, or by an array of batch jobs.

    python -m data.tfrecords ... --workers 16                    # processes on this machine
    python -m data.tfrecords ... --scheduler tcp://host:8786     # the workers of a Dask cluster
    python -m data.tfrecords ... --task 3 --of 16                # the fourth of sixteen jobs

A task writes its files into the stage's hidden folder. When they are on the disk, it writes a marker with their hashes
and its result. A task with a marker is not run again, so a stage that was killed resumes where it stopped, with any
number of workers, and gives the same bytes. The markers stay until the finished folder has its final name.
"""

import abc
import contextlib
import dataclasses
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from bert.core import checked_json, cli, ending, files, manifest, object_urls, outputs, ranges, stores
from bert.core.errors import UsageError
from bert.core.progress import MB, Progress
from bert.core.ranges import Range, Workers
from bert.core.workspace import Work, Workspace
from data.pipeline import workers


class Task(Protocol):
    """The argument of `Stage.run`. It must be picklable."""

    @property
    def target(self) -> Path:
        """The file that the task writes. If it writes several, their names begin with this name."""


T = TypeVar("T")
AnyTask = TypeVar("AnyTask", bound=Task)
TaskResult = dict[str, Any]  # counts and names, as JSON can hold them


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of every stage that consists of tasks."""

    workers: Workers = workers.available()
    """number of worker processes"""
    task: Annotated[int, Range(0, 999_999)] | None = None
    """run only this share of the tasks, counted from 0; used with --of in a job array"""
    of: Annotated[int, Range(1, 1_000_000)] = 1
    """number of shares into which --task divides the tasks"""
    scheduler: str | None = None
    """address of a Dask scheduler whose workers run the tasks, such as tcp://host:8786"""

    def __post_init__(self) -> None:
        ranges.check(self)
        if (self.task is None) != (self.of == 1) and self.task != 0:
            raise UsageError("--task and --of belong together: --task 0 --of 4, ..., --task 3 --of 4")
        if self.task is not None and not 0 <= self.task < self.of:
            raise UsageError(f"--task {self.task}: must be from 0 to {self.of - 1}, --of minus 1")


NOT_PARAMETERS = {field.name for field in dataclasses.fields(Options)}  # the output does not depend on them


def parameters(options: Any, besides: Sequence[str] = (), newer: Sequence[str] = ()) -> dict[str, Any]:
    """Return the flags of a stage on which its output depends, without paths and without the flags of `Options`.

    options: the dataclass of its flags. besides: names of other flags on which the output does not depend. newer: names
    of flags that earlier versions did not have. Such a flag is left out if it has its default, so that a folder of an
    earlier version is up to date.
    """
    fields = [field for field in dataclasses.fields(options) if not _is_path(field)]
    values = {field.name: getattr(options, field.name) for field in fields}
    usual = {field.name for field in fields if field.name in newer and values[field.name] == field.default}
    return {name: value for name, value in values.items() if name not in {*NOT_PARAMETERS, *besides, *usual}}


def inputs(options: Any) -> list[Path]:
    """Return the files and folders that the flags of a stage name, in order, without its output."""
    names = [field.name for field in dataclasses.fields(options) if _is_path(field) and field.name != "output"]
    values = [value for name in names if (value := getattr(options, name))]
    return [path for value in values for path in (value if isinstance(value, tuple) else (value,))]


def _is_path(field: dataclasses.Field[Any]) -> bool:
    """Return whether a flag takes a path, several, or one that may be left out."""
    kind = field.type
    if typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    return Path in (kind, *typing.get_args(kind))


def parse(options: type[T], argv: Sequence[str], *, prog: str, description: str | None) -> T:
    """Parse the flags of a stage, and fetch what they name in object stores. Raise as `cli.parse` and `fetch` do.

    Raise UsageError if the output is in an object store, and --of or --scheduler needs a folder that machines share.
    """
    parsed: Any = cli.parse(options, argv, prog=prog, description=description)
    if url := object_urls.url_of(parsed.output):
        if getattr(parsed, "of", 1) > 1 or getattr(parsed, "scheduler", None):
            raise UsageError(f"--output {url}: --of and --scheduler need a folder that all machines share; give one")
        stores.check_output(parsed.output, prog.rpartition(".")[2])
    for path in inputs(parsed):
        stores.fetch(path)
    return typing.cast(T, parsed)


class Stage(abc.ABC, Generic[AnyTask]):
    """A data stage: it lists its tasks, runs each of them, and combines their results.

    `tasks` and `finish` run in the main process. `run` may run in another process or on another machine: it is a class
    method, and everything that it needs is in the task.
    """

    name: ClassVar[str]  # as in the manifest and in messages
    options: Any  # the dataclass of its flags
    not_parameters: ClassVar[Sequence[str]] = ()  # its own flags on which the output does not depend

    def parameters(self) -> dict[str, Any]:
        """Return the values that the output depends on, besides the inputs."""
        return parameters(self.options, self.not_parameters)

    def inputs(self) -> Sequence[Path]:
        """Return the files and folders that the output is made from."""
        return inputs(self.options)

    @abc.abstractmethod
    def tasks(self, work: Work) -> Sequence[AnyTask]:
        """Write what all tasks need into the work folder, unless an earlier run did, and return them.

        A task's `target` is in `work.output`. Files in `work.private` are not part of the output.
        """

    @classmethod
    @abc.abstractmethod
    def run(cls, task: AnyTask) -> TaskResult:
        """Write the files of one task and return its result."""

    @classmethod
    def written(cls, task: AnyTask, result: TaskResult) -> Sequence[Path]:
        """Return the files that `run` wrote. They are not looked for: other tasks write into the same folder."""
        return [task.target]

    @abc.abstractmethod
    def finish(self, tasks: Sequence[AnyTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        """Return what the manifest says of the whole output."""

    def is_earlier(self, made: Path) -> bool:
        """Return whether an earlier version made a finished folder, and this one makes other files of the same key."""
        return False

    def then(self, made: Path) -> Sequence[object]:
        """Return the words of the command that usually follows, with the finished folder."""
        return ()

    @abc.abstractmethod
    def size(self, task: AnyTask) -> int:
        """Return the bytes that a task reads, for the time left."""


def build(stage: Stage[AnyTask], folder: Path, options: Options) -> None:
    """Run the stage's tasks, or this process's share of them; complete `folder` when all tasks are done, and say so.

    Return at once if `folder` is up to date. Raise what the stage raises, and ResourceError if the disk is full.
    """
    _build(stage, folder, options)
    if manifest.is_finished(folder):
        stores.send(folder)
        ending.print_next_command(folder, "", *stage.then(folder))


def _build(stage: Stage[AnyTask], folder: Path, options: Options) -> None:
    space = Workspace(folder)
    with contextlib.ExitStack() as using:
        with files.room(space.output), space.locked():
            key = outputs.build_key(
                space.output, stage=stage.name, parameters=stage.parameters(), inputs=stage.inputs()
            )
            if stage.is_earlier(space.output):
                print(f"{stage.name}: {space.output} is of an earlier version, so it is made again", file=sys.stderr)
            elif outputs.current(space.output, key):
                outputs.clear(space)
                return
            work = using.enter_context(space.work(key.digest()))
            jobs = [_Job(type(stage), task, _marker(work, task)) for task in stage.tasks(work)]
        _run_tasks(stage, jobs[options.task :: options.of] if options.task is not None else jobs, options)
        with files.room(space.output), space.locked():
            if work.output.exists():  # otherwise another share was the last one and has completed the folder
                _complete(stage, space, work, key, jobs)
            if not work.output.exists():
                using.close()  # a file that is open cannot be removed on NFS
                outputs.clear(space)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Marker:
    """What a finished task wrote: the SHA-256 of its files by name, and its result."""

    files: dict[str, str]
    result: dict[str, Any]


def _read(marker: Path) -> _Marker:
    return checked_json.read(
        marker, _Marker, what="the marker of a task", remedy="remove this file, then repeat the command"
    )


class _Job(NamedTuple):
    stage: type[Stage[Any]]
    task: Any
    marker: Path


def _marker(work: Work, task: Task) -> Path:
    return work.private / f"{task.target.name}.json"


def _run_tasks(stage: Stage[AnyTask], share: Sequence[_Job], options: Options) -> None:
    pending = [job for job in share if not job.marker.exists()]
    if len(pending) < len(share):
        print(f"{stage.name}: {len(share) - len(pending)} of {len(share)} tasks are done already", file=sys.stderr)
    sizes = [stage.size(job.task) for job in pending]
    results = workers.run(_run_job, pending, options.workers, options.scheduler)
    with Progress(stage.name, MB, sum(sizes)) as progress:
        for size, _ in zip(sizes, results, strict=True):
            progress.add(size)


def _complete(stage: Stage[AnyTask], space: Workspace, work: Work, key: outputs.BuildKey, jobs: Sequence[_Job]) -> None:
    """Give the work folder its final name, with a manifest, unless tasks are missing."""
    missing = sum(not job.marker.exists() for job in jobs)
    if missing:
        print(f"{stage.name}: this share is done; {missing} of {len(jobs)} tasks are in other shares", file=sys.stderr)
        return
    markers = [_read(job.marker) for job in jobs]
    result = stage.finish([job.task for job in jobs], [marker.result for marker in markers])
    hashes = {name: sha256 for marker in markers for name, sha256 in marker.files.items()}
    outputs.complete(space, work, key, result, hashes)


def _run_job(job: _Job) -> TaskResult | None:
    """Run a task, bring its files to the disk, and write its marker, unless another process has done it meanwhile.

    Return None if another process has completed the whole folder.
    """
    target = job.task.target
    with files.room(target), contextlib.ExitStack() as locks:
        try:
            # Two processes with the same task would write the same files. A worker may outlive its main process.
            locks.enter_context(files.hold(job.marker.with_suffix(".lock")))
        except FileNotFoundError:
            return None
        if job.marker.exists():
            return _read(job.marker).result
        result = dict(job.stage.run(job.task))
        written = job.stage.written(job.task, result)
        for path in written:
            files.flush(path)
        files.flush_folder(target.parent)
        hashes = {path.name: files.sha256(path) for path in written}
        checked_json.write(job.marker, {"files": hashes, "result": result})
    return result
