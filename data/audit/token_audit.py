"""Check files of tokens, which `data.tokens` wrote, block by block and document by document."""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from bert.core.errors import UserError
from bert.core.manifest import NAME, Manifest
from bert.text import causal_tokenizer
from bert.text.token_file import BLOCK, SUFFIX, Stream, checks_path
from bert.text.vocabulary import TOKENIZER
from data.audit.checks import LIMIT, Problem

CHUNK = 1 << 20  # bytes read at once, a multiple of BLOCK


class TokenFormat(NamedTuple):
    """What the tokenizer and the manifest of a folder say about every token."""

    dtype: str
    end: int  # id of <|endoftext|>
    sizes: np.ndarray  # [vocabulary] number of bytes of text of each token; <|endoftext|> has none


class TokenSummary(NamedTuple):
    """The documents of one file: a key of 8 bytes for the text of each, and counts."""

    texts: np.ndarray  # [documents] uint64
    counts: Counter[str]


def token_format(described: Manifest, problems: list[Problem]) -> TokenFormat | None:
    """Return the format of a folder's tokens.

    If the tokenizer or the manifest is not usable, add this to `problems` and return None.
    """
    path = described.path / TOKENIZER
    try:
        stream = described.extra_as(Stream)
    except UserError as error:
        problems.append(Problem(described.path / NAME, "", str(error).partition(": ")[2]))
        return None
    try:
        tokenizer = causal_tokenizer.read(path)
    except (UserError, OSError) as error:
        problems.append(Problem(path, "", str(error).removeprefix(f"{path}: ")))
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != stream.tokenizer_sha256:
        problems.append(Problem(path, "", "not the tokenizer of these tokens (tokenizer_sha256 differs)"))
    if (tokenizer.size, tokenizer.end) != (stream.vocab_size, stream.end_id):
        claimed = f"{stream.vocab_size} tokens, the last of a document being {stream.end_id}"
        problems.append(Problem(described.path / NAME, "", f"says {claimed}, which {path.name} does not"))
        return None
    return TokenFormat(stream.dtype, tokenizer.end, tokenizer.sizes())


def check_tokens(path: Path, expected: TokenFormat, problems: list[Problem]) -> TokenSummary:
    """Read every block and every document of a file. Add what is wrong to `problems`."""
    checks = checks_path(path)
    recorded = np.fromfile(checks, "<u4") if checks.is_file() else None
    counts, texts, blocks = Counter[str](tokens=0, documents=0, bytes=0), array("Q"), 0
    digest, length, end = hashlib.blake2b(digest_size=8), 0, True
    for offset, content in _chunks(path):
        _check_blocks(path, offset, content, recorded, problems)
        blocks += -(-len(content) // BLOCK)
        ids = _ids(path, offset, content, expected, problems)
        counts.update(tokens=len(ids), bytes=int(expected.sizes[ids[ids < len(expected.sizes)]].sum()))
        for piece in np.split(ids, np.flatnonzero(ids == expected.end) + 1):
            digest.update(piece.tobytes())
            length += len(piece)
            if end := bool(len(piece)) and bool(piece[-1] == expected.end):
                if length == 1:
                    problems.append(Problem(path, f"document {len(texts) + 1}", "is empty"))
                texts.append(int.from_bytes(digest.digest()))
                digest, length = hashlib.blake2b(digest_size=8), 0
            end = end or not length
        if len(problems) >= LIMIT:
            break
    counts["documents"] = len(texts)
    if not end and len(problems) < LIMIT:
        problems.append(Problem(path, f"document {len(texts) + 1}", "has no <|endoftext|> at its end"))
    if recorded is not None and len(problems) < LIMIT and len(recorded) != blocks:
        problems.append(Problem(checks, "", f"{len(recorded)} entries, not {blocks}"))
    return TokenSummary(np.frombuffer(texts, np.uint64), counts)


def _chunks(path: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    with open(path, "rb") as stream:
        while content := stream.read(CHUNK):
            yield offset, content
            offset += len(content)


def _check_blocks(
    path: Path, offset: int, content: bytes, recorded: np.ndarray | None, problems: list[Problem]
) -> None:
    """Compare the CRCs of the blocks in `content`, which begins at byte `offset`, with those beside the file."""
    for at in range(0, len(content), BLOCK):
        number = (offset + at) // BLOCK
        if recorded is None or number >= len(recorded):
            return  # reported otherwise
        if google_crc32c.value(content[at : at + BLOCK]) != recorded[number]:
            problems.append(Problem(path, f"block {number} at byte {offset + at}", "checksum differs"))


def _ids(path: Path, offset: int, content: bytes, expected: TokenFormat, problems: list[Problem]) -> np.ndarray:
    """Return the ids in `content`, and report the first that is not in the vocabulary."""
    dtype = np.dtype(expected.dtype).newbyteorder("<")
    if rest := len(content) % dtype.itemsize:
        problems.append(Problem(path, f"byte {offset + len(content) - rest}", "cut within a token"))
    ids = np.frombuffer(content, dtype, len(content) // dtype.itemsize)
    outside = np.flatnonzero(ids >= len(expected.sizes))
    if len(outside):
        at = offset + int(outside[0]) * dtype.itemsize
        problems.append(Problem(path, f"token {at // dtype.itemsize} at byte {at}", "an id outside the vocabulary"))
    return ids


def is_tokens(name: str) -> bool:
    """Return whether a file of this name holds tokens."""
    return name.endswith(SUFFIX)
