"""One flipped bit in any file that a stage or the training reads: exit 4, in one line that names the file."""

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from random import Random

import pytest

from bert import cli, pretrain
from bert.errors import IntegrityError
from bert.inputs import records
from bert.recipes import RECIPES
from bert.storage import manifest, outputs
from data.pipeline import parts
from tests import training

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

FLIPS = 9  # of each file, besides its first and its last byte

STAGES = {  # output -> the command that makes it
    "source": "synthetic --articles 40 --books 4 --train_questions 30 --dev_questions 9",
    "wikipedia": "wikipedia --source source/wiki.xml.bz2",
    "books": "books --source source/books",
    "documents": "documents --source wikipedia books --workers 1",
    "shards": "shards --source documents --shards 2",
    "vocab": "vocab --source shards --size 300",
    "tfrecords": "tfrecords --source shards --vocab vocab/vocab.txt --max_seq_length 32 --dupe_factor 1 --workers 1",
    "bpe": "bpe --source wikipedia books --size 300",
    "tokens": "tokens --source wikipedia books --tokenizer bpe --workers 1",
}
READERS = {  # a command, and the files that it reads
    "wikipedia --source source/wiki.xml.bz2": ["source/wiki.xml.bz2", "source/manifest.json"],
    "wikipedia --source dump": ["dump/*"],
    "books --source source/books --workers 1": ["source/books/*.txt", "source/manifest.json"],
    "books --source library --workers 1": ["library/*/*.txt", "library/manifest.json"],
    "text --source library --workers 1": ["library/*/*.txt", "library/manifest.json"],
    "documents --source wikipedia books --workers 1": ["wikipedia/*", "books/*"],
    "shards --source documents --shards 2": ["documents/part-*", "documents/manifest.json"],
    "vocab --source shards --size 300": ["shards/train-*", "shards/manifest.json"],
    "vocab --vocab vocab/vocab.txt": ["vocab/*"],
    "tfrecords --source shards --vocab vocab/vocab.txt --max_seq_length 32 --workers 1": ["shards/*", "vocab/*"],
    "tfrecords --source shards --vocab vocab/vocab.txt --kind documents --workers 1": ["shards/*", "vocab/*"],
    "bpe --source wikipedia books --size 300": ["wikipedia/*", "books/*"],
    "tokens --source wikipedia books --tokenizer bpe --workers 1": ["wikipedia/*", "books/*", "bpe/*"],
}


def run(command: str, output: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `python -m data.COMMAND --output output` in this process; return its exit code."""
    name, *arguments = command.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments, "--output", str(output)])
    with pytest.raises(SystemExit) as ending:
        cli.main(importlib.import_module("data.synthetic.__main__" if name == "synthetic" else f"data.{name}").main)
    return int(str(ending.value.code))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The outputs of all stages, and downloads of a dump and of books."""
    at = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(at)
        for name, command in STAGES.items():
            assert run(command, Path(name), monkeypatch) == 0
        downloaded(
            Path("dump"), lambda partial: shutil.copy("source/wiki.xml.bz2", partial / "enwiki-pages-articles.xml.bz2")
        )
        downloaded(Path("library"), lambda partial: shutil.copytree("source/books", partial / "train"))
        yield at


def downloaded(folder: Path, copy: Callable[[Path], object]) -> None:
    def make(partial: Path) -> outputs.StageResult:
        copy(partial)
        return outputs.StageResult(counts={}, extra={"sources": {}})

    outputs.build(folder, stage="download", parameters={}, inputs=[], make=make)


def flipped(path: Path, count: int) -> Generator[str, None, None]:
    """Yield with one bit of the file flipped, at each of several places; at the end, the file is as before."""
    content, draw = path.read_bytes(), Random(path.name)
    places = sorted({0, len(content) - 1, *(draw.randrange(len(content)) for _ in range(count))})
    try:
        for place in places:
            harmed = bytearray(content)
            harmed[place] ^= 1 << draw.randrange(8)
            path.write_bytes(harmed)
            yield f"{path}, byte {place}"
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize("command", READERS)
def test_a_flipped_bit_in_an_input_of_a_stage_is_noticed(
    command: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(whole)
    inputs = [path for pattern in READERS[command] for path in sorted(Path().glob(pattern)) if path.is_file()]
    assert len(inputs) >= 2
    for path in inputs:
        for where in flipped(path, FLIPS):
            output = tmp_path / where.replace("/", "-") / "out"  # without the tasks that an earlier attempt finished
            code = run(command, output, monkeypatch)
            said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
            assert code == 4 and len(said) == 1 and str(path) in said[0], (where, said)
            assert not output.exists()
    assert run(command, tmp_path / "out", monkeypatch) == 0


def test_a_flipped_bit_between_the_passes_of_a_stage_is_noticed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second pass of data.documents may run days after the first, if the stage was stopped."""
    monkeypatch.chdir(whole)
    keys = importlib.import_module("data.pipeline.duplicates").document_keys
    path = Path("books/part-00000-00000.jsonl")
    assert path.exists()
    harm = flipped(path, 0)

    def then_harm(source: parts.Part) -> object:
        result = keys(source)
        if source.path == path:
            next(harm)
        return result

    monkeypatch.setattr("data.pipeline.duplicates.document_keys", then_harm)
    assert run(STAGES["documents"], tmp_path / "out", monkeypatch) == 4
    assert f"error: {path}: " in capsys.readouterr().err
    harm.close()


def test_a_damaged_marker_of_a_task_is_named(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(whole)
    command = STAGES["tfrecords"]
    assert run(f"{command} --task 0 --of 2", tmp_path / "out", monkeypatch) == 0
    marker = next(tmp_path.rglob("private/*.json"))
    for where in flipped(marker, FLIPS):
        assert run(f"{command} --task 1 --of 2", tmp_path / "out", monkeypatch) == 4, where
        assert f"error: {marker}: " in capsys.readouterr().err
    assert run(f"{command} --task 1 --of 2", tmp_path / "out", monkeypatch) == 0
    manifest.verify(manifest.load(tmp_path / "out"))


def test_every_flipped_bit_of_a_datasets_manifest_is_noticed_by_the_training(dataset: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(dataset, tmp_path / "dataset"))
    path, config = folder / "manifest.json", RECIPES["demo_phase1"]()
    content = path.read_bytes()
    with open(path, "r+b", buffering=0) as stream:
        for bit in range(8 * len(content)):
            place = bit // 8
            os.pwrite(stream.fileno(), bytes([content[place] ^ 1 << bit % 8]), place)
            with pytest.raises(IntegrityError, match=r"manifest\.json: "):
                pretrain.datasets(folder, config)
            os.pwrite(stream.fileno(), content[place : place + 1], place)
    pretrain.datasets(folder, config)


def test_a_flipped_bit_in_a_file_of_the_dataset_is_noticed_by_the_training(whole: Path, tmp_path: Path) -> None:
    for source in (whole / "tfrecords", training.write_dataset(tmp_path / "tiny")):
        folder = Path(shutil.copytree(source, tmp_path / "copy"))
        for path in sorted(folder.iterdir()):
            for where in flipped(path, FLIPS):
                with pytest.raises(IntegrityError) as refused:
                    for split in pretrain.datasets(folder, RECIPES["demo_phase1"]()):
                        assert isinstance(split, records.Dataset)
                        for index in range(len(split)):
                            split.payload(index)
                assert path.name.removesuffix(".index") in str(refused.value), where
        shutil.rmtree(folder)
