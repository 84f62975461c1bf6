"""scripts/again.sh repeats what was cut down, and nothing else."""

import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AGAIN = ROOT / "scripts" / "again.sh"


def again(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([AGAIN, *words], cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("status", [0, 2, 3, 4, 5, 75])
def test_a_documented_status_is_the_end(status: int, tmp_path: Path) -> None:
    done = again("3", "sh", "-c", f"echo x >>runs; exit {status}", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "runs").read_text(), done.stderr) == (status, "x\n", "")


@pytest.mark.parametrize(("end", "status"), [("exit 1", 1), ("kill -9 $$", 137)])
def test_what_was_cut_down_runs_again_so_many_times(end: str, status: int, tmp_path: Path) -> None:
    done = again("2", "sh", "-c", f"echo x >>runs; {end}", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "runs").read_text()) == (status, "x\n" * 3)
    assert [line.split(" after ")[0] for line in done.stderr.splitlines() if line.startswith("warning")] == [
        f"warning: ended with status {status}"
    ] * 2


def test_it_ends_well_as_soon_as_the_command_does(tmp_path: Path) -> None:
    done = again("5", "sh", "-c", "echo x >>runs; [ $(wc -l <runs) = 3 ] || exit 137", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "runs").read_text()) == (0, "x\n" * 3)


@pytest.mark.parametrize("ending", ["exit 75", "exit 1"])
def test_a_signal_reaches_the_command_which_is_not_repeated(ending: str, tmp_path: Path) -> None:
    code = f'trap "{ending}" TERM; echo ready; while :; do sleep .05; done'
    process = subprocess.Popen([AGAIN, "3", "sh", "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "" and process.returncode == int(ending[-2:])


@pytest.mark.parametrize("words", [[], ["3"], ["many", "true"]])
def test_a_wrong_command_line_is_one_line(words: list[str]) -> None:
    done = again(*words)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
