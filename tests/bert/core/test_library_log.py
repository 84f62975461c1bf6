"""What libraries print: in the log and not on the screen, for commands that end well, fail, or are aborted."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bert.core import library_log
from tests.conftest import ROOT

# Stands for TensorFlow: it prints when it is imported, as C++ does and by `logging`.
TENSORFLOW = """
import logging, os
os.write(2, b"E0000 cuda_platform.cc: failed call to cuInit\\n")
logging.getLogger("tensorflow").warning("retracing")
"""
COMMAND = """
import os, sys
from bert.core import cli
from bert.core.errors import InputError, ResourceError

def main(argv):
    print("before", file=sys.stderr)
    import tensorflow
    print("after", file=sys.stderr)
    {last}

if __name__ == "__main__":
    cli.main(main)
"""


def run(folder: Path, last: str, shell: str = "", **environment: str) -> tuple[int, str, list[Path]]:
    """Run a command that ends as `last` says; return its exit code, what the screen shows, and the logs."""
    (folder / "work").mkdir(exist_ok=True)
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    (folder / "command.py").write_text(COMMAND.format(last=last))
    variables = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}", "BERT_WORKDIR": str(folder / "work")} | environment
    words = ["bash", "-c", f'exec "$0" -m command {shell}', sys.executable]
    done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True)
    return done.returncode, done.stderr, sorted((folder / "work" / "logs").glob("*"))


@pytest.mark.parametrize(
    ("last", "code", "error"),
    [
        ("pass", 0, ""),
        ("raise InputError('x: no such file; give one')", 3, "error: x: no such file; give one\n"),
    ],
)
def test_the_screen_has_the_lines_of_the_command_alone(tmp_path: Path, last: str, code: int, error: str) -> None:
    assert run(tmp_path, last) == (code, f"before\nafter\n{error}", [])  # the log is removed


@pytest.mark.parametrize(
    ("last", "code", "shown"), [("1 / 0", 1, "ZeroDivisionError"), ("raise ResourceError('full')", 5, "error: full\n")]
)
def test_after_a_failure_a_line_names_the_log(tmp_path: Path, last: str, code: int, shown: str) -> None:
    ended, screen, (log,) = run(tmp_path, last)
    assert ended == code and shown in screen
    assert f"note: messages of TensorFlow and other libraries are in {log}\n" in screen
    assert "cuInit" not in screen and "retracing" not in screen
    assert log.read_text().splitlines() == [
        "E0000 cuda_platform.cc: failed call to cuInit",
        "WARNING:tensorflow:retracing",
    ]


def test_a_process_that_a_library_aborts_shows_where_it_was_and_the_log(tmp_path: Path) -> None:
    code, screen, (log,) = run(tmp_path, "os.write(2, b'F0000 Check failed\\n'); os.abort()")
    assert code == -6
    assert "Fatal Python error: Aborted" in screen and f'"messages of libraries are in {log}"' in screen
    assert "Check failed" not in screen and log.read_text().endswith("F0000 Check failed\n")


def test_all_is_shown_if_it_is_asked_for(tmp_path: Path) -> None:
    code, screen, logs = run(tmp_path, "pass", BERT_VERBOSE="1")
    assert code == 0 and logs == []
    assert screen.splitlines()[:2] == ["before", "E0000 cuda_platform.cc: failed call to cuInit"]
    assert "retracing" in screen


def test_a_folder_that_cannot_be_written_does_not_end_the_command(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    places = {"BERT_WORKDIR": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary")}
    assert run(tmp_path, "pass", **places) == (0, "before\nafter\n", [])
    assert run(tmp_path, "1 / 0", **places)[1].count("are in " + str(tmp_path / "temporary")) == 2
    places["TMPDIR"] = "/dev/null/none"
    assert run(tmp_path, "pass", **places)[:2] == (0, "before\nafter\n")


def test_a_closed_standard_error_stays_closed(tmp_path: Path) -> None:
    assert run(tmp_path, "os.write(2, b'x')", "2>&-") == (0, "", [])


def test_a_program_that_imports_the_packages_keeps_its_standard_error(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    words = [sys.executable, "-c", "import bert, tensorflow"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "cuInit" in done.stderr and not (tmp_path / "workdir").exists()


def test_workers_write_to_the_log_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "work_of.py").write_text("def task(n):\n    import tensorflow\n    return n\n")
    last = """from data.pipeline import workers
    import work_of
    print(list(workers.run(work_of.task, [1, 2, 3], 2)), file=sys.stderr)
    1 / 0"""
    _, screen, (log,) = run(tmp_path, last)
    assert "[1, 2, 3]\n" in screen and "cuInit" not in screen
    assert log.read_text().count("cuInit") in (2, 3)  # of the command, and of one or both workers


def fill(folder: Path, ended: int) -> None:
    """Logs of processes that have ended long ago, in a folder."""
    folder.mkdir(parents=True)
    for number in range(ended):
        (folder / f"{number}.log").write_text("")
        os.utime(folder / f"{number}.log", (number, number))


def test_the_folder_of_logs_has_a_bounded_number_of_files_and_each_a_bounded_size(tmp_path: Path) -> None:
    logs = tmp_path / "work" / "logs"
    fill(logs, library_log.FILES + 7)
    (logs / "notes.txt").write_text("not a log")
    _, _, kept = run(tmp_path, "1 / 0")
    assert len(kept) == library_log.FILES + 1 and not (logs / "7.log").exists() and (logs / "8.log").exists()
    with open(logs / "long.log", "wb") as stream:
        stream.truncate(library_log.LARGEST + 1)
        os.utime(logs / "long.log", (7, 7))
        library_log.look_after(stream.fileno())
        about = os.fstat(stream.fileno())
        assert about.st_size == library_log.LARGEST // 2 and time.time() - about.st_mtime < library_log.RUNS


def test_many_ranks_look_at_the_work_folder_once_and_remove_no_log_of_a_rank_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, host, ranks = tmp_path / "work", tmp_path / "tmp" / f"bert-logs-{os.getuid()}", 150
    fill(work / "logs", library_log.FILES + 7)
    fill(host, library_log.FILES + 7)
    monkeypatch.setenv("BERT_WORKDIR", str(work))
    monkeypatch.setattr(library_log.paths.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    monkeypatch.setattr(library_log, "_path", None)
    scandir, looks = os.scandir, list[Path]()

    def counted(folder: Path) -> Any:
        looks.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counted)
    for rank in range(ranks):
        monkeypatch.setenv("HOROVOD_RANK", str(rank))
        monkeypatch.setattr(os, "getpid", lambda rank=rank: 10_000 + rank)
        library_log.prepare("bert.pretrain")
        os.close(library_log._open())
    monkeypatch.undo()
    assert looks.count(work / "logs") == 1 and looks.count(host) == ranks - 1
    assert len(list((work / "logs").glob("*-10000.log"))) == 1 and len(list((work / "logs").iterdir())) == 100
    assert {int(path.stem.rpartition("-")[2]) for path in host.glob("bert*.log")} == set(range(10_001, 10_150))
    assert len(list(host.iterdir())) == ranks - 1  # those of processes that have ended made room


def test_another_rank_names_its_log_on_the_disk_of_its_host_and_trusts_no_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    places = {"TMPDIR": str(tmp_path / "temporary"), "HOROVOD_RANK": "1"}
    code, screen, logs = run(tmp_path, "os.write(2, b'F0000 Check failed\\n'); os.abort()", **places)
    (log,) = (tmp_path / "temporary" / f"bert-logs-{os.getuid()}").iterdir()
    assert code == -6 and logs == [] and f'"messages of libraries are in {log}"' in screen
    assert log.read_text().endswith("F0000 Check failed\n") and log.parent.stat().st_mode & 0o777 == 0o700

    fill(tmp_path / "other", library_log.FILES + 7)
    log.unlink()
    log.parent.chmod(0o777)  # others may have put a link there, in the place of the next log
    assert run(tmp_path, "os.write(2, b'text')", **places)[:2] == (0, "before\nafter\n")
    assert not list(log.parent.iterdir())
    log.parent.rmdir()
    log.parent.symlink_to(tmp_path / "other")
    assert run(tmp_path, "pass", **places) == (0, "before\nafter\n", [])
    assert len(list((tmp_path / "other").iterdir())) == library_log.FILES + 7


@pytest.mark.parametrize("module", ["bert.fill_mask", "data.text", "bert.pretrain"])
def test_without_the_environment_one_line_says_how_to_enter_it(tmp_path: Path, module: str) -> None:
    arguments = ["demo_phase1", "--data.train", "x", "--init.checkpoint", "none"] if module == "bert.pretrain" else []
    words = [sys.executable, "-S", "-m", module, *arguments]  # -S: without installed packages
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "is not installed for " in done.stderr
    assert done.stderr.endswith("; enter the environment (. .venv/bin/activate), or make it (make setup)\n")


PROGRAM = """
import os, sys
from bert.core import library_log
try:
    with library_log.withheld():
        os.write(2, b"E0000 00:00:1795781761.822422    9601 cuda_platform.cc:52] failed call to cuInit\\n")
        os.write(2, b"2026-11-27 12:07:33.697819: E external/local_xla/cuda_dnn.cc:8454] Unable to register\\n")
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n")
        print("the program's own line", file=sys.stderr)
        {last}
except OSError as error:
    print(error, file=sys.stderr)
print("after", file=sys.stderr)
"""


def test_a_program_that_imports_bert_keeps_its_own_lines_alone(tmp_path: Path) -> None:
    def shown(last: str, **environment: str) -> list[str]:
        words = [sys.executable, "-c", PROGRAM.format(last=last)]
        done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    assert shown("pass") == ["the program's own line", "after"]
    failed = shown("raise OSError('no such device')")  # an error may be explained by what the library said
    assert len(failed) == 6 and "cuInit" in failed[0] and failed[-2:] == ["no such device", "after"]
    assert len(shown("pass", BERT_VERBOSE="1")) == 5
