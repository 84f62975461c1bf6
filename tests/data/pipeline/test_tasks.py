"""Tasks: any share, number of workers or interruption gives the same folder, and nothing is done twice."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import typing
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

from bert.core import manifest, outputs
from bert.core.errors import UsageError
from bert.core.ranges import Range
from bert.core.workspace import Work
from data import books, documents, text, tokens, wikipedia
from data.pipeline import tasks, workers
from data.pipeline.tasks import TaskResult
from extensions.pubmed import pubmed
from tests.waiting import wait_for

TASKS = 7


class Square(NamedTuple):
    """Writes the square of a number, and that it was done."""

    number: int
    target: Path
    log: Path
    slow: float = 0.0


class Squares(tasks.Stage[Square]):
    """A stage that squares the numbers from 0 to `count` - 1, but `fourth` in place of 4."""

    name = "squares"

    def __init__(self, log: Path, count: int, slow: float, fourth: int) -> None:
        self.log, self.count, self.slow, self.fourth = log, count, slow, fourth

    def parameters(self) -> dict[str, Any]:
        return {"count": self.count}

    def inputs(self) -> list[Path]:
        return []

    def tasks(self, work: Work) -> list[Square]:
        numbers = [self.fourth if number == 4 else number for number in range(self.count)]
        return [Square(number, work.output / f"square-{at}", self.log, self.slow) for at, number in enumerate(numbers)]

    @classmethod
    def run(cls, task: Square) -> TaskResult:
        with open(task.log, "a") as log:
            log.write(f"{task.number}\n")
        time.sleep(task.slow if task.number > 2 else 0)
        task.target.write_text(str(task.number**2))
        task.target.with_name(task.target.name + ".index").write_text("beside")
        return {"squares": 1, "sum": task.number**2}

    @classmethod
    def written(cls, task: Square, result: TaskResult) -> Sequence[Path]:
        return [task.target, task.target.with_name(task.target.name + ".index")]

    def finish(self, tasks: Sequence[Square], results: Sequence[TaskResult]) -> outputs.StageResult:
        records = {task.target.name: 1 for task in tasks}
        return outputs.StageResult(counts={"sum": sum(result["sum"] for result in results)}, records=records)

    def size(self, task: Square) -> int:
        return 1


def run(folder: Path, log: Path, *, count: int = TASKS, slow: float = 0.0, fourth: int = 4, **options: Any) -> None:
    tasks.build(Squares(log, count, slow, fourth), folder, tasks.Options(**options))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def reference(tmp_path: Path) -> dict[str, bytes]:
    run(tmp_path / "reference", tmp_path / "log", workers=1)
    return content(tmp_path / "reference")


def test_the_folder_has_all_files_and_nothing_else(tmp_path: Path, reference: dict[str, bytes]) -> None:
    names = {f"square-{n}{suffix}" for n in range(TASKS) for suffix in ("", ".index")}
    assert set(reference) == names | {"manifest.json"}
    found = manifest.load(tmp_path / "reference", "squares")
    manifest.verify(found)
    assert found.counts == {"sum": sum(n**2 for n in range(TASKS))}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "reference"]


def test_a_task_does_not_list_the_files_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    iterdir, listed = Path.iterdir, list[Path]()

    def counted(folder: Path) -> Iterator[Path]:
        listed.append(folder)
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", counted)
    numbers = []
    for count in (3, 11):
        listed.clear()
        run(tmp_path / f"of{count}", tmp_path / "log", count=count, workers=1)
        numbers.append(len(listed))
    assert numbers[0] == numbers[1]


def test_shares_in_any_order_give_the_same_and_the_last_completes(
    tmp_path: Path, reference: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, log = tmp_path / "shares", tmp_path / "log"
    log.unlink()
    for task in (2, 0):
        run(folder, log, workers=1, task=task, of=3)
        assert not folder.exists()
    assert "2 of 7 tasks are in other shares" in capsys.readouterr().err
    run(folder, log, workers=1, task=1, of=3)
    assert content(folder) == reference
    assert sorted(log.read_text().split()) == [str(n) for n in range(TASKS)]  # each once
    run(folder, log, workers=1, task=1, of=3)
    assert "up to date" in capsys.readouterr().err
    assert len(log.read_text().split()) == TASKS


def test_the_same_command_twice_at_once_does_each_task_once(tmp_path: Path, reference: dict[str, bytes]) -> None:
    folder, log = tmp_path / "twice", tmp_path / "log"
    log.unlink()
    with ThreadPoolExecutor(2) as pool:
        for both in [pool.submit(run, folder, log, workers=1, slow=0.1) for _ in range(2)]:
            both.result()
    assert content(folder) == reference
    assert sorted(log.read_text().split()) == [str(n) for n in range(TASKS)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "reference", "twice"]


def test_a_failed_task_leaves_the_others_done(tmp_path: Path, reference: dict[str, bytes]) -> None:
    folder, log = tmp_path / "failed", tmp_path / "log"
    log.unlink()

    number: Any = "x"
    with pytest.raises(TypeError):  # "x" has no square
        run(folder, log, workers=1, fourth=number)
    assert not folder.exists()
    run(folder, log, workers=1)
    assert content(folder) == reference
    assert sorted(log.read_text().split()) == sorted([str(n) for n in range(TASKS)] + ["x"])


def test_other_parameters_begin_anew(tmp_path: Path) -> None:
    folder, log = tmp_path / "folder", tmp_path / "log"
    run(folder, log, workers=1, task=0, of=2)
    run(folder, log, count=3, workers=1)
    assert manifest.load(folder).parameters == {"count": 3}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "log"]  # what was begun is gone


@pytest.mark.parametrize("wrong", [{"task": 4, "of": 4}, {"task": -1, "of": 4}, {"of": 4}, {"task": 3}, {"workers": 0}])
def test_wrong_shares_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        tasks.Options(**wrong)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_tasks
if __name__ == "__main__":
    test_tasks.run(Path({folder!r}), Path({log!r}), slow={slow}, workers={workers})
"""


