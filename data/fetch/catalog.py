"""The data sets that can be fetched by name, besides Wikipedia: addresses, known checksums and licences.

A checksum is listed here only if an independent source publishes it. A file without one is trusted on first use: its
SHA-256 is recorded in the manifest, and later downloads with another content are refused.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert.core.errors import IntegrityError
from data.fetch.transfer import File


@dataclasses.dataclass(frozen=True, kw_only=True)
class Set:
    """Files that are fetched together. members: names that an archive must contain, with the SHA-256 if it is known."""

    about: str
    licence: str
    files: tuple[File, ...]
    members: Mapping[str, str | None] = dataclasses.field(default_factory=dict)


# SQuAD: sizes and hashes as in TensorFlow Datasets 4.9.10.
SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
SQUAD_FILES = {
    "train-v1.1.json": (30_288_272, "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955"),
    "dev-v1.1.json": (4_854_279, "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9"),
    "train-v2.0.json": (42_123_633, "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002"),
    "dev-v2.0.json": (4_370_528, "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"),
}

# Google's checkpoints: addresses as in google-research/bert's README, the vocabularies' hashes as in NVIDIA's
# DeepLearningExamples. Google publishes no hash of the archives.
CHECKPOINTS = "https://storage.googleapis.com/bert_models/"
CHECKPOINT_LIMIT = 2 << 30
UNCASED = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
CASED = "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02"
BASE, LARGE = "L-12_H-768_A-12", "L-24_H-1024_A-16"

# PG-19: 28,602 + 50 + 100 books; no hashes are published.
PG19 = "https://storage.googleapis.com/deepmind-gutenberg"
PG19_LISTS = "https://huggingface.co/datasets/deepmind/pg19/resolve/main/data"
PG19_LICENCE = "books published before 1919, in the public domain in the USA; the collection Apache-2.0"
BOOK_LIMIT = 64 << 20
LIST_LIMIT = 4 << 20
BOOK_BYTES = 410_000  # average, to check the disk space


def _squad(version: str) -> Set:
    names = [name for name in SQUAD_FILES if version in name]
    files = [
        File(
            name=name,
            url=SQUAD + name,
            size=SQUAD_FILES[name][0],
            digests={"sha256": SQUAD_FILES[name][1]},
            trust="pinned in data/fetch/catalog.py",
        )
        for name in names
    ]
    return Set(about=f"SQuAD {version}, train and dev", licence="CC BY-SA 4.0", files=tuple(files))


def _checkpoint(folder: str, model: str, vocab: str | None, size: int | None = None) -> Set:
    name = f"{model}.zip"
    layers, width = (int(number) for number in re.findall(r"[LH]-(\d+)", model))
    weights = (32_000 if vocab else 120_000) * width + 12 * layers * width**2
    room = 2 * 4 * weights  # the archive and the unpacked files; weights hardly compress
    file = File(name=name, url=f"{CHECKPOINTS}{folder}/{name}", size=size, limit=CHECKPOINT_LIMIT, estimate=room)
    members = {"vocab.txt": vocab, "bert_config.json": None, "bert_model.ckpt.index": None}
    return Set(about=f"Google's {model}, {folder[:4]}", licence="Apache-2.0", files=(file,), members=members)


def _small() -> dict[str, Set]:
    sizes = [(layers, width) for layers in (2, 4, 6, 8, 10, 12) for width in (128, 256, 512, 768)]
    shapes = [f"L-{layers}_H-{width}_A-{width // 64}" for layers, width in sizes]
    return {f"bert-uncased-{shape}": _checkpoint("2020_02_20", f"uncased_{shape}", UNCASED) for shape in shapes}


SETS: dict[str, Set] = {
    "squad1": _squad("v1.1"),
    "squad2": _squad("v2.0"),
    "bert-base-uncased": _checkpoint("2018_10_18", f"uncased_{BASE}", UNCASED, 407_727_028),
    "bert-base-cased": _checkpoint("2018_10_18", f"cased_{BASE}", CASED),
    "bert-large-uncased": _checkpoint("2018_10_18", f"uncased_{LARGE}", UNCASED),
    "bert-large-cased": _checkpoint("2018_10_18", f"cased_{LARGE}", CASED),
    "bert-large-uncased-wwm": _checkpoint("2019_05_30", f"wwm_uncased_{LARGE}", UNCASED),
    "bert-large-cased-wwm": _checkpoint("2019_05_30", f"wwm_cased_{LARGE}", CASED),
    "bert-base-multilingual-cased": _checkpoint("2018_11_23", f"multi_cased_{BASE}", None),
    **_small(),
}


def pg19_lists(splits: Sequence[str], url: str) -> list[File]:
    """Return the files that list the books. They are not named .txt here, so that they are not taken for books."""
    return [File(name=f"{split}_files.list", url=f"{url}/{split}_files.txt", limit=LIST_LIMIT) for split in splits]


def pg19_books(split: str, book_list: Path, url: str) -> list[File]:
    """Return the books that a list names, in its order. Raise IntegrityError if a line does not name a book."""
    books = {}
    for number, line in enumerate(book_list.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        match = re.fullmatch(rf"(?:{split}/)?(\d+)(?:\.txt)?", line.strip())
        if not match:
            raise IntegrityError(
                f"{book_list}: line {number}, {line[:40]!r}, is not a book of {split}; remove it and try again"
            )
        name = f"{split}/{match[1]}.txt"
        books[name] = File(name=name, url=f"{url}/{name}", limit=BOOK_LIMIT, estimate=BOOK_BYTES)
    if not books:
        raise IntegrityError(f"{book_list}: lists no books; remove it and fetch it again")
    return list(books.values())
