"""Byte-level BPE: GPT-2's words and merges, every text comes back, and only sound files are taken."""

import itertools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer

from bert.core.errors import InputError
from extensions.tokenizers import byte_bpe
from extensions.tokenizers.byte_bpe import ByteBPE

# Contractions, spaces before line ends, several scripts, accents of two forms, emoji with joiners, a special token.
TRICKY = (
    "We'll see; they've IT'S 1,234.5 \u00bd \u0663\u0664  two   spaces \n\n\t tab\r\n caf\u00e9 cafe\u0301 "
    "\u4e2d\u6587\u6587\u5b57 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u2003em \u00a0nb \x1c\x85 "
    "\U0001f469\u200d\U0001f680 <|endoftext|> _under_ a/b 'tis '' end  "
)


def learn(text: str, count: int) -> tuple[byte_bpe.Vocabulary, byte_bpe.Merges]:
    """Return a vocabulary with merges of frequent neighbours, found by counting: small, and not from `tokenizers`."""
    byte_of = dict(zip((*range(33, 127), *range(161, 173), *range(174, 256)), byte_bpe.BYTES, strict=False))
    others = [byte for byte in range(256) if byte not in byte_of]
    byte_of |= {byte: chr(256 + number) for number, byte in enumerate(others)}
    words = [[byte_of[byte] for byte in word.encode()] for word in re.findall(r" ?\w+|\s+(?!\S)|\s+|[^\s\w]+", text)]
    merges: byte_bpe.Merges = []
    for _ in range(count):
        pairs: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in itertools.pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(sorted(pairs), key=pairs.__getitem__)
        merges.append(best)
        words = [merged(word, best) for word in words]
    tokens = [*byte_bpe.BYTES, *("".join(pair) for pair in merges)]
    tokens = [*dict.fromkeys(tokens), byte_bpe.END]
    return {token: number for number, token in enumerate(tokens)}, merges


def merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    for part in word:
        if result and (result[-1], part) == pair:
            result[-1] += part
        else:
            result.append(part)
    return result


@pytest.fixture(scope="session")
def tables() -> tuple[byte_bpe.Vocabulary, byte_bpe.Merges]:
    return learn(TRICKY * 2 + "the river runs past seven mills and the builders' names are lost " * 9, 61)


