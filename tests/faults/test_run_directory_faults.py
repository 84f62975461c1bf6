"""A run directory that another run uses, or that is misplaced, unwritable or oddly named."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import pretrain
from bert.core import cli, files
from bert.core.errors import Stopped, UsageError
from bert.training import checkpoint
from tests import training
from tests.training import LENGTH, ROOT, command, errors, write_dataset

SIX = ["--run.steps", "6", "--run.save_every", "3"]
pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def test_a_second_run_in_a_directory_is_refused_under_any_of_its_names(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    other.symlink_to(run)
    line = command(dataset, run, "--run.steps", "100000")
    with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr and any(line.startswith("train ") for line in first.stderr)
        monkeypatch.setattr(files, "PATIENCE", 1.0)
        with pytest.raises(UsageError, match="another process uses it; wait, or choose another folder") as refused:
            training.train_here(dataset, other, *LENGTH)
        assert first.poll() is None and str(refused.value).startswith(f"{other}: ")
        first.kill()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("dataset/run", "is in the folder of the data, and would be removed when they are made again"),
        ("dataset", "is in the folder of the data"),
        ("link/run", "is in the folder of the data"),
        ("a_file/run", "cannot be written (Not a directory); choose another"),
        ("/sys/run", "/sys/run: cannot be written ("),
        ("a[1]", "a[1]: TensorFlow takes [ for a pattern; give the folder another name"),
        ("a\\b*?", "TensorFlow takes * ? \\ for a pattern"),
        ("nowhere", "nowhere: cannot be written (File exists); choose another"),
    ],
)
def test_a_misplaced_run_is_refused_and_writes_nothing(
    place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    data = write_dataset(tmp_path / "dataset")
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "run")
    (tmp_path / "a_file").touch()
    before = sorted(tmp_path.rglob("*"))
    line = command(data, tmp_path / place, *LENGTH)
    monkeypatch.setattr(sys, "argv", line[line.index("bert.pretrain") :])
    with pytest.raises(SystemExit) as ending:
        cli.main(pretrain.main)
    said = errors(capfd.readouterr().err)
    assert ending.value.code == 2 and len(said) == 1 and message in said[0], said
    assert sorted(tmp_path.rglob("*")) == before


def test_special_characters_in_the_name_have_no_effect(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # That two ranks, which a shell starts, take such a name is shown by test_rank_faults.py.
    run = tmp_path / training.SPECIAL_NAME
    monkeypatch.chdir(tmp_path)
    for steps in ([*SIX, "--run.stop_at", "4"], SIX):
        with contextlib.suppress(Stopped):
            training.train_here(dataset, run, *steps)
        assert list(tmp_path.iterdir()) == [run]
    assert [path.name for path in checkpoint.steps(run)] == ["step-00000003", "step-00000004", "step-00000006"]
    assert "after step 4\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["metrics.jsonl", "events", "checkpoints", "checkpoints/step-00000007"])
def test_a_run_directory_with_links_or_special_files_is_refused_and_nothing_is_written_elsewhere(
    name: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run / name).parent.mkdir(parents=True)
    line = command(dataset, run, *LENGTH)
    monkeypatch.setattr(sys, "argv", line[line.index("bert.pretrain") :])
    for make in (lambda: (run / name).symlink_to(elsewhere), lambda: os.mkfifo(run / name)):
        make()
        with pytest.raises(SystemExit) as ending:
            cli.main(pretrain.main)
        said = errors(capfd.readouterr().err)
        assert ending.value.code == 2 and len(said) == 1 and f"{run / name}: is a link or a special file" in said[0]
        (run / name).unlink()
    assert not list(elsewhere.iterdir())
