"""The last line of a command."""

from pathlib import Path

import pytest

from bert.core import ending


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BERT_NEXT", raising=False)
    monkeypatch.setattr(ending, "_BEGUN", 100.0)
    monkeypatch.setattr("time.monotonic", lambda: 134.4)
    made = tmp_path / "my shards"
    (made / "inside").mkdir(parents=True)
    (made / "a").write_bytes(bytes(1_200_000))
    (made / "inside" / "b").write_bytes(bytes(1_100_000))
    return made


def test_it_has_path_content_size_seconds_and_the_next_command(folder: Path) -> None:
    line = ending.line(folder, "7 shards", "python", "-m", "data.vocab", "--source", folder, "--output", "FOLDER")
    assert line == f"{folder}: 7 shards, 2.3 MB, 34 s; next: python -m data.vocab --source '{folder}' --output FOLDER"
    assert ending.line(folder / "a") == f"{folder / 'a'}: 1.2 MB, 34 s"


def test_the_next_command_is_left_out_where_something_else_runs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERT_NEXT", "none")
    assert ending.line(folder, "", "make", "vocab") == f"{folder}: 2.3 MB, 34 s"


def test_it_is_on_standard_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a").unlink()
    (folder / "inside" / "b").write_bytes(bytes(77))
    ending.print_next_command(folder)
    ending.print_next_command("evaluated RUN on DATA", "3 texts")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{folder}: 0.1 kB, 34 s\nevaluated RUN on DATA: 3 texts, 34 s\n"
