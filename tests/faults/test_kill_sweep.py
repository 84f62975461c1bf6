"""A stage or a checkpoint that is killed at any change of the file system goes on, and ends with the same bytes."""

import importlib
import json
import random
from pathlib import Path
from unittest.mock import patch

import pytest
import tensorflow as tf

from bert.core import manifest, outputs
from bert.text.vocabulary import SPECIAL
from bert.training import checkpoint
from data import download, shards
from data.pipeline import sources
from extensions.tokenizers import bpe
from tests import downloads, hostile, wiki_dump
from tests.faults import killing

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]

WORDS = [f"{first}{second}" for first in ("ri", "mo", "ta", "be", "lo") for second in ("ver", "rn", "ll", "st", "d")]


def sentences(draw: random.Random, count: int) -> list[str]:
    return [" ".join(draw.choices(WORDS, k=draw.randint(5, 9))).capitalize() + "." for _ in range(count)]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source for every stage: books, a dump, documents, shards, a vocabulary."""
    at, draw = tmp_path_factory.mktemp("inputs"), random.Random(5)
    (at / "books").mkdir()
    for number in range(3):
        (at / "books" / f"{number}.txt").write_text("\n".join(sentences(draw, 40)))
    (at / "dump.xml").write_text(wiki_dump.xml())

    def documents(partial: Path) -> outputs.StageResult:
        for part in range(2):
            with open(partial / f"part-0000{part}.jsonl", "w") as stream:
                for number in range(3):
                    text = "\n".join(sentences(draw, 9))
                    stream.write(json.dumps({"id": f"test:{part}-{number}", "text": text}) + "\n")
        return outputs.StageResult(counts={})

    def divided(partial: Path) -> outputs.StageResult:
        for name in ("train-00000-of-00002", "train-00001-of-00002", "heldout-00000-of-00001"):
            with open(partial / f"{name}.jsonl", "w") as stream:
                for number in range(3):
                    stream.write(json.dumps({"id": f"{name}-{number}", "sentences": sentences(draw, 9)}) + "\n")
        return outputs.StageResult(counts={"documents": 9})

    def split(partial: Path) -> outputs.StageResult:
        lines = [json.dumps({"id": f"split-{number}", "sentences": sentences(draw, 5)}) + "\n" for number in range(20)]
        for part, begin in enumerate((0, 9, 13)):
            (partial / f"part-0000{part}.jsonl").write_text("".join(lines[begin : (9, 13, 20)[part]]))
        return outputs.StageResult(counts={"documents": 20})

    outputs.build(at / "documents", stage="books", parameters={}, inputs=[], make=documents)
    outputs.build(at / "shards", stage="shards", parameters={}, inputs=[], make=divided)
    outputs.build(at / "split", stage="documents", parameters={}, inputs=[], make=split)
    bpe.main(["--source", str(at / "documents"), "--size", "300", "--output", str(at / "bpe")])
    (at / "vocab.txt").write_text("".join(f"{token}\n" for token in (*SPECIAL, *sorted(WORDS), ".")))
    return at


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder to begin in."""
    (tmp_path / "before").mkdir()
    return tmp_path / "before"


def stage(work: Path, name: str, source: Path, *more: str) -> None:
    """Run a stage as its command does."""
    module = importlib.import_module(f"data.{name}")
    with patch.object(sources, "GROUP_BYTES", 1000), patch.object(shards, "SAVED_BYTES", 1000):  # several tasks
        module.main(["--source", str(source), "--output", str(work / "out"), *more])


SIZES = ["--max_seq_length", "16", "--dupe_factor", "1"]
STAGES: dict[str, tuple[str, list[str]]] = {  # stage: its source, and more arguments; names are below `inputs`
    "books": ("books", []),
    "wikipedia": ("dump.xml", []),
    "documents": ("documents", ["--minimum_characters", "9"]),
    "tfrecords": ("shards", ["--vocab", "vocab.txt", *SIZES]),
    "tokens": ("documents", ["--tokenizer", "bpe", "--heldout", "0.3"]),
    "shards": ("split", ["--shards", "2", "--held_out_fraction", "0.2"]),
}
# The more, the longer one run takes.
EVERY = {"books": 4, "shards": 3, "tfrecords": 7, "tokens": 7, "documents": 3, "wikipedia": 2}


@pytest.mark.thorough  # the test below has one stage, in the place of an earlier output
@pytest.mark.parametrize(("workers", "after"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("name", STAGES)
def test_a_stage_of_tasks_survives_a_kill_at_any_change_and_goes_on_with_other_workers(
    name: str, workers: int, after: int, inputs: Path, empty: Path, tmp_path: Path
) -> None:
    source, more = STAGES[name]
    more = [str(inputs / word) if word in ("vocab.txt", "bpe") else word for word in more]
    arguments, again = ((name, inputs / source, *more, "--workers", str(number)) for number in (workers, after))
    kills = killing.sweep(stage, arguments, empty, tmp_path / "work", EVERY.get(name, 1), again=again)
    assert kills > 20, kills


@pytest.mark.parametrize("name", ["books", pytest.param("shards", marks=pytest.mark.thorough)])
def test_a_kill_while_an_output_is_replaced_loses_neither(name: str, inputs: Path, empty: Path, tmp_path: Path) -> None:
    source, more = STAGES[name]
    (inputs / "other").mkdir(exist_ok=True)
    (inputs / "other" / "0.txt").write_text("The river rises in a hill. It floods in spring.\n" * 9)
    earlier = (name, inputs / "other") if name == "books" else (name, inputs / source, "--shards", "1")
    stage(empty, *earlier)
    arguments, again = ((name, inputs / source, *more, "--workers", number) for number in ("1", "2"))

    def readable(work: Path) -> None:
        """Between the two renames there is no output; the same command ends all the same, as the sweep checks."""
        if (work / "out").exists():
            manifest.verify(manifest.load(work / "out", name))

    sizes = (empty, tmp_path / "work", EVERY[name])
    assert killing.sweep(stage, arguments, *sizes, after_kill=readable, again=again) > 20


def fetch(work: Path, url: str) -> None:
    """Download a dump from a local server."""
    places = ["--dumps_url", url, "--mirror", f"{url}/mirror", "--output", str(work / "out"), "--connections", "1"]
    download.main(["wikipedia", *places])


def test_a_download_survives_a_kill_at_any_change(empty: Path, tmp_path: Path) -> None:
    with hostile.Site().running() as site:
        downloads.dump(site, "20261101")
        assert killing.sweep(fetch, (site.url,), empty, tmp_path / "work", 7) > 40


def train(work: Path) -> None:
    """Save five checkpoints, or those that are missing, as a run that resumes does."""
    run = work / "run"
    checkpoint.sweep(run)
    done = max((int(path.name.split("-")[1]) for path in checkpoint.steps(run)), default=0)
    if done:
        checkpoint.remove_old(run, done, keep=2, keep_every=4)
    for step in range(done + 1, 6):
        values = {"a": tf.fill([3, 5], float(step)), "b": tf.range(7) * step}
        checkpoint.save(run, step, values, keep=2, keep_every=4)


def test_checkpoints_survive_a_kill_at_any_change(empty: Path, tmp_path: Path) -> None:
    def whole(work: Path) -> None:
        for folder in checkpoint.steps(work / "run"):
            manifest.verify(manifest.load(folder))

    # Each save makes the same changes: other ones are hit in each of five.
    assert killing.sweep(train, (), empty, tmp_path / "work", 11, after_kill=whole) > 100
