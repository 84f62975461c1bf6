"""One flipped bit in any file that a stage or the training reads: exit 4, in one line that names the file."""

import importlib
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random

import pytest

from bert import pretraining
from bert.core import manifest, outputs
from bert.core.errors import IntegrityError
from bert.recipes import RECIPES
from bert.text import records
from data.pipeline import document_files
from tests import training
from tests.faults.stages import SHAPE, STAGES, run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

FLIPS = 3  # of each file, besides its first and its last byte

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
    f"tfrecords {SHAPE} --workers 1": ["shards/*", "vocab/*"],
    f"tfrecords {SHAPE} --kind documents --workers 1": ["shards/*", "vocab/*"],
    "bpe --source wikipedia books --size 300": ["wikipedia/*", "books/*"],
    "tokens --source wikipedia books --tokenizer bpe --workers 1": ["wikipedia/*", "books/*", "bpe/*"],
}


@pytest.fixture(scope="module")
def inputs(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the outputs of all stages, and downloads of a dump and of books."""
    at = Path(shutil.copytree(whole, tmp_path_factory.mktemp("inputs") / "whole"))
    source = at / "source"
    downloaded(at / "dump", lambda to: shutil.copy(source / "wiki.xml.bz2", to / "enwiki-pages-articles.xml.bz2"))
    downloaded(at / "library", lambda to: shutil.copytree(source / "books", to / "train"))
    return at


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
def test_a_flipped_bit_in_an_input_of_a_stage_is_noticed(command: str, inputs: Path, tmp_path: Path) -> None:
    read = [path for pattern in READERS[command] for path in sorted(inputs.glob(pattern)) if path.is_file()]
    assert len(read) >= 2
    for path in read:
        for where in flipped(path, FLIPS):
            output = tmp_path / where.replace("/", "-") / "out"  # without the tasks that an earlier attempt finished
            code, said = run(inputs, command, output)
            said = [line for line in said if line.startswith("error: ")]
            assert code == 4 and len(said) == 1 and str(path.relative_to(inputs)) in said[0], (where, said)
            assert not output.exists()
    assert run(inputs, command, tmp_path / "out")[0] == 0


def test_a_flipped_bit_between_the_passes_of_a_stage_is_noticed(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second pass of data.documents may run days after the first, if the stage was stopped."""
    keys = importlib.import_module("data.pipeline.duplicates").document_keys
    path = Path("books/part-00000-00000.jsonl")
    harm = flipped(inputs / path, 0)

    def then_harm(source: document_files.Part) -> object:
        result = keys(source)
        if source.path == path:
            next(harm)
        return result

    monkeypatch.setattr("data.pipeline.duplicates.document_keys", then_harm)
    code, said = run(inputs, STAGES["documents"][0], tmp_path / "out")
    assert code == 4 and said[-1].startswith(f"error: {path}: ")
    harm.close()


def test_a_damaged_marker_of_a_task_is_named(inputs: Path, tmp_path: Path) -> None:
    command = f"tfrecords {SHAPE} --dupe_factor 1 --workers 1"
    assert run(inputs, f"{command} --task 0 --of 2", tmp_path / "out")[0] == 0
    marker = next(tmp_path.rglob("private/*.json"))
    for where in flipped(marker, FLIPS):
        code, said = run(inputs, f"{command} --task 1 --of 2", tmp_path / "out")
        assert code == 4 and said[-1].startswith(f"error: {marker}: "), where
    assert run(inputs, f"{command} --task 1 --of 2", tmp_path / "out")[0] == 0
    manifest.verify(manifest.load(tmp_path / "out"))


def test_a_flipped_bit_in_a_file_of_the_dataset_is_noticed_by_the_training(whole: Path, tmp_path: Path) -> None:
    for source in (whole / "instances", training.write_dataset(tmp_path / "tiny")):
        folder = Path(shutil.copytree(source, tmp_path / "copy"))
        for path in sorted(folder.iterdir()):
            for where in flipped(path, FLIPS):
                with pytest.raises(IntegrityError) as refused:
                    for split in pretraining.datasets(folder, RECIPES["demo_phase1"].phases[0].config):
                        assert isinstance(split, records.Dataset)
                        for index in range(len(split)):
                            split.payload(index)
                assert path.name.removesuffix(".index") in str(refused.value), where
        shutil.rmtree(folder)
