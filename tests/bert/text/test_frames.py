"""Frames are those of TensorFlow, and damage anywhere in a file is found in the record where TensorFlow finds it."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.text import frames

PAYLOADS = (b"", b"seven b", bytes(range(31)), b"xyz")
INDEX = [0, 16, 39, 86, 105]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with frames.RecordWriter(tmp_path / "ours.tfrecord") as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    return tmp_path / "ours.tfrecord"


def theirs(path: Path) -> tuple[list[bytes], bool]:
    """The payloads that TensorFlow reads, and whether it reports damage after them."""
    found: list[bytes] = []
    try:
        for payload in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
            found.append(payload)
    except tf.errors.DataLossError:
        return found, True
    return found, False


def test_bytes_are_those_that_tensorflow_writes(path: Path, tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "theirs.tfrecord")) as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    assert path.read_bytes() == (tmp_path / "theirs.tfrecord").read_bytes()
    assert frames.read_index(path).tolist() == INDEX
    assert not len(frames.read_index(tmp_path / "theirs.tfrecord"))  # it has none


@pytest.mark.slow
def test_a_flipped_bit_is_found_where_tensorflow_finds_it_and_with_an_index_nothing_else_is_lost(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        read, is_damaged = theirs(path)
        assert is_damaged
        damaged, in_length = len(read), at - INDEX[len(read)] < frames.HEADER
        found = list(frames.walk(path))
        assert [frame.payload for frame in found[:damaged]] == read == list(PAYLOADS[:damaged])
        assert found[damaged].damage == (frames.LOST if in_length else "wrong checksum of the content")
        found = list(frames.walk(path, frames.read_index(path)))
        assert [(frame.number, frame.offset) for frame in found] == list(enumerate(INDEX[:-1]))
        assert [frame.number for frame in found if frame.damage] == [damaged]
        assert all(frame.payload == PAYLOADS[frame.number] for frame in found if not frame.damage)
        if in_length:
            assert found[damaged] == (damaged, INDEX[damaged], b"", "wrong checksum of the length")


@pytest.mark.slow
def test_a_cut_is_named_after_the_records_that_tensorflow_reads(path: Path) -> None:
    """TensorFlow takes a length that is cut for the end of the file."""
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        read, _ = theirs(path)
        found = list(frames.walk(path))
        assert [frame.payload for frame in found if not frame.damage] == read
        begin, end = INDEX[len(read)], INDEX[len(read) + 1]
        left = size - begin
        rest = f"{left} of its {end - begin} bytes" if left >= frames.HEADER else f"only {left} of its bytes"
        assert found[len(read) :] == ([(len(read), begin, b"", f"cut: {rest} are left")] if left else [])


@pytest.mark.parametrize("index", [[0, 16], [0, 15, 39, 86], [0, 16, 16, 86], [0, 16, 10**6, 86], [0, 16, 2**63, 86]])
def test_an_index_that_cannot_be_right_is_not_followed(index: list[int], path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[INDEX[1]] ^= 1
    path.write_bytes(content)
    *_, last = frames.walk(path, np.array(index, np.uint64))
    assert (last.number, last.offset, last.damage) == (1, INDEX[1], frames.LOST)


def test_batches_have_all_frames_in_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BATCH", 3)
    assert [[frame.payload for frame in batch] for batch in frames.batches(path)] == [
        list(PAYLOADS[:3]),
        list(PAYLOADS[3:]),
    ]
