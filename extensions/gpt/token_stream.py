"""Samples of a causal model: consecutive tokens of one long stream of documents.

The files of a split in a folder of `python -m data.tokens` (`token_file`), in the order of their names, are one stream.
Samples go over the borders of documents and of files.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from bert.core import manifest
from bert.core.errors import InputError, IntegrityError
from bert.core.random_access import RandomAccess
from bert.text import token_file, vocabulary
from bert.text.records import Description, Feature, FeatureSpec
from bert.text.token_file import SUFFIX, Stream, TokenFile


class TokenStream:
    """Samples of one split, for the training loop.

    Sample n is the tokens n * length to n * length + length of the stream, both included: `length` inputs and the
    targets, which are the inputs moved by one. The last token of a sample is the first one of the next. What is left
    at the end is no sample.

    end: id of `<|endoftext|>`. tokenizer: path of the `tokenizer.json`. tokens, text_bytes: tokens of the split, and
    the bytes of its text in UTF-8, for a loss in bits per byte; <|endoftext|> has no bytes.

    described: the manifest, if the files are `token_file.checked` already; they are then opened when they are read.

    Raise InputError if the folder has no such split or too little text, IntegrityError if a file is missing or not as
    the manifest says, and when a damaged block is read.
    """

    def __init__(self, folder: Path, split: str, length: int, described: manifest.Manifest | None = None) -> None:
        assert length > 0
        self.manifest = described or token_file.checked(folder)
        names = sorted(name for name in self.manifest.files if name.startswith(f"{split}-") and name.endswith(SUFFIX))
        if not names:
            raise InputError(f"{folder}: no tokens of split {split!r}; make them with python -m data.tokens")
        stored = self.manifest.extra_as(Stream)
        self.length, self.end, self.vocab_size = length, stored.end_id, stored.vocab_size
        self.tokenizer = folder / vocabulary.TOKENIZER
        self._check_tokenizer(stored)
        disk = RandomAccess()
        self._files = [TokenFile(self.manifest, name, disk) for name in names]
        self._starts = np.cumsum([0, *(file.tokens for file in self._files)])
        self.tokens = int(self._starts[-1])
        self.text_bytes = self._text_bytes(split)
        if self.tokens <= length:
            raise InputError(
                f"{folder}: {self.tokens} tokens in split {split!r}, and a sample needs {length + 1}; give more text"
            )
        feature = Feature(shape=[length + 1], dtype="int64")
        self.description = Description(
            features={"input_ids": feature},
            vocab_size=stored.vocab_size,
            vocab_sha256=stored.tokenizer_sha256,
            kind="tokens",
        )
        self.spec: FeatureSpec = {"input_ids": vars(feature)}
        self.sources: tuple[str, ...] = ("",)

    def _check_tokenizer(self, stored: Stream) -> None:
        listed = self.manifest.files.get(vocabulary.TOKENIZER)
        if listed is None or listed.sha256 != stored.tokenizer_sha256:
            raise IntegrityError(f"{self.tokenizer}: not the tokenizer of these tokens; build the folder again")
        manifest.verify_file(self.tokenizer, listed.sha256)

    def _text_bytes(self, split: str) -> int:
        counts = self.manifest.counts.get(split)
        if not isinstance(counts, dict) or counts.get("tokens") != self.tokens or "bytes" not in counts:
            where = self.manifest.path / manifest.NAME
            raise IntegrityError(f"{where}: counts.{split} does not fit its files; build the folder again")
        return counts["bytes"]

    def __len__(self) -> int:
        return (self.tokens - 1) // self.length

    def source_of(self, indices: np.ndarray) -> np.ndarray:
        """Return for each sample the number of its source in `sources` [n]: the stream does not tell them apart."""
        return np.zeros(len(indices), np.int64)

    def read(self, indices: np.ndarray, positions: np.ndarray | None = None) -> dict[str, tf.Tensor]:
        """Return samples `indices` [n] as {"input_ids": [n, length + 1] int32}.

        `positions`, their positions in the run, do not matter here: the parameter is for other kinds of sources.
        """
        ids = np.empty((len(indices), self.length + 1), np.int32)
        for row, index in enumerate(indices.tolist()):
            ids[row] = self.span(index * self.length, index * self.length + self.length + 1)
        return {"input_ids": tf.constant(ids)}

    def span(self, begin: int, end: int) -> np.ndarray:
        """Return the tokens begin .. end - 1 of the stream [end - begin]. Raise IntegrityError for a damaged block."""
        pieces = []
        first = int(np.searchsorted(self._starts, begin, side="right")) - 1
        last = int(np.searchsorted(self._starts, end))  # the files below it have a token before `end`
        for file, start in zip(self._files[first:last], self._starts[first:last].tolist(), strict=False):
            pieces.append(file.read(max(begin - start, 0), min(end - start, file.tokens)))
        return np.concatenate(pieces)
