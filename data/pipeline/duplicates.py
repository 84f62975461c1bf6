"""Find documents with the same text, or the same id, as an earlier one, and choose documents to hold out by their text.

White space and the composition of accents in a text do not matter. About 45 bytes per document are held in memory.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert.core import files
from bert.core.progress import MB, Progress
from bert.core.workspace import Work
from data.pipeline import document_files, tasks, workers
from data.pipeline.document_files import Part

KEY_BYTES = 16  # a chance collision among 10^9 documents has a probability of about 10^-20
SPACES = b" \t\n\r\f\v"
VERDICTS = ("", "duplicates", "repeated ids")  # keep; drop because an earlier document has the same text, or id
BUCKETS = 16  # the keys are sorted one bucket at a time, to save memory
NFC_CHUNK = 1_000  # characters composed at once; Python's time grows with the square of the accents on one letter
NFC_LATER = 100  # characters by which a cut is moved, if need be, so that it divides no letter and its accents


class Survey(NamedTuple):
    """What the first pass over all documents found. D is their number, in the order of the parts."""

    verdicts: np.ndarray  # [D] uint8, indices into VERDICTS
    keys: np.ndarray  # [D] uint64, numbers that depend only on the text
    ends: list[int]  # for each part: number of documents up to its end

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        """Return `values` [D] for each part."""
        return np.split(values, self.ends[:-1])


def survey(sources: Sequence[Part], options: tasks.Options) -> Survey:
    """Read all documents of the parts, which have their text in "text", with the workers of `options`."""
    texts, names, ends = bytearray(), bytearray(), []
    keys = workers.run(document_keys, sources, options.workers, options.scheduler)
    sizes = [source.path.stat().st_size for source in sources]
    with Progress("duplicates", MB, sum(sizes)) as progress:
        for size, (text_keys, name_keys) in zip(sizes, keys, strict=True):
            texts += text_keys
            names += name_keys
            ends.append(len(texts) // KEY_BYTES)
            progress.add(size)
    verdicts = np.select([~first_of_each(texts), ~first_of_each(names)], [1, 2]).astype(np.uint8)
    return Survey(verdicts, np.frombuffer(texts, "<u8")[:: KEY_BYTES // 8].copy(), ends)


def saved_verdicts(work: Work, find: Callable[[], Sequence[np.ndarray]]) -> list[bytes]:
    """Return the verdicts of each part that `find` returns [documents] uint8. Call it only if no earlier run did."""
    saved = work.private / "verdicts.npz"
    if not saved.exists():
        verdicts = find()
        with files.atomic_write(saved, "wb") as stream:
            np.savez(stream, *verdicts)
    with np.load(saved) as arrays:
        return [arrays[name].tobytes() for name in arrays.files]


def document_keys(source: Part) -> tuple[bytes, bytes]:
    """Return the concatenated keys of one part's texts and of its ids, each a hash of `KEY_BYTES` bytes."""
    texts, names = bytearray(), bytearray()
    for document in document_files.read_records(source, "text"):
        texts += text_key(document["text"])
        name = str(document.get("id")).encode("utf-8", "replace")
        names += hashlib.blake2b(name, digest_size=KEY_BYTES).digest()
    return bytes(texts), bytes(names)


def text_key(text: str) -> bytes:
    """Return the key of a text."""
    content = normalise(text).encode("utf-8", "replace").translate(None, SPACES)
    return hashlib.blake2b(content, digest_size=KEY_BYTES).digest()


def first_of_each(keys: bytearray) -> np.ndarray:
    """Return for each key whether no equal key stands before it: bool [documents]."""
    rows = np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)
    first = np.zeros(len(rows), bool)
    for bucket in range(BUCKETS):
        indices = np.flatnonzero(rows[:, 0] % BUCKETS == bucket)
        first[indices[np.unique(rows[indices].view(f"S{KEY_BYTES}"), return_index=True)[1]]] = True
    return first


def is_held_out(keys: np.ndarray, share: float) -> np.ndarray:
    """Return which documents to hold out, about `share` of them: bool [D], for their numbers `keys` [D] of `Survey`.

    A text that is held out with one share is held out with every larger one, whatever the other texts are.
    """
    return keys < np.uint64(held_out_limit(share))


def held_out_limit(share: float) -> int:
    """Return the number below which a key is held out."""
    return min(int(share * 2**64), 2**64 - 1)


def is_text_held_out(text: str, share: float) -> bool:
    """Return whether `is_held_out` holds this text out."""
    return bool(is_held_out(np.frombuffer(text_key(text)[:8], "<u8"), share)[0])


def normalise(text: str) -> str:
    """Return the text in Unicode's composed form (NFC): "e" with an accent becomes one character."""
    if text.isascii():
        return text
    return "\n".join(map(_compose, text.split("\n")))


def _compose(line: str) -> str:
    if line.isascii() or len(line) <= NFC_CHUNK:
        return unicodedata.normalize("NFC", line)
    return " ".join(
        "".join(unicodedata.normalize("NFC", piece) for piece in _composable(word)) for word in line.split(" ")
    )


def _composable(word: str) -> Iterator[str]:
    """Yield a word in pieces. No character composes with one of another piece, unless it has very many accents."""
    begin = 0
    while len(word) - begin > NFC_CHUNK:
        least = begin + NFC_CHUNK
        places = range(least, min(least + NFC_LATER, len(word)) + 1)
        cut = next((at for at in places if at == len(word) or _divides(word, at)), least)
        yield word[begin:cut]
        begin = cut
    yield word[begin:]


def _divides(word: str, at: int) -> bool:
    """Return whether the character at a place is composed without those before it."""
    before, character = word[at - 3 : at], word[at]
    if unicodedata.combining(unicodedata.normalize("NFD", character)[0]):
        return False
    alone = unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", character)
    return unicodedata.normalize("NFC", before + character) == alone
