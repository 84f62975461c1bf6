"""A FIFO, a socket or a device in the place of an input file is refused at once, and a name never leads elsewhere."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bert.convert import __main__ as convert
from bert.convert import architecture, huggingface
from bert.core import files, manifest
from bert.core.config import ModelConfig
from bert.core.errors import InputError, UsageError
from bert.text.vocabulary import load_vocab
from squad import examples
from tests.bert.convert.folders import SMALL, original, original_folder, their_folder
from tests.conftest import RunModule

pytestmark = [pytest.mark.faults, pytest.mark.timeout(60)]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "FIFO": fifo,
    "socket": bound,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/ptmx"),
}
READERS: dict[str, Callable[[Path], object]] = {
    "a vocabulary": load_vocab,
    "an architecture": ModelConfig.load,
    "questions": examples.read_dataset,
    "questions in lines": lambda path: list(examples.read_pieces(path.rename(f"{path}.jsonl"), strict=True)),
    "compressed questions": lambda path: examples.read_dataset(path.rename(f"{path}.json.gz")),
    "the input of a stage": manifest.content_hash,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_it_at_once(reader: str, kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "file")
    with pytest.raises(InputError, match="not a regular file"):
        READERS[reader](tmp_path / "file")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["huggingface", "google"])
def test_an_import_refuses_it_in_the_place_of_each_of_its_files(form: str, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    their_folder(folder) if form == "huggingface" else original_folder(folder, original(SMALL))
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        KINDS[kind](path)
        with pytest.raises(InputError, match=f"{path.name}: not a regular file"):
            convert.main(["import", form, str(folder), str(tmp_path / "run")])
        path.unlink()
        path.write_bytes(content)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def pipe() -> Iterator[Path]:
    """A pipe as the shell opens one for `<(...)`, with a question in it."""
    read, write = os.pipe()
    question = {"id": "1", "question": "Who?", "context": "Ann", "answers": []}
    paragraph = {"context": question["context"], "qas": [question]}
    text = json.dumps({"data": [{"paragraphs": [paragraph]}]})

    def fill() -> None:
        with open(write, "w") as stream:
            stream.write(text)

    writer = threading.Thread(target=fill)
    writer.start()
    yield Path(f"/dev/fd/{read}")
    writer.join()
    os.close(read)


def test_questions_may_come_from_a_pipe_of_the_shell(pipe: Path) -> None:
    assert examples.read_dataset(pipe).passages == ["Ann"]


def test_a_file_that_is_read_twice_may_not(pipe: Path) -> None:
    with pytest.raises(InputError, match="not a regular file"):
        files.sha256(pipe)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "a\0.safetensors",
        "\ud800.safetensors",
        "model.bin",
        ".safetensors",
        "x.safetensors\n",
        "\u202e.safetensors",
        "config.json",
    ],
)
def test_an_index_names_files_of_its_own_folder_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "theirs"
    their_folder(folder)
    (folder / huggingface.WEIGHTS).rename(folder / "model-00001.safetensors")
    file_of = {"a": "model-00001.safetensors", "b": name}
    (folder / huggingface.INDEX).write_text(json.dumps({"weight_map": file_of}))

    def hashed(path: Path) -> str:
        pytest.fail(f"{path} was read")

    monkeypatch.setattr(files, "sha256", hashed)
    with pytest.raises(InputError, match=r"index\.json: .* is not a file of this folder") as raised:
        convert.main(["import", "huggingface", str(folder), str(tmp_path / "run")])
    assert str(raised.value).isascii() and "\0" not in str(raised.value)


@pytest.mark.parametrize("names", [["\ud800", "b"], ["a", "b\udfff"]])
def test_half_a_surrogate_pair_in_a_label_is_refused(names: list[str], tmp_path: Path) -> None:
    fields = {"id2label": {str(number): name for number, name in enumerate(names)}}
    with pytest.raises(InputError, match=r"half a surrogate pair in '.*\\ud"):
        architecture.labels(fields, 2, tmp_path / "config.json")


def test_half_a_surrogate_pair_in_a_token_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    their_folder(folder)
    tokens = (folder / "vocab.txt").read_text().split("\n")[:-1]
    (folder / "vocab.txt").unlink()
    ids = {token: number for number, token in enumerate([*tokens[:-1], "\ud800x"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": ids}}))
    with pytest.raises(InputError, match=r"line 31: '\\ud800x' is not a token"):
        convert.main(["import", "huggingface", str(folder), str(tmp_path / "run")])


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path, run_module: RunModule) -> None:
    folder, run = tmp_path / "theirs", tmp_path / "run"
    their_folder(folder)
    convert.main(["import", "huggingface", str(folder), str(run)])
    folder.rename(other := tmp_path / "theirs\udcff")
    done = run_module("bert.convert", "import", "huggingface", other, tmp_path / "new")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith("is not UTF-8; rename the file or folder")
    (tmp_path / "here\udcfe").mkdir()  # may be the current folder, of which no argument says anything
    run.rename(other := tmp_path / "here\udcfe" / "run")
    with pytest.raises(UsageError, match="only UTF-8"):
        convert.main(["export", "google", str(other), str(tmp_path / "out")])
