"""Predictions that are killed or stopped go on where they were, and end with the bytes of an uninterrupted run."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert import encode, hidden_states, resumable
from bert.core.errors import InputError, Stopped, UsageError
from squad import predict as squad_predict
from tasks import model as tasks_model
from tasks import predict as tasks_predict
from tests.serve import runs

TEXTS = [f"caf{'e' * (number % 5)} river " * (1 + number % 9) for number in range(45)]
Spoil = Callable[[int], None]


class Killed(BaseException):
    """Ends a command as a kill does: nothing of ours catches it."""


class Command:
    """One of the commands, with a model and an input; counts the batches that it computes."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.folder, self.input, self.batches = kind, folder, folder / "input.jsonl", 0
        self.spoil: Spoil = lambda number: None
        self.model, self.outputs = folder / "run", [folder / "out.jsonl"]
        if kind == "encode":
            runs.of_pretraining(self.model)
            self.input.write_text("\n".join(TEXTS) + "\n")
            monkeypatch.setattr(hidden_states, "CHUNK", 19)
        elif kind == "squad":
            runs.of_questions(self.model)
            rows = [{"id": f"q{n}", "question": "river?", "context": text} for n, text in enumerate(TEXTS)]
            rows.insert(7, {"id": "malformed", "question": "river?", "context": 3})  # type: ignore[dict-item]
            self.input.write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.outputs.append(folder / "nbest.json")
        else:
            runs.of_task(self.model, kind)
            self.input.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        owner, name = (hidden_states.Reader, "_batch") if kind == "encode" else (tasks_model.Reader, "_outputs")
        compute = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self.batches += 1
            self.spoil(self.batches)
            return compute(*arguments)

        monkeypatch.setattr(owner, name, counted)

    def __call__(self, *more: str) -> list[bytes]:
        """Run the command; return the bytes of its outputs."""
        self.batches = 0
        main = {"encode": encode.main, "squad": squad_predict.main}.get(self.kind, tasks_predict.main)
        given = ["--model", str(self.model), "--batch", "4", "--output", str(self.outputs[0]), *more]
        given += ["--dataset" if self.kind == "squad" else "--input", str(self.input)]
        given += ["--nbest", str(self.outputs[1])] if self.kind == "squad" else []
        main(given)
        return [path.read_bytes() for path in self.outputs]

    def left(self) -> set[str]:
        """Return the names in the folder, without the model and the input."""
        return {path.name for path in self.folder.iterdir()} - {"run", "input.jsonl"}


def kill_at(last: int) -> Spoil:
    def spoil(number: int) -> None:
        if number == last:
            raise Killed

    return spoil


def stop_at(last: int) -> Spoil:
    return lambda number: os.kill(os.getpid(), signal.SIGTERM) if number == last else None


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a part for each batch."""
    monkeypatch.setattr(resumable, "SECONDS", 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("kind", ["encode", "squad", "classify"])
def test_after_a_kill_and_a_stop_the_same_command_ends_with_the_same_bytes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(kind, tmp_path, monkeypatch)
    expected, batches = command(), command.batches
    assert batches > 8 and command.left() == {path.name for path in command.outputs}
    for path in command.outputs:
        path.unlink()
    command.spoil = kill_at(6)
    with pytest.raises(Killed):
        command()
    assert command.left() == {".out.jsonl.parts"}
    command.spoil = stop_at(2)
    with pytest.raises(Stopped, match="the same command goes on"):
        command()
    assert command.left() == {".out.jsonl.parts"} and command.batches == 2
    command.spoil = lambda number: None
    capsys.readouterr()
    assert command() == expected
    assert command.batches == batches - 5 - 2
    assert "going on after 28 sequences" in capsys.readouterr().err
    assert command.left() == {path.name for path in command.outputs}


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_results_of_others_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, parts = Command("encode", tmp_path, monkeypatch), tmp_path / ".out.jsonl.parts"
    command.spoil = kill_at(4)
    with pytest.raises(Killed):
        command()
    parts.rename(tmp_path / "interrupted")
    others = runs.variables(runs.Encoder(runs.CONFIG, 5))
    changes: list[tuple[str, Callable[[], Any]]] = [
        ("of other flags", lambda: None),
        ("of other flags and versions", lambda: monkeypatch.setattr(resumable, "__version__", "9")),
        ("of other input and flags and versions", lambda: command.input.write_text("\n".join(TEXTS[:-1]))),
        ("of other input and flags and model and versions", lambda: runs.save(command.model, others, {}, step=4)),
        ("damaged", lambda: (tmp_path / "interrupted" / resumable.ORIGIN).write_text("{}")),
        ("unfinished", lambda: (tmp_path / "interrupted" / resumable.ORIGIN).unlink()),
    ]
    command.spoil = kill_at(1)
    for problem, change in changes:
        change()
        shutil.copytree(tmp_path / "interrupted", parts)
        capsys.readouterr()
        with pytest.raises(Killed):
            command("--layers", "1")
        assert f".out.jsonl.parts: {problem}; beginning anew" in capsys.readouterr().err and not parts.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("often")
def test_a_damaged_part_and_those_after_it_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command("encode", tmp_path, monkeypatch)
    expected, batches = command(), command.batches
    command.outputs[0].unlink()
    command.spoil = kill_at(8)
    with pytest.raises(Killed):
        command()
    part = tmp_path / ".out.jsonl.parts" / "00003.npz"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    command.spoil = lambda number: None
    assert command() == expected and command.batches == batches - 3
    assert "00003.npz: damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_a_short_run_and_one_to_standard_output_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("classify", tmp_path, monkeypatch)
    command.spoil = kill_at(9)
    with pytest.raises(Killed):
        command()
    assert not command.left()
    monkeypatch.setattr(resumable, "SECONDS", 0.0)
    command.outputs, handler = [Path("-")], signal.getsignal(signal.SIGTERM)

    def spoil(number: int) -> None:
        assert signal.getsignal(signal.SIGTERM) == handler
        kill_at(9)(number)

    command.spoil = spoil
    with pytest.raises(Killed):
        command()
    assert not command.left()


@pytest.mark.usefixtures("often")
def test_an_input_that_is_refused_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("encode", tmp_path, monkeypatch)
    command.input.write_bytes(command.input.read_bytes() + b"\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        command()
    assert not command.left()


def test_a_folder_as_output_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("squad", tmp_path, monkeypatch)
    command.outputs[0] = Path(".")
    with pytest.raises(UsageError, match="is a folder"):
        command()
