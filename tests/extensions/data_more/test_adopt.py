"""TFRecords of other programs, written here as google-research/bert does, become a dataset that trains."""

import bz2
import gzip
import json
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert.core.errors import InputError
from bert.text import records
from bert.text.vocabulary import SPECIAL
from extensions.data_more import adopt as stages

WORDS = [*SPECIAL, *(f"w{number}" for number in range(94))]  # 99
LENGTH, PREDICTIONS = 37, 5
Stage = Callable[..., tuple[int, list[str]]]
Fields = dict[str, Any]


def fields(number: int) -> Fields:
    """The features of one sample: [CLS] tokens [SEP] tokens [SEP], some of them predicted."""
    random = np.random.default_rng(number)
    first, second = random.integers(2, 12, 2)
    tokens = [2, *random.integers(5, 99, first), 3, *random.integers(5, 99, second), 3]
    places = [place for place, token in enumerate(tokens) if token > 4]
    masked = sorted(random.choice(places, random.integers(1, 1 + min(PREDICTIONS, len(places))), replace=False))

    def padded(values: Any, size: int) -> list[int]:
        return [*map(int, values), *[0] * (size - len(values))]

    return {
        "input_ids": padded(tokens, LENGTH),
        "input_mask": padded([1] * len(tokens), LENGTH),
        "segment_ids": padded([0] * (first + 2) + [1] * (second + 1), LENGTH),
        "masked_lm_positions": padded(masked, PREDICTIONS),
        "masked_lm_ids": padded(random.integers(5, 99, len(masked)), PREDICTIONS),
        "masked_lm_weights": [1.0] * len(masked) + [0.0] * (PREDICTIONS - len(masked)),
        "next_sentence_labels": [int(random.integers(2))],
    }


def serialized(given: Fields) -> bytes:
    features = {
        name: tf.train.Feature(float_list=tf.train.FloatList(value=values))
        if name == "masked_lm_weights"
        else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in given.items()
    }
    content: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return content


def write(path: Path, samples: list[Fields], compression: str | None = None) -> Path:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for sample in samples:
            writer.write(serialized(sample))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files, one of them compressed, and the vocabulary."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    write(folder / "part_0.tfrecord", [fields(n) for n in range(23)])
    write(folder / "part_1.tfrecord.gz", [fields(n) for n in range(23, 40)], "GZIP")
    write(folder / "part_2.tf_record", [fields(n) for n in range(40, 51)])
    return folder


def adopt(stage: Stage, source: Path, output: Path, *more: object) -> tuple[int, list[str]]:
    return stage("adopt", "--source", source, "--vocab", source.parent / "vocab.txt", "--output", output, *more)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["false", pytest.param("true", marks=pytest.mark.thorough)])
def test_every_record_is_there_as_it_was(link: str, stage: Stage, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "ours"
    code, said = adopt(stage, source, output, "--link", link, "--workers", 1)
    assert code == 0, said
    numbers = {"train": range(40), "heldout": range(40, 51)}
    for split, expected in numbers.items():
        data = records.Dataset(output, split)
        found = {name: x.numpy() for name, x in data.read(np.arange(len(data))).items()}
        for row, number in enumerate(expected):
            for name, values in fields(number).items():
                np.testing.assert_array_equal(found[name][row], values)
        assert len(data) == len(expected)
    shared = os.path.samefile(source / "part_0.tfrecord", output / "train-00000-of-00002.tfrecord")
    assert shared == (link == "true")
    content = json.loads((output / "manifest.json").read_text())
    assert content["parameters"] == {"heldout_files": 1, "lower_case": True}
    samples = [fields(number) for number in range(40)]
    assert content["counts"]["train"] == {
        "instances": 40,
        "predictions": int(sum(sum(sample["masked_lm_weights"]) for sample in samples)),
        "pairs_of_label_1": sum(sample["next_sentence_labels"][0] for sample in samples),
    }
    assert stage("verify", output)[0] == 0
    before = (output / "manifest.json").stat().st_mtime_ns
    assert adopt(stage, source, output, "--link", link)[0] == 0
    assert (output / "manifest.json").stat().st_mtime_ns == before  # finished stages return at once


def changed(**values: Any) -> list[Fields]:
    return [fields(1), fields(2) | values]


IDS = fields(2)["input_ids"]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (changed(input_ids=[99, *IDS[1:]]), "record 1: input_ids: an id outside"),
        (changed(next_sentence_labels=[2]), "record 1: next_sentence_labels"),
        (changed(input_ids=IDS[:-1]), "record 1: "),
        ([{name: x for name, x in fields(1).items() if name != "segment_ids"}], "have no segment_ids"),
        ([], "no"),
    ],
)
def test_what_is_no_sample_is_named(
    samples: list[Fields], message: str, stage: Stage, source: Path, tmp_path: Path
) -> None:
    write(source / "part_0.tfrecord", samples)
    code, said = adopt(stage, source, tmp_path / "ours", "--workers", 1)
    assert code == 3 and not (tmp_path / "ours").exists()
    (line,) = [line for line in said if line.startswith("error: ")]
    assert str(source / "part_0.tfrecord") in line
    assert re.search(message, line), line