@pytest.fixture(scope="session")
def path(tables: tuple[byte_bpe.Vocabulary, byte_bpe.Merges], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    path.write_text(byte_bpe.text_of(*tables, path), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(path: Path) -> ByteBPE:
    return ByteBPE(path)


@pytest.fixture(scope="session")
def theirs(tables: tuple[byte_bpe.Vocabulary, byte_bpe.Merges]) -> ByteLevelBPETokenizer:
    return ByteLevelBPETokenizer(*tables)


@given(st.text())
def test_every_text_comes_back(tokenizer: ByteBPE, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
@example(TRICKY)
@given(st.text(st.sampled_from("aethr'sl 1\n\t.,\u00e9\u4e2d\u3000\x1c"), max_size=90))
def test_ids_are_those_of_tokenizers(tokenizer: ByteBPE, theirs: ByteLevelBPETokenizer, text: str) -> None:
    assert tokenizer.encode(text) == theirs.encode(text).ids


PARTS = [
    " ",
    "  ",
    "\n",
    "'s",
    "'",
    "the",
    " \n ",
    "\t",
    "7",
    "\u4e2d",
    "\x1c",
    "\u00a0",
    "\u3002",
    "\uff0c",
    ".",
    "_",
    "\u0903",
]


@given(st.lists(st.sampled_from(PARTS)))
def test_a_text_encoded_in_pieces_has_the_same_ids(tokenizer: ByteBPE, parts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = tokenizer.encode("".join(parts))
        patch.setattr(byte_bpe, "PIECE", 2)
        patch.setattr(byte_bpe, "TOGETHER", 5)
        assert tokenizer.encode("".join(parts)) == whole


def test_chinese_is_cut_at_its_marks(tokenizer: ByteBPE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_bpe, "PIECE", 7)
    text = "\u4e2d\u6587\u3002" * 5
    pieces = byte_bpe._pieces(text)
    assert max(map(len, pieces)) == 9 and "".join(pieces) == text


def test_a_batch_has_the_ids_of_each_text(tokenizer: ByteBPE) -> None:
    texts = ["the river", "", TRICKY, "x" * 7]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_the_special_token_is_the_last_and_never_comes_from_a_text(tokenizer: ByteBPE) -> None:
    assert tokenizer.end == tokenizer.size - 1
    assert tokenizer.end not in tokenizer.encode("a<|endoftext|>b")
    assert tokenizer.decode([*tokenizer.encode("a"), tokenizer.end, *tokenizer.encode(" b")]) == "a<|endoftext|> b"


def test_half_a_character_becomes_a_replacement(tokenizer: ByteBPE) -> None:
    ids = [tokenizer.encode(letter)[0] for letter in "ab"]
    broken = ByteBPE(tokenizer.path).encode("\u0bf5")[:2]  # two of its three bytes; no merge has them
    assert tokenizer.decode([ids[0], *broken, ids[1]]) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a?b"


@pytest.mark.parametrize("number", [-1, 10**6])
def test_an_id_outside_the_vocabulary_is_refused(tokenizer: ByteBPE, number: int) -> None:
    with pytest.raises(InputError, match=f"token id {number}: .*the ids 0 to {tokenizer.size - 1}"):
        tokenizer.decode([0, number])


def test_merges_as_older_versions_wrote_them_give_the_same_ids(tokenizer: ByteBPE, tmp_path: Path) -> None:
    content = json.loads(tokenizer.path.read_text(encoding="utf-8"))
    content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    for name in ("type", "ignore_merges", "byte_fallback"):
        del content["model"][name]
    del content["pre_tokenizer"]["use_regex"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert ByteBPE(tmp_path / "old.json").encode(TRICKY) == tokenizer.encode(TRICKY)


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets the value at a path of names: put("model", "dropout", 0.1)."""

    def change(content: dict[str, Any]) -> None:
        *names, last, value = path
        for name in names:
            content = content[name]
        content[last] = value

    return change


def without(*tokens: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that removes tokens, so that the ids stay without gaps."""

    def change(content: dict[str, Any]) -> None:
        left: Iterable[str] = [token for token in content["model"]["vocab"] if token not in tokens]
        content["model"]["vocab"] = {token: number for number, token in enumerate(left)}
        content["added_tokens"] = []

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("model", "dropout", 0.1),
        put("model", "type", "WordPiece"),
        put("model", "ignore_merges", True),
        put("model", "merges", 0, "a b c"),
        put("model", "merges", 0, ["a", 7]),
        put("model", "merges", 0, ["z", "\u0120"]),
        put("model", "vocab", "new", 10**6),
        put("model", "vocab", "!", "0"),
        put("model", "vocab", {}),
        put("normalizer", {"type": "NFC"}),
        put("pre_tokenizer", {"type": "Whitespace"}),
        put("pre_tokenizer", "add_prefix_space", True),
        put("pre_tokenizer", "use_regex", False),
        put("decoder", {"type": "WordPiece"}),
        put("decoder", None),
        put("added_tokens", 0, "content", "<s>"),
        put("added_tokens", 0, "id", 3),
        put("model", None),
        without(byte_bpe.END),
        without("\u0100"),  # the byte 0
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(
    change: Callable[[dict[str, Any]], None], tokenizer: ByteBPE, tmp_path: Path
) -> None:
    content = json.loads(tokenizer.path.read_text(encoding="utf-8"))
    change(content)
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"bad\.json: .*; give") as refused:
        ByteBPE(tmp_path / "bad.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"model": 1e999}'])
def test_a_file_that_is_no_tokenizer_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.json: ") as refused:
        ByteBPE(tmp_path / "bad.json")
    assert "\n" not in str(refused.value)
