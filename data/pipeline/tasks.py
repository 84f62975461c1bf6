"""A stage made of independent tasks, run in one process pool, on a Dask cluster, or by an array of batch jobs.

    python -m data.tfrecords ... --workers 16                    # processes on this machine
    python -m data.tfrecords ... --scheduler tcp://host:8786     # the workers of a Dask cluster
    python -m data.tfrecords ... --task 3 --of 16                # the fourth of sixteen jobs

A task writes its files into the stage's hidden folder. When they are on the disk, it writes a marker with their hashes
and its result. A task with a marker is not run again, so a stage that was killed resumes where it stopped, with any
number of workers, and gives the same bytes.
"""

import abc
import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from bert import ranges
from bert.errors import UsageError
from bert.ranges import Range, Workers
from bert.storage import files, outputs
from data.pipeline import workers
from data.pipeline.progress import Progress

MARKERS = ".tasks"


class Task(Protocol):
    """The argument of `Stage.run`. It must be picklable."""

    @property
    def target(self) -> Path:
        """The file that the task writes. The names of any other files it writes begin with this name."""


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


class Stage(abc.ABC, Generic[AnyTask]):
    """A data stage: it lists its tasks, runs each of them, and combines their results.

    `tasks` and `finish` run in the main process. `run` may run in another process or on another machine: it is a class
    method, and everything that it needs is in the task.
    """

    name: ClassVar[str]  # as in the manifest and in messages
    unit: str = "documents"  # what the progress line counts

    @abc.abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return the values that the output depends on, besides the inputs."""

    @abc.abstractmethod
    def inputs(self) -> Sequence[Path]:
        """Return the files and folders that the output is made from."""

    @abc.abstractmethod
    def tasks(self, partial: Path) -> Sequence[AnyTask]:
        """Write what all tasks need into the hidden folder `partial`, unless an earlier run did, and return them."""

    @classmethod
    @abc.abstractmethod
    def run(cls, task: AnyTask) -> TaskResult:
        """Write the files of one task and return its result."""

    @abc.abstractmethod
    def finish(self, tasks: Sequence[AnyTask], results: Sequence[TaskResult]) -> outputs.StageResult:
        """Return what the manifest says of the whole output."""

    @abc.abstractmethod
    def processed(self, task: AnyTask, result: TaskResult) -> tuple[int, int]:
        """Return the number of units and of bytes that a finished task adds to the progress line."""


def build(stage: Stage[AnyTask], folder: Path, options: Options) -> None:
    """Run the stage's tasks, or this process's share of them; complete `folder` when all tasks are done.

    Return at once if `folder` is up to date. Raise what the stage raises, and ResourceError if the disk is full.
    """
    with files.room(folder), outputs.lock(folder):
        key = outputs.build_key(folder, stage=stage.name, parameters=stage.parameters(), inputs=stage.inputs())
        if outputs.current(folder, key):
            return
        partial = _partial_folder(folder, key)
        tasks = stage.tasks(partial)
    share = tasks[options.task :: options.of] if options.task is not None else tasks
    # Two processes with the same share would write the same files. The second one waits and finds the tasks done.
    with outputs.lock(folder.with_name(f"{folder.name}.{options.task or 0}-of-{options.of}")):
        with outputs.lock(folder):  # the process that completes the folder removes the markers under this lock
            pending = [task for task in share if not _marker(task).exists()] if partial.exists() else []
        _run_tasks(stage, share, pending, options)
    with files.room(folder), outputs.lock(folder):
        if partial.exists():  # otherwise another share was the last one and has completed the folder
            _complete(stage, folder, partial, key, tasks)


def _run_tasks(stage: Stage[AnyTask], share: Sequence[AnyTask], pending: Sequence[AnyTask], options: Options) -> None:
    if len(pending) < len(share):
        print(f"{stage.name}: {len(share) - len(pending)} of {len(share)} tasks are done already", file=sys.stderr)
    progress = Progress(stage.name, stage.unit)
    jobs = [_Job(stage.run, task) for task in pending]
    for task, result in zip(pending, workers.run(_run_job, jobs, options.workers, options.scheduler), strict=True):
        progress.add(*stage.processed(task, result))


def _complete(
    stage: Stage[AnyTask], folder: Path, partial: Path, key: outputs.BuildKey, tasks: Sequence[AnyTask]
) -> None:
    """Give the hidden folder its final name, with a manifest, unless tasks are missing."""
    missing = sum(not _marker(task).exists() for task in tasks)
    if missing:
        print(f"{stage.name}: this share is done; {missing} of {len(tasks)} tasks are in other shares", file=sys.stderr)
        return
    markers = [json.loads(_marker(task).read_text(encoding="utf-8")) for task in tasks]
    result = stage.finish(tasks, [marker["result"] for marker in markers])
    shutil.rmtree(partial / MARKERS)
    hashes = {name: sha256 for marker in markers for name, sha256 in marker["files"].items()}
    outputs.complete(partial, folder, key, result, hashes)


def _partial_folder(folder: Path, key: outputs.BuildKey) -> Path:
    """Return the hidden folder for this output. Remove those of other parameters or inputs."""
    partial = folder.with_name(f".{folder.name}.{key.digest()}.partial")
    for other in folder.parent.glob(f".{folder.name}.*.partial"):
        if other != partial:
            shutil.rmtree(other)
    (partial / MARKERS).mkdir(parents=True, exist_ok=True)
    return partial


def _marker(task: Task) -> Path:
    return task.target.parent / MARKERS / f"{task.target.name}.json"


class _Job(NamedTuple):
    run: Callable[[Any], TaskResult]
    task: Any


def _run_job(job: _Job) -> TaskResult:
    """Run a task, bring its files to the disk, and write its marker."""
    task: Task = job.task
    with files.room(task.target):
        result = dict(job.run(task))
        written = sorted(task.target.parent.glob(f"{task.target.name}*"))
        for path in written:
            files.flush(path)
        hashes = {path.name: files.sha256(path) for path in written}
        files.write_json(_marker(task), {"files": hashes, "result": result})
    return result