@pytest.mark.faults
def test_killed_and_run_again_with_other_workers_gives_the_same(tmp_path: Path, reference: dict[str, bytes]) -> None:
    folder, log = tmp_path / "killed", tmp_path / "log"
    log.unlink()

    def start(slow: float, workers: int) -> subprocess.Popen[bytes]:
        script = tmp_path / "script.py"
        here = {"tests": str(Path(__file__).parent), "folder": str(folder), "log": str(log)}
        script.write_text(SCRIPT.format(slow=slow, workers=workers, **here))
        return subprocess.Popen([sys.executable, script], env={**os.environ, "PYTHONPATH": os.getcwd()})

    process = start(slow=60.0, workers=1)
    # 0, 1, 2 are done, 3 is being slept over
    wait_for(lambda: log.exists() and len(log.read_text().split()) == 4, "fourth task", process)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert not folder.exists()
    assert start(slow=0.0, workers=2).wait(timeout=60) == 0
    assert content(folder) == reference
    assert sorted(log.read_text().split()) == sorted([str(n) for n in range(TASKS)] + ["3"])


@pytest.fixture
def dask_scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with one worker, both started as commands in a folder without this code."""
    pytest.importorskip("distributed")
    (tmp_path / "elsewhere").mkdir()
    file, started = tmp_path / "scheduler.json", []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for words in (["scheduler", "--port", "0", "--no-dashboard"], ["worker", "--nthreads", "1", "--no-dashboard"]):
        command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file)]
        started.append(
            subprocess.Popen(command, cwd=tmp_path / "elsewhere", env=environment, stderr=subprocess.DEVNULL)
        )
        wait_for(lambda: file.exists() and file.read_text().endswith("}"), "scheduler", started[0])
    yield json.loads(file.read_text())["address"]
    for process in reversed(started):
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.slow
def test_a_stage_given_as_a_command_runs_on_a_dask_cluster(
    tmp_path: Path, dask_scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(workers, "ROOT", tmp_path / "not_there")
        with pytest.raises(UsageError, match=r"a worker cannot import [.\w]+; start it with this environment"):
            list(workers.run(count_characters, [1], 1, dask_scheduler))
    (tmp_path / "books").mkdir()
    for number in range(3):
        (tmp_path / "books" / f"{number}.txt").write_text(
            f"The river Ouse rises in hill {number}. It floods in May.\n" * 9
        )
    for name, source, *more in (("books", "books"), ("documents", "out-books", "--minimum_characters", "9")):
        outputs = {scheduler: tmp_path / f"{scheduler}-{name}" for scheduler in ("out", "cluster")}
        command = [sys.executable, "-m", f"data.{name}", "--source", str(tmp_path / source), *more]
        subprocess.run([*command, "--output", outputs["out"], "--workers", "1"], check=True)
        subprocess.run([*command, "--output", outputs["cluster"], "--scheduler", dask_scheduler], check=True)
        assert content(outputs["out"]) == content(outputs["cluster"])


def count_characters(number: int) -> int:
    """A task of a module that only this checkout has."""
    return len(str(number))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(tasks.Options):
    source: tuple[Path, ...]
    rules: Path | None = None
    output: Path
    vocab: Path
    size: int | None = None
    share: Annotated[float, Range(0, 1)] = 0.5
    link: bool = True


def test_parameters_and_inputs_are_the_flags_on_which_the_output_depends() -> None:
    given = Flags(source=(Path("b"), Path("a")), output=Path("out"), vocab=Path("v"), workers=3)
    assert tasks.parameters(given) == {"size": None, "share": 0.5, "link": True}
    assert tasks.parameters(given, ["link"]) == {"size": None, "share": 0.5}
    assert tasks.inputs(given) == [Path("b"), Path("a"), Path("v")]
    assert tasks.inputs(dataclasses.replace(given, rules=Path("r"))) == [Path("b"), Path("a"), Path("r"), Path("v")]


@pytest.mark.parametrize(
    ("kind", "flags", "expected"),
    [
        (wikipedia.WikipediaStage, wikipedia.Options, {}),
        (books.BooksStage, books.Options, {}),
        (text.TextStage, text.Options, {}),
        (pubmed.PubmedStage, pubmed.Options, {"title": False, "labels": False, "language": "eng"}),
        (documents.DocumentsStage, documents.Options, {"minimum_characters": 64, "punkt": "trained"}),
        (tokens.TokensStage, tokens.Options, {"heldout": 0.01}),
    ],
)
def test_the_parameters_in_manifests_stay_as_they_are(kind: Any, flags: Any, expected: dict[str, Any]) -> None:
    """Other ones would make a finished folder of an earlier version out of date."""
    source = Path("source") if typing.get_type_hints(flags)["source"] is Path else (Path("source"),)
    needed = {"tokenizer": Path("bpe")} if flags is tokens.Options else {}
    stage = object.__new__(kind)
    stage.options = flags(source=source, output=Path("out"), **needed)
    assert stage.parameters() == expected
    assert stage.inputs() == [Path("source"), *needed.values()]
