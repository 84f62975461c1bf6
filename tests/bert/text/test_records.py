"""Records come back as written, at random, and damage is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.core import manifest
from bert.core.errors import InputError, IntegrityError
from bert.text import frames
from bert.text.records import Dataset
from tests.finished import examples, sign, write


def writable(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def test_tensorflow_reads_the_same_records(dataset: Path) -> None:
    data = Dataset(dataset, "train")
    files = [str(path) for path in data.paths]
    spec = {name: tf.io.FixedLenFeature(f["shape"], f["dtype"]) for name, f in data.spec.items()}
    theirs = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(files)]
    assert len(theirs) == len(data) == 41
    ours = data.read(np.arange(41))
    for row, example in enumerate(theirs):
        for name, value in example.items():
            np.testing.assert_array_equal(value, ours[name][row])


def test_any_order_of_indices_across_shards(dataset: Path) -> None:
    data = Dataset(dataset, "train")
    whole, picked = data.read(np.arange(41))["input_ids"].numpy(), [40, 0, 17, 16, 17]
    np.testing.assert_array_equal(data.read(np.array(picked))["input_ids"], whole[picked])


def test_a_flipped_bit_anywhere_in_a_record_is_named_and_others_are_read(dataset: Path, tmp_path: Path) -> None:
    folder = writable(dataset, tmp_path)
    path = folder / "train-00000.tfrecord"
    begin, end = frames.read_index(path)[5:7].tolist()
    whole, data = path.read_bytes(), Dataset(folder, "train")
    others = [data.payload(4), data.payload(6)]
    for at in range(begin, end):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(IntegrityError, match=rf"train-00000.tfrecord: record 5 at byte {begin} is damaged"):
            data.payload(5)
        assert [data.payload(4), data.payload(6)] == others


def flip(path: Path, record: int) -> None:
    content = bytearray(path.read_bytes())
    content[int(np.fromfile(frames.index_path(path), "<u8")[record]) + 40] ^= 4
    path.write_bytes(content)


def test_exactly_the_damaged_records_are_skipped_and_no_more_than_allowed(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = writable(dataset, tmp_path)
    good = Dataset(folder, "train").read(np.arange(41))["input_ids"].numpy()
    second = int(np.fromfile(frames.index_path(folder / "train-00000.tfrecord"), "<u8").size - 1)
    for path, record in (("train-00000.tfrecord", 5), ("train-00000.tfrecord", 6), ("train-00001.tfrecord", 1)):
        flip(folder / path, record)
    data, bad = Dataset(folder, "train", skip_bad=3), {5, 6, second + 1}
    for _ in range(2):  # a record is counted once, however often it is met
        found = data.read(np.arange(41))["input_ids"].numpy()
        for index in range(41):
            stands_in = next(other for other in range(index, 41) if other not in bad)
            np.testing.assert_array_equal(found[index], good[stands_in])
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert data.skipped == bad and len(warnings) == 3 and "3 of at most 3" in warnings[-1]
    with pytest.raises(IntegrityError, match=r"train-00001\.tfrecord: record 1 at byte"):
        Dataset(folder, "train", skip_bad=2).read(np.arange(41))


def test_a_dataset_without_a_good_record_ends_whatever_may_be_skipped(dataset: Path, tmp_path: Path) -> None:
    folder = writable(dataset, tmp_path)
    for shard, count in (("train-00000.tfrecord", 17), ("train-00001.tfrecord", 24)):
        for record in range(count):
            flip(folder / shard, record)
    with pytest.raises(IntegrityError, match="every record is damaged"):
        Dataset(folder, "train", skip_bad=10**6).payload(3)


@pytest.mark.parametrize("entry", [2**62, 0, 1], ids=["beyond the file", "backwards", "too short"])
def test_a_damaged_index_is_named(entry: int, dataset: Path, tmp_path: Path) -> None:
    folder = writable(dataset, tmp_path)
    index = frames.index_path(folder / "train-00000.tfrecord")
    offsets = np.fromfile(index, "<u8")
    offsets[6] = entry if entry != 1 else offsets[5] + 1
    offsets.tofile(index)
    with pytest.raises(IntegrityError, match=r"train-00000.tfrecord.index: entry 5 is damaged"):
        Dataset(folder, "train").read(np.array([5]))


def shorter(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:-8])


def longer(index: Path) -> None:
    index.write_bytes(index.read_bytes() + bytes(8))


def shifted(index: Path) -> None:
    (np.fromfile(index, "<u8") + 1).tofile(index)


@pytest.mark.parametrize("change", [shorter, longer, shifted, Path.unlink, lambda index: index.write_bytes(b"")])
def test_an_index_that_is_not_of_its_file_is_named_at_the_start(
    change: Callable[[Path], None], dataset: Path, tmp_path: Path
) -> None:
    """Even if the manifest was signed after the change."""
    folder = writable(dataset, tmp_path)
    index = frames.index_path(folder / "train-00001.tfrecord")
    change(index)
    with pytest.raises(IntegrityError, match=r"train-00001.tfrecord.index: "):
        Dataset(folder, "train")
    if index.exists():
        sign(folder)
        with pytest.raises(IntegrityError, match=r"train-00001.tfrecord.index: "):
            Dataset(folder, "train")


def test_a_vocabulary_that_is_not_of_the_records_is_named_at_the_start(dataset: Path, tmp_path: Path) -> None:
    folder = writable(dataset, tmp_path)
    path = folder / "vocab.txt"
    path.write_text(path.read_text().replace("w17\n", "x17\n"))
    with pytest.raises(IntegrityError, match=r"vocab.txt: the content has changed"):
        Dataset(folder, "train")
    sign(folder, extra=manifest.load(folder).extra | {"vocab_sha256": "0" * 64})
    with pytest.raises(IntegrityError, match=r"vocab.txt: the records were made with another vocabulary"):
        Dataset(folder, "train")


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 0},
        {"vocab_size": "99"},
        {"features": {"input_ids": {"shape": [-3], "dtype": "int64"}}},
        {"features": {"input_ids": {"shape": [10**17], "dtype": "int64"}}},
        {"features": {"input_ids": {"shape": 13, "dtype": "int64"}}},
        {"features": {"input_ids": {"shape": [13], "dtype": "string"}}},
        {"features": [1]},
        {"instances": {"max_seq_length": 13}},
        {"instances": []},
    ],
)
def test_a_description_that_cannot_be_right_is_refused(
    change: dict[str, object], dataset: Path, tmp_path: Path
) -> None:
    folder = writable(dataset, tmp_path)
    sign(folder, extra=manifest.load(folder).extra | change)
    with pytest.raises(IntegrityError, match=r"manifest.json: (no )?extra"):
        Dataset(folder, "train")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feature", "number"),
    [
        ("input_ids", 99),
        ("input_ids", -1),
        ("input_ids", 1 << 32),  # 0 as an int32
        ("masked_lm_ids", 99),
        ("masked_lm_positions", 32),
        ("segment_ids", 2),
        ("next_sentence_labels", 2),
    ],
)
def test_a_number_that_is_no_id_place_or_label_is_named(
    feature: str, number: int, dataset: Path, tmp_path: Path
) -> None:
    """A look-up of one raises an error of TensorFlow on a CPU, and gives zeros on a GPU."""
    folder = writable(dataset, tmp_path)
    rows = examples(folder / "train-00000.tfrecord")
    rows[5][feature][-1] = number
    write(folder / "train-00000.tfrecord", rows)
    sign(folder)
    data = Dataset(folder, "train")
    with pytest.raises(IntegrityError, match=f"train-00000.tfrecord: record 5 has a number in {feature} that is not"):
        data.read(np.array([40, 5, 3]))
    data.read(np.array([40, 4, 3]))


def test_a_cut_or_missing_shard_is_named_before_anything_is_read_and_an_extra_one_is_not_read(
    dataset: Path, tmp_path: Path
) -> None:
    folder = writable(dataset, tmp_path)
    path = folder / "train-00001.tfrecord"
    (folder / "train-00002.tfrecord").write_bytes(path.read_bytes())
    assert len(Dataset(folder, "train")) == 41
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match=r"train-00001.tfrecord: the file has"):
        Dataset(folder, "train")
    path.unlink()
    with pytest.raises(IntegrityError, match=r"train-00001.tfrecord: the file is missing"):
        Dataset(folder, "train")


def test_a_folder_without_manifest_or_split_is_refused(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no TFRecords of split 'test'"):
        Dataset(dataset, "test")
    with pytest.raises(InputError, match=r"no manifest\.json"):
        Dataset(tmp_path, "train")
