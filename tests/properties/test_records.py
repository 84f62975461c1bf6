"""Damaged TFRecords, indices and records end as named damage, also where every checksum is right."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.core import manifest, outputs
from bert.text import frames, instances, records, tf_example, vocabulary
from bert.text.instance_config import InstanceConfig
from bert.text.normalization import UNCASED
from bert.text.vocabulary import SPECIAL
from data.audit import checks
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, survives
from tests.training import TOKENS, VOCAB, instance

pytestmark = pytest.mark.slow

NAME, OTHER = "train-00000.tfrecord", "train-00001.tfrecord"
COUNT, OTHERS = 7, 5
SPECIALS = {token: number for number, token in enumerate(SPECIAL)}
CONFIG = InstanceConfig(max_seq_length=TOKENS, max_predictions_per_seq=3)


def chunk(random: np.random.Generator) -> dict[str, np.ndarray]:
    lengths = random.integers(1, 4, 3)
    ids = random.integers(5, VOCAB, lengths.sum())
    return {"ids": ids, "sentences": lengths, "document": random.integers(0, 3, 1)}


def write(folder: Path, payloads: list[bytes], kind: str) -> Path:
    """Write a dataset of two files, the first with these payloads; all checksums and sizes are right."""

    def make(partial: Path) -> outputs.StageResult:
        random, sample = np.random.default_rng(7), chunk if kind == "documents" else instance
        others = [tf_example.encode(sample(random)) for _ in range(OTHERS)]
        for name, contents in ((NAME, payloads), (OTHER, others)):
            with frames.RecordWriter(partial / name) as writer:
                for content in contents:
                    writer.write(content)
        vocabulary.write([*SPECIAL, *(f"w{i}" for i in range(VOCAB - 5))], UNCASED, partial)
        extra = {
            "kind": kind,
            "features": instances.feature_spec(CONFIG),
            "instances": dataclasses.asdict(CONFIG),
            "vocab_size": VOCAB,
        }
        return outputs.StageResult(counts={}, records={NAME: len(payloads), OTHER: OTHERS}, extra=extra)

    shutil.rmtree(folder, ignore_errors=True)
    outputs.build(folder, stage="tfrecords", parameters={}, inputs=[], make=make)
    return folder


@pytest.fixture(scope="module", params=["instances", "documents"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def payloads(kind: str) -> list[bytes]:
    random, sample = np.random.default_rng(1), chunk if kind == "documents" else instance
    return [tf_example.encode(sample(random)) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def good(kind: str, payloads: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("records") / "good", payloads, kind)


def read(folder: Path, indices: list[int], skip_bad: int = 0) -> dict[str, np.ndarray]:
    source = records.samples(folder, "train", seed=3, skip_bad=skip_bad)
    if isinstance(source, records.Dataset):
        source.sizes(np.array(indices))
    tensors = source.read(np.array(indices), np.arange(len(indices)))
    return {name: tensor.numpy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", [NAME, f"{NAME}.index"])
@given(data=st.data())
@fuzz
def test_a_damaged_file_is_refused_or_gives_the_same_records(
    name: str, data: st.DataObject, good: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = good.parent / "bad"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    content = data.draw(damaged((good / name).read_bytes()))
    indices = data.draw(st.lists(st.integers(0, COUNT + OTHERS - 1), min_size=1, max_size=5))
    (folder / name).write_bytes(content)
    found = survives(lambda: read(folder, indices))
    if found:
        for key, expected in read(good, indices).items():
            np.testing.assert_array_equal(found[key], expected)
    survives(lambda: read(folder, indices, skip_bad=COUNT))
    survives(lambda: list(frames.walk(folder / NAME, frames.read_index(folder / NAME))))


@given(data=st.data())
@fuzz
def test_a_record_that_is_no_example_is_refused_although_its_checksum_is_right(
    data: st.DataObject, good: Path, payloads: list[bytes], kind: str
) -> None:
    row = data.draw(st.integers(0, COUNT - 1))
    changed = [*payloads]
    changed[row] = data.draw(damaged(payloads[row]))
    folder = write(good.parent / "rewritten", changed, kind)
    described = manifest.read(folder)
    expected = checks.RecordFormat(checks.KINDS[kind].features(described.extra), VOCAB, SPECIALS)
    survives(lambda: checks.KINDS[kind].check(changed, expected))
    found = survives(lambda: read(folder, [row]))
    if found and kind == "instances":
        assert {name: list(value.shape[1:]) for name, value in found.items()} == {
            name: facts["shape"] for name, facts in instances.feature_spec(CONFIG).items()
        }
