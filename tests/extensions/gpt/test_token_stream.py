"""Samples of a causal model: consecutive tokens, whatever the files; damage is named, and no damaged token is read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.core import checked_json
from bert.core.errors import InputError, IntegrityError
from bert.text import token_file
from bert.text.token_file import BLOCK, TokenWriter
from extensions.gpt.token_stream import TokenStream
from tests.training import token_folder

VOCAB, END, LENGTH = 311, 310, 7
TOKENIZER = b"any bytes: only their hash matters here\n"
SIZES = (2999, 0, 5, 4096)  # tokens of the training files


def write_stream(
    folder: Path, sizes: tuple[int, ...] = SIZES, vocab: int = VOCAB, **changes: Any
) -> tuple[Path, np.ndarray]:
    """Write a folder as data.tokens does; return it and the tokens of its training files."""
    ids = np.random.default_rng(5).integers(0, min(vocab, VOCAB), sum(sizes))
    pieces = [piece.tolist() for piece in np.split(ids, np.cumsum(sizes)[:-1])]
    return token_folder(folder, {"train": pieces}, vocab, TOKENIZER, 12_345, **{"end_id": END} | changes), ids


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    return write_stream(tmp_path_factory.mktemp("stream") / "tokens")


@pytest.fixture
def copy(written: tuple[Path, np.ndarray], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written[0], tmp_path / "copy"))


def expected(ids: np.ndarray, length: int) -> np.ndarray:
    """Return all samples [n, length + 1], by the definition."""
    return np.stack([ids[n * length : n * length + length + 1] for n in range((len(ids) - 1) // length)])


def test_samples_are_consecutive_tokens_across_files(written: tuple[Path, np.ndarray]) -> None:
    folder, ids = written
    data = TokenStream(folder, "train", LENGTH)
    batch = data.read(np.arange(len(data)))
    np.testing.assert_array_equal(batch["input_ids"], expected(ids, LENGTH))
    assert batch["input_ids"].dtype == "int32" and list(batch) == ["input_ids"]
    assert data.spec["input_ids"]["shape"] == [LENGTH + 1]
    assert (data.end, data.vocab_size, data.tokens, data.text_bytes) == (END, VOCAB, sum(SIZES), 12_345)
    assert data.description.vocab_size == VOCAB and data.description.kind == "tokens"


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(0, 23), min_size=1, max_size=5), length=st.integers(1, 9), wide=st.booleans())
def test_any_sizes_of_files_and_samples(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], length: int, wide: bool
) -> None:
    folder, ids = write_stream(tmp_path_factory.mktemp("any") / "tokens", tuple(sizes), 65_537 if wide else VOCAB)
    if sum(sizes) <= length:
        with pytest.raises(InputError, match=f"{sum(sizes)} tokens in split 'train', and a sample needs {length + 1}"):
            TokenStream(folder, "train", length)
        return
    data = TokenStream(folder, "train", length)
    order = np.random.default_rng(3).permutation(len(data))
    np.testing.assert_array_equal(data.read(order)["input_ids"], expected(ids, length)[order])


def test_files_are_plain_little_endian_numbers_with_a_checksum_for_every_block(
    written: tuple[Path, np.ndarray], tmp_path: Path
) -> None:
    folder, ids = written
    np.testing.assert_array_equal(np.fromfile(folder / "train-00000.tokens", "<u2"), ids[: SIZES[0]])
    content = (folder / "train-00003.tokens").read_bytes()
    checks = [google_crc32c.value(content[at : at + BLOCK]) for at in range(0, len(content), BLOCK)]
    np.testing.assert_array_equal(np.fromfile(folder / "train-00003.tokens.crc32c", "<u4"), checks)
    wide, ids = write_stream(tmp_path / "wide", vocab=65_537)
    np.testing.assert_array_equal(np.fromfile(wide / "train-00000.tokens", "<u4"), ids[: SIZES[0]])


@pytest.mark.parametrize("vocab", [65_536, 65_537])
def test_the_largest_id_fits(vocab: int, tmp_path: Path) -> None:
    with TokenWriter(tmp_path / "a.tokens", vocab) as writer:
        writer.write([0, vocab - 1])
    assert np.fromfile(tmp_path / "a.tokens", f"<u{2 if vocab == 65_536 else 4}").tolist() == [0, vocab - 1]


def test_a_large_file_is_written_in_pieces_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(5).integers(0, VOCAB, 31_337).tolist()
    for name, buffer in (("one", 1 << 20), ("many", BLOCK)):
        monkeypatch.setattr(token_file, "BUFFER", buffer)
        with TokenWriter(tmp_path / name, VOCAB) as writer:
            for begin in range(0, len(ids), 997):
                writer.write(ids[begin : begin + 997])
    for end in ("", ".crc32c"):
        assert (tmp_path / f"one{end}").read_bytes() == (tmp_path / f"many{end}").read_bytes()


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * 2999 - 1])
def test_a_flipped_bit_is_named_with_its_block_and_other_blocks_are_read(copy: Path, at: int) -> None:
    path = copy / "train-00000.tokens"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    data = TokenStream(copy, "train", 100)
    block = at // BLOCK * BLOCK
    good, bad = (2, 25) if block else (25, 2)
    data.read(np.array([good]))
    with pytest.raises(IntegrityError, match=rf"train-00000.tokens: the 4096 bytes from byte {block} are damaged"):
        data.read(np.array([good, bad]))


def remove(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).unlink()


def append(path: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / path).write_bytes((folder / path).read_bytes() + b"\0")

    return change


@pytest.mark.parametrize("name", ["train-00000.tokens", "train-00000.tokens.crc32c", "tokenizer.json"])
@pytest.mark.parametrize("change", [remove, append])
def test_files_that_differ_from_the_manifest_are_named_at_the_start(
    change: Callable[[str], Callable[[Path], None]], name: str, copy: Path
) -> None:
    change(name)(copy)
    with pytest.raises(IntegrityError, match=name):
        TokenStream(copy, "train", LENGTH)


@pytest.mark.parametrize("name", ["train-00002.tokens.crc32c", "tokenizer.json"])
def test_changed_content_of_small_files_is_named_at_the_start(name: str, copy: Path) -> None:
    content = bytearray((copy / name).read_bytes())
    content[3] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(IntegrityError, match=f"{name}: the content has changed"):
        TokenStream(copy, "train", LENGTH)


def test_checksums_that_another_rank_has_verified_are_verified_when_they_are_needed(copy: Path) -> None:
    described = token_file.checked(copy)
    path = copy / "train-00003.tokens.crc32c"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    data = TokenStream(copy, "train", LENGTH, described)
    data.read(np.array([0]))
    with pytest.raises(IntegrityError, match=r"train-00003.tokens.crc32c: the content has changed"):
        data.read(np.array([len(data) - 1]))


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and give it a right checksum."""
    content = json.loads((folder / "manifest.json").read_text())
    del content["checksum"]
    change(content)
    checked_json.write(folder / "manifest.json", content)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["extra"].update(vocab_size=70_000),  # which would be stored as uint32
        lambda content: content["extra"].update(dtype="int8"),
        lambda content: content["extra"].update(end_id=VOCAB),
        lambda content: content["extra"].update(kind="instances"),
        lambda content: content["extra"].pop("vocab_size"),
        lambda content: content["extra"].update(tokenizer_sha256="0" * 64),
        lambda content: content["files"].pop("tokenizer.json"),
        lambda content: content["files"].pop("train-00000.tokens.crc32c"),
        lambda content: content["files"]["train-00000.tokens"].update(records=3000),
        lambda content: content["files"]["train-00000.tokens"].pop("records"),
        lambda content: content["counts"]["train"].update(tokens=17),
        lambda content: content["counts"].pop("train"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused_in_one_line(
    change: Callable[[dict[str, Any]], None], copy: Path
) -> None:
    edit(copy, change)
    with pytest.raises(IntegrityError) as refused:
        TokenStream(copy, "train", LENGTH)
    assert "\n" not in str(refused.value) and "build the folder again" in str(refused.value)


def test_an_id_outside_the_vocabulary_is_named_even_if_the_checksums_are_right(tmp_path: Path) -> None:
    folder, ids = write_stream(tmp_path / "tokens")
    edit(folder, lambda content: content["extra"].update(vocab_size=int(ids.max()), end_id=3))
    data = TokenStream(folder, "train", LENGTH)
    with pytest.raises(IntegrityError, match=rf"token {ids.argmax()} is no id of the vocabulary"):
        data.read(np.array([ids.argmax() // LENGTH]))


def test_a_split_or_folder_without_tokens_is_refused_with_the_remedy(copy: Path, dataset: Path) -> None:
    with pytest.raises(InputError, match=r"no tokens of split 'heldout'; make them with python -m data\.tokens"):
        TokenStream(copy, "heldout", LENGTH)
    with pytest.raises(InputError, match=r"no tokens of split 'train'; make them with python -m data\.tokens"):
        TokenStream(dataset, "train", LENGTH)


def test_an_interrupted_writer_leaves_no_checksums(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), TokenWriter(tmp_path / "a.tokens", VOCAB) as writer:
        writer.write([1])
        raise KeyboardInterrupt
    assert not token_file.checks_path(tmp_path / "a.tokens").exists()
