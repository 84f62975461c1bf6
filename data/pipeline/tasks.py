"""A stage as tasks that share nothing, in one sitting or several: a pool's, a cluster's, or an array of batch jobs'.

    python -m data.tfrecords ... --workers 16                    # processes on this machine
    python -m data.tfrecords ... --scheduler tcp://host:8786     # the workers of a Dask cluster
    python -m data.tfrecords ... --task 3 --of 16                # the fourth of sixteen jobs; the last one completes

A task writes its files into the stage's hidden folder and, once they are on the disk, a marker with their hashes and
its result. Where a marker stands the task is not run again: a stage that was killed goes on where it was, with any
number of workers, and gives the same bytes.
"""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from bert.errors import UsageError
from bert.storage import files, manifest
from data.pipeline import workers

MARKERS = ".tasks"


class Task(Protocol):
    """What a task function is given; it can be pickled."""

    @property
    def target(self) -> Path:
        """The file that the task writes; others that it writes beside it have names that begin with this one's."""


AnyTask = TypeVar("AnyTask", bound=Task)
Result = dict[str, Any]  # counts, as JSON can hold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of every stage that consists of tasks."""

    workers: int = workers.available()
    """processes"""
    task: int | None = None
    """do only this share of the tasks, from 0; with --of, for a job of an array"""
    of: int = 1
    """shares, of which each --task is one"""
    scheduler: str | None = None
    """address of a Dask scheduler whose workers do the tasks, as tcp://host:8786"""

    def __post_init__(self) -> None:
        workers.check(self.workers)
        if (self.task is None) != (self.of == 1) and self.task != 0:
            raise UsageError("--task and --of belong together: --task 0 --of 4, ..., --task 3 --of 4")
        if self.task is not None and not 0 <= self.task < self.of:
            raise UsageError(f"--task {self.task}: must be from 0 to {self.of - 1}, --of minus 1")


NOT_PARAMETERS = {field.name for field in dataclasses.fields(Options)}  # the output does not depend on them


def build(
    folder: Path,
    *,
    stage: str,
    parameters: dict[str, Any],
    inputs: Sequence[Path],
    options: Options,
    prepare: Callable[[Path], Sequence[AnyTask]],
    function: Callable[[AnyTask], Result],
    finish: Callable[[Sequence[AnyTask], Sequence[Result]], manifest.StageResult],
    report: Callable[[AnyTask, Result], None] = lambda task, result: None,
) -> None:
    """Makes `folder` out of tasks, or this process's share of them.

    prepare: given the hidden folder, writes what all tasks need, unless an earlier sitting has, and returns the tasks.
    function: does one; a module's function. finish: from all results, what the manifest says. report: called for each
    task done here. Raises what these raise, and ResourceError if the disk is full.
    """
    with files.room(folder), manifest.lock(folder):
        wanted = manifest.build_key(folder, stage=stage, parameters=parameters, inputs=inputs)
        if manifest.current(folder, wanted):
            return
        partial = _partial(folder, wanted)
        tasks = prepare(partial)
    share = tasks[options.task :: options.of] if options.task is not None else tasks
    # The same share begun twice at once would write the same files: the second one waits, and finds it done.
    with manifest.lock(folder.with_name(f"{folder.name}.{options.task or 0}-of-{options.of}")):
        with manifest.lock(folder):  # whoever completes the folder removes the markers under this lock
            left = [task for task in share if not _marker(task).exists()] if partial.exists() else []
        if len(left) < len(share):
            print(f"{stage}: {len(share) - len(left)} of {len(share)} tasks are done already", file=sys.stderr)
        jobs = [_Job(function, task) for task in left]
        for task, result in zip(left, workers.run(_complete, jobs, options.workers, options.scheduler), strict=True):
            report(task, result)
    with files.room(folder), manifest.lock(folder):
        if not partial.exists():  # another share was the last, and has completed the folder
            return
        missing = sum(not _marker(task).exists() for task in tasks)
        if missing:
            print(f"{stage}: this share is done; {missing} of {len(tasks)} tasks are with others", file=sys.stderr)
            return
        markers = [json.loads(_marker(task).read_text(encoding="utf-8")) for task in tasks]
        made = finish(tasks, [marker["result"] for marker in markers])
        shutil.rmtree(partial / MARKERS)
        hashes = {name: sha256 for marker in markers for name, sha256 in marker["files"].items()}
        manifest.complete(partial, folder, wanted, made, hashes)


def _partial(folder: Path, wanted: manifest.BuildKey) -> Path:
    """The hidden folder for this output; those begun for another one are removed."""
    partial = folder.with_name(f".{folder.name}.{wanted.digest()}.partial")
    for other in folder.parent.glob(f".{folder.name}.*.partial"):
        if other != partial:
            shutil.rmtree(other)
    (partial / MARKERS).mkdir(parents=True, exist_ok=True)
    return partial


def _marker(task: Task) -> Path:
    return task.target.parent / MARKERS / f"{task.target.name}.json"


class _Job(NamedTuple):
    function: Callable[[Any], Result]
    task: Any


def _complete(job: _Job) -> Result:
    """Does a task and leaves its marker."""
    task: Task = job.task
    with files.room(task.target):
        result = dict(job.function(task))
        written = sorted(task.target.parent.glob(f"{task.target.name}*"))
        for path in written:
            files.flush(path)
        hashes = {path.name: files.sha256(path) for path in written}
        files.write_json(_marker(task), {"files": hashes, "result": result})
    return result