def test_a_sample_may_have_no_prediction_but_not_all_of_a_file(stage: Stage, source: Path, tmp_path: Path) -> None:
    """google-research/bert masks no word of a short sequence whose words all have several pieces."""
    nothing = {"masked_lm_positions": [0] * 5, "masked_lm_ids": [0] * 5, "masked_lm_weights": [0.0] * 5}
    write(source / "part_0.tfrecord", changed(**nothing))
    assert adopt(stage, source, tmp_path / "ours", "--workers", 1)[0] == 0
    assert stage("verify", tmp_path / "ours", "--workers", 1)[0] == 0
    write(source / "part_0.tfrecord", [fields(3) | nothing] * 2)
    code, said = adopt(stage, source, tmp_path / "none", "--workers", 1)
    assert code == 3 and any("part_0.tfrecord: no prediction in its records" in line for line in said)


@pytest.mark.parametrize("name", ["part_0.tfrecord", "part_1.tfrecord.gz", "part_2.tf_record"])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damage_is_named(name: str, damage: str, stage: Stage, source: Path, tmp_path: Path) -> None:
    content = bytearray((source / name).read_bytes())
    if damage == "cut":
        del content[-30:]
    else:
        content[len(content) // 2] ^= 16
    (source / name).write_bytes(content)
    code, said = adopt(stage, source, tmp_path / "ours", "--workers", 1)
    assert code == 3 and not (tmp_path / "ours").exists()
    (line,) = [line for line in said if line.startswith("error: ")]
    assert str(source / name) in line
    assert name.endswith(".gz") or re.search(r": record \d+ at byte \d+: (wrong checksum of|cut: )", line)


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_gzip_members_are_read_in_any_order(order: tuple[int, ...], stage: Stage, source: Path, tmp_path: Path) -> None:
    """Members follow each other, also an empty one (RFC 1952, 2.2); `gzip -dc` gives all of their content."""
    parts = [write(tmp_path / f"{n}", [fields(n) for n in range(17 * n)], "GZIP").read_bytes() for n in range(3)]
    (source / "part_0.tfrecord").write_bytes(b"".join(parts[number] for number in order))
    assert adopt(stage, source, tmp_path / "ours", "--workers", 1)[0] == 0
    assert len(records.Dataset(tmp_path / "ours", "train")) == 17 + 34 + 17


def test_a_length_that_begins_as_gzip_does_is_a_plain_record(tmp_path: Path) -> None:
    """The length of a record, 35,615 bytes, has the bytes 1f 8b 00; gzip's method is 08 (RFC 1952, 2.3)."""
    content, long = serialized(fields(1)), tf.train.Features(feature={"more": tf.train.Feature()})
    long.feature["more"].bytes_list.value.append(b"x" * (0x8B1F - len(content) - 26))
    content += tf.train.Example(features=long).SerializeToString()
    assert len(content) == 0x8B1F
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(content)
    assert (tmp_path / "a.tfrecord").read_bytes()[:3] == b"\x1f\x8b\x00"
    assert stages._shape_of(tmp_path / "a.tfrecord").max_seq_length == len(fields(1)["input_ids"])
    stages._place(tmp_path / "a.tfrecord", tmp_path / "b", link=False)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("ZLIB", None),
        ("bzip2", bz2.compress),
        ("xz", lzma.compress),
        ("zip", lambda content: b"PK\x03\x04" + content),
        ("zstd", lambda content: b"\x28\xb5\x2f\xfd" + content),
    ],
)
def test_another_compression_is_named(name: str, pack: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [fields(1)], None if pack else "ZLIB")
    path.write_bytes(pack(path.read_bytes()) if pack else path.read_bytes())
    for read in (stages._shape_of, lambda path: stages._place(path, tmp_path / "b", link=True)):
        with pytest.raises(InputError, match=f"a.tfrecord: compressed with {name}, which is not read"):
            read(path)
    write(path, [], None if pack else "ZLIB")
    with pytest.raises(InputError, match="has no records" if pack else "compressed with ZLIB"):
        stages._shape_of(path)


def test_what_is_missing_is_named(stage: Stage, source: Path, tmp_path: Path) -> None:
    assert adopt(stage, source, tmp_path / "ours", "--heldout_files", 3)[0] == 3
    (tmp_path / "empty").mkdir()
    for given in (tmp_path / "empty", tmp_path / "nowhere", tmp_path / "vocab.txt"):
        code, said = stage(
            "adopt", "--source", given, source, "--vocab", tmp_path / "vocab.txt", "--output", tmp_path / "ours"
        )
        assert code == 3 and str(given) in said[-1]
    twice = source / "part_0.tfrecord"
    code, said = stage(
        "adopt", "--source", source, twice, "--vocab", tmp_path / "vocab.txt", "--output", tmp_path / "ours"
    )
    assert code == 3 and f"{twice}: given twice" in said[-1]
    with gzip.open(source / "a.tfrecord", "wb") as stream:
        stream.write(b"no records")
    assert adopt(stage, source, tmp_path / "ours")[0] == 3


@pytest.mark.thorough
def test_a_model_is_trained_and_evaluated_on_it(stage: Stage, source: Path, tmp_path: Path, run_module: Any) -> None:
    assert adopt(stage, source, tmp_path / "ours")[0] == 0
    run = tmp_path / "run"
    sizes = "--model.hidden_size 20 --model.num_attention_heads 5 --model.intermediate_size 28 --run.steps 2"
    done = run_module(
        "bert.pretrain", "demo_phase1", "--data.train", tmp_path / "ours", "--run.directory", run, *sizes.split()
    )
    assert done.returncode == 0, done.stderr
    told = run_module("bert.evaluate", run, "--data", tmp_path / "ours")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["samples"] == 11 and 0 < found["mlm_loss"] < 10 and 0 <= found["nsp_accuracy"] <= 100
