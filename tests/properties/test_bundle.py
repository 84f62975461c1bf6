"""Damaged checkpoints of google-research/bert are refused, also where every checksum is right."""

from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.convert import google
from bert.convert.bundle import Bundle, Damaged
from bert.training import checkpoint
from tests.bert.convert import folders
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, survives

FOOTER = 48


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "google"
    folders.original_folder(folder, folders.original(folders.SMALL))
    return folder


@pytest.fixture(scope="module")
def expected(good: Path) -> dict[str, np.ndarray]:
    return google.read_model(good).values


def refused_or_the_same(folder: Path, expected: dict[str, np.ndarray]) -> None:
    model = survives(lambda: google.read_model(folder))
    if model:
        folders.same_bits(model.values, expected)


def replaced(good: Path, name: str, content: bytes) -> Path:
    """A folder like `good` in which one file has another content."""
    folder = good.parent / "bad"
    folder.mkdir(exist_ok=True)
    for path in good.iterdir():
        (folder / path.name).unlink(missing_ok=True)
        if path.name == name:
            (folder / name).write_bytes(content)
        else:
            (folder / path.name).hardlink_to(path)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"])
@given(data=st.data())
@fuzz
def test_a_damaged_file_is_refused_or_gives_the_same_weights(
    name: str, data: st.DataObject, good: Path, expected: dict[str, np.ndarray]
) -> None:
    content = data.draw(damaged((good / name).read_bytes()))
    refused_or_the_same(replaced(good, name, content), expected)


def with_checksum(block: bytes) -> bytes:
    crc = google_crc32c.value(block + b"\0")
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return block + b"\0" + masked.to_bytes(4, "little")


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def table(block: bytes, places: bytes | None = None) -> bytes:
    """An index of one block, and a second block with its place."""
    stored = with_checksum(block)
    handle = b"\0" + varint(len(block))
    places = b"\0\1" + varint(len(handle)) + b"\xff" + handle + b"\0\0\0\0\1\0\0\0" if places is None else places
    footer = (b"\0\0" + varint(len(stored)) + varint(len(places))).ljust(FOOTER - 8, b"\0")
    return stored + with_checksum(places) + footer + bytes.fromhex("57fb808b247547db")


@given(data=st.data())
@fuzz
def test_an_index_that_lies_under_right_checksums_is_refused_and_claims_no_memory(
    data: st.DataObject, good: Path
) -> None:
    """TensorFlow's own reader ends the process for most of these."""
    small = good.parent / "small"
    values = {name: np.arange(12, dtype="f").reshape(3, 4) for name in ("bert/x", "bert/xy", "cls/z")}
    checkpoint.write_bundle(small, values)
    index = small.with_name("small.index")
    whole = index.read_bytes()
    block = whole[: whole.index(b"\0\0\0\0\1\0\0\0") + 8]  # up to the end of the restart array
    index.write_bytes(table(block))
    assert Bundle(small).get("bert/xy").tobytes() == values["bert/xy"].tobytes()

    def read() -> int:
        try:
            bundle = Bundle(small)
            return sum(bundle.get(name).nbytes for name in bundle.shapes())
        except (Damaged, FileNotFoundError):
            return 0

    places = data.draw(st.none() | damaged(b"\0\1\2\xff\0" + varint(len(block)) + b"\0\0\0\0\1\0\0\0"))
    index.write_bytes(table(data.draw(damaged(block)), places))
    survives(read)


ENTRIES = b"\0\0\0\0\1\0\0\0"  # the end of a block: one whole key, at its beginning


def test_an_index_that_unfolds_to_far_more_than_its_size_is_refused(tmp_path: Path) -> None:
    """Names that grow by a byte each, and a block that is named again and again: 10^11 bytes from a megabyte."""
    index = tmp_path / "x.index"
    growing = b"".join(varint(shared) + b"\1\0a" for shared in range(200_000))
    index.write_bytes(table(growing + ENTRIES))
    with pytest.raises(Damaged, match="more than 4,096 bytes"):
        Bundle(tmp_path / "x")
    block = b"".join(b"\0" + varint(5) + b"\0" + f"{number:05}".encode() for number in range(10_000)) + ENTRIES
    handle = b"\0" + varint(len(block))
    again = b"".join(b"\0\1" + varint(len(handle)) + b"a" + handle for _ in range(100_000)) + ENTRIES
    index.write_bytes(table(block, again))
    with pytest.raises(Damaged, match="not in their order"):
        Bundle(tmp_path / "x")
