"""Files of predictions as the GLUE server takes them, and the score of GLUE."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean

from bert.core import files
from bert.core.errors import InputError, UsageError
from tasks import datasets, glue
from tasks.config import TaskData

SCALE = (0.0, 5.0)  # of STS-B
ROWS = {  # of each task's test sets; source: dataset_infos.json of GLUE in huggingface/datasets
    "cola": (1_063,),
    "sst2": (1_821,),
    "mrpc": (1_725,),
    "qqp": (390_965,),
    "stsb": (1_379,),
    "mnli": (9_796, 9_847),
    "qnli": (5_463,),
    "rte": (3_000,),
    "wnli": (146,),
    "ax": (1_104,),
}


def test_sets(task: str, folder: Path) -> dict[str, tuple[str, Path]]:
    """Return the test sets that a model of a task is submitted for: by the submission's name, the task and the file.

    folder: of GLUE or of the task. A model of MNLI is also submitted for the diagnostic set, if that is there. Raise
    UsageError if the task is none of GLUE's, InputError if a file is missing.
    """
    _check(task)
    task_of_glue = glue.TASKS[task]
    paths = datasets.files(TaskData(task=task), folder, "test")
    named = {task_of_glue.submissions.get(name, task_of_glue.folder): (task, path) for name, path in paths.items()}
    if task == "mnli":
        diagnostic = glue.TASKS["ax"]
        path = folder / diagnostic.folder / diagnostic.files["test"][""]
        if path.exists():
            named[diagnostic.folder] = ("ax", path)
        else:
            print(f"note: {path}: no such file; the diagnostic set is not predicted", file=sys.stderr)
    return named


def _check(task: str) -> None:
    if task not in glue.TASKS:
        raise UsageError(f"--submission is for the tasks of GLUE ({', '.join(glue.TASKS)}), not for {task}")


@contextlib.contextmanager
def writer(task: str, path: Path) -> Iterator[Callable[[str, object], None]]:
    """Yield a function that adds the prediction for an id; the file appears at the end.

    The ids must be 0, 1, 2 ... in order, as in GLUE's test files. Print a note if the server expects another number of
    rows: the file may be a development set, cut off, or of the first version of QNLI. Raise UsageError if the task is
    not one of GLUE's, InputError for another id.
    """
    _check(task)
    with files.atomic_write(path) as stream:
        count = 0
        stream.write("index\tprediction\n")

        def add(identity: str, prediction: object) -> None:
            nonlocal count
            if identity != str(count):
                raise InputError(f"the id {identity!r} stands where {count} is expected; give GLUE's own test file")
            stream.write(f"{identity}\t{_text(prediction)}\n")
            count += 1

        yield add
    if count not in ROWS[task] + (ROWS["ax"] if task == "mnli" else ()):
        expected = " or ".join(f"{rows:,}" for rows in ROWS[task])
        print(f"note: {path}: {count:,} predictions, but the GLUE server expects {expected} of {task}", file=sys.stderr)


def _text(prediction: object) -> str:
    if isinstance(prediction, float):
        return f"{min(max(prediction, SCALE[0]), SCALE[1]):.4f}"
    return str(prediction)


def score(scores: Mapping[str, Mapping[str, float]]) -> float:
    """Return GLUE's score: the mean over its nine tasks of the mean of a task's metrics.

    scores: metrics by task; MNLI has the metrics of both its test sets. The diagnostic set does not count. Raise
    InputError if a task is missing.
    """
    needed = [name for name in glue.TASKS if name != "ax"]
    if missing := [name for name in needed if not scores.get(name)]:
        raise InputError(f"no scores of {', '.join(missing)}; GLUE's score is the mean over nine tasks")
    return fmean(fmean(scores[name].values()) for name in needed)
