"""Damage in files of tokens is one line with the file, the place and what is wrong, even if the manifest was signed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from bert.core import checked_json
from bert.text.token_file import BLOCK, TokenWriter, checks_path
from data import text, tokens
from data.audit import token_audit
from extensions.tokenizers import bpe, byte_bpe
from tests.finished import sign

TEXTS = [f"Text {n}: " + "caf\u00e9 \u4e2d\u6587. " * (n % 37) for n in range(211)]
END = 256


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders text, bpe and tokens; every byte is a token."""
    at = tmp_path_factory.mktemp("work")
    (at / "gpt2").mkdir()
    vocabulary = {token: number for number, token in enumerate((*byte_bpe.BYTES, byte_bpe.END))}
    (at / "gpt2" / "vocab.json").write_text(json.dumps(vocabulary))
    (at / "gpt2" / "merges.txt").write_text("")
    (at / "raw").mkdir()
    lines = [json.dumps({"id": str(n), "text": content}) + "\n" for n, content in enumerate(TEXTS)]
    (at / "raw" / "a.jsonl").write_text("".join(lines))
    text.main(["--source", str(at / "raw"), "--output", str(at / "text"), "--workers", "1"])
    bpe.main(["--import", str(at / "gpt2"), "--output", str(at / "bpe")])
    flags = ["--tokenizer", str(at / "bpe"), "--heldout", "0.1", "--workers", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "ONE_THREAD", {})
        tokens.main(["--source", str(at / "text"), "--output", str(at / "tokens"), *flags])
    return at


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written / "tokens", tmp_path / "tokens"))


def test_what_the_stages_wrote_is_right(
    written: Path, verify_folders: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(len(text.encode()) + 1 for text in TEXTS)
    folders = [written / name for name in ("bpe", "text", "tokens")]
    code, lines = verify_folders(*folders)
    assert code == 0 and f"{size:,} tokens)" in lines[2], lines
    monkeypatch.setattr(token_audit, "CHUNK", BLOCK)
    assert verify_folders(*folders) == (0, lines)


def replace(path: Path, ids: np.ndarray) -> None:
    """Write other tokens, with right checksums."""
    with TokenWriter(path, 257) as writer:
        writer.write(ids.tolist())


def damage_block(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[BLOCK + 8] ^= 1
    path.write_bytes(content)


def damage_checks(path: Path) -> None:
    checks_path(path).write_bytes(checks_path(path).read_bytes()[:-4])


def open_end(path: Path) -> None:
    replace(path, np.fromfile(path, "<u2")[:-1])


def empty_document(path: Path) -> None:
    replace(path, np.append(np.fromfile(path, "<u2"), END))


def outside(path: Path) -> None:
    ids = np.fromfile(path, "<u2")
    ids[3000] = 257
    replace(path, ids)


def cut_token(path: Path) -> None:
    content = path.read_bytes()[:-1]
    path.write_bytes(content)
    crcs = [google_crc32c.value(content[at : at + BLOCK]) for at in range(0, len(content), BLOCK)]
    np.array(crcs, "<u4").tofile(checks_path(path))


def held_out_text(path: Path) -> None:
    """Train on the first held-out document."""
    held_out = np.fromfile(path.with_name("heldout-00000.tokens"), "<u2")
    replace(path, np.append(np.fromfile(path, "<u2"), held_out[: np.flatnonzero(held_out == END)[0] + 1]))


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (damage_block, "train-00000.tokens: block 1 at byte 4096: checksum differs"),
        (damage_checks, "train-00000.tokens.crc32c: "),
        (open_end, "has no <|endoftext|> at its end"),
        (empty_document, "is empty"),
        (outside, "train-00000.tokens: token 3000 at byte 6000: an id outside the vocabulary"),
        (cut_token, "cut within a token"),
        (held_out_text, "is trained on, and held out in document 1 of heldout-00000.tokens"),
    ],
)
@pytest.mark.parametrize("chunk", [BLOCK, 1 << 20])
def test_damage_that_was_signed_is_named_with_its_place(
    harm: Callable[[Path], None],
    expected: str,
    chunk: int,
    copy: Path,
    verify_folders: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_audit, "CHUNK", chunk)
    harm(copy / "train-00000.tokens")
    sign(copy)
    code, lines = verify_folders(copy)
    assert code == 4 and any(expected in line for line in lines), lines


def test_damage_that_was_not_signed_is_named_twice(copy: Path, verify_folders: Callable) -> None:
    damage_block(copy / "train-00000.tokens")
    code, lines = verify_folders(copy)
    assert code == 4 and [line.partition(".tokens: ")[2] for line in lines] == [
        "changed: its hash differs",
        "block 1 at byte 4096: checksum differs",
    ]
    assert len(verify_folders(copy, "--level", "files")[1]) == 1


@pytest.mark.parametrize("count", ["documents", "tokens", "bytes"])
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_wrong_counts_are_named(count: str, split: str, copy: Path, verify_folders: Callable) -> None:
    content = json.loads((copy / "manifest.json").read_text())
    del content["checksum"]
    content["counts"][split][count] += 1
    checked_json.write(copy / "manifest.json", content)
    code, lines = verify_folders(copy)
    assert code == 4 and len(lines) == 1 and f" {split} {count}, but there are " in lines[0], lines


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("end_id", 3, "the last of a document being 3"),
        ("vocab_size", 300, "says 300 tokens"),
        ("tokenizer_sha256", "0" * 64, "tokenizer.json: not the tokenizer of these tokens"),
        ("dtype", "uint32", "dtype uint32 is not that of 257 tokens"),
    ],
)
def test_a_manifest_that_does_not_fit_is_named(
    field: str, value: object, expected: str, copy: Path, verify_folders: Callable
) -> None:
    extra = json.loads((copy / "manifest.json").read_text())["extra"]
    sign(copy, extra=extra | {field: value})
    code, lines = verify_folders(copy)
    assert code == 4 and any(expected in line for line in lines), lines
