"""The tokenizers for pretraining, fine-tuning and inference, and how texts become rows of tokens.

`WordPieceTokenizer` is BERT's, by tensorflow-text's FastBertTokenizer. It follows BERT's rules: clean the text, split
CJK characters and punctuation, lower-case and strip accents (for an uncased vocabulary), then match the longest token
first. Unlike Google's `tokenization.py` it folds Unicode compatibility characters: a superscript two becomes "2", an
ellipsis three full stops. "[SEP]" in a text is ordinary text and never becomes the special token.

Without tensorflow-text (which has no wheel for TensorFlow 2.17 on Python 3.12), `bert.inputs.wordpiece` gives the same
ids and offsets. Only `WordPieceTokenizer.in_graph` needs tensorflow-text.

`BytePairTokenizer` is RoBERTa's, a byte-level BPE (`bert.inputs.byte_bpe`).

n tokens of all texts, T tokens of a row, V entries of the vocabulary.
"""

import abc
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert.config import ModelConfig
from bert.errors import InputError, UsageError
from bert.inputs import byte_bpe
from bert.inputs.byte_bpe import ByteBPE
from bert.inputs.vocabulary import SPECIAL, is_lower_case, load_vocab
from bert.inputs.wordpiece import WordPiece
from bert.storage import files

try:
    import tensorflow_text as text
except ModuleNotFoundError:
    text = None

SPACE = "\u0120"  # what stands for a space in a byte-level BPE


class Row(NamedTuple):
    """A text or a pair of texts, with special tokens."""

    ids: np.ndarray  # [T] int32
    segments: np.ndarray  # [T] int32
    second: int  # place of the first token of the second text; T without one


class Tokenizer(abc.ABC):
    """Texts to token ids and, optionally, character offsets; rows of ids with special tokens.

    In docstrings and messages of this program [CLS], [SEP], [PAD], [UNK] and [MASK] stand for the special tokens of any
    tokenizer.
    """

    vocab: list[str]
    """tokens in the order of their ids"""
    vocab_sha256: str
    """hash of the file"""
    lower_case: bool
    mask: str
    """what stands for a masked word in a text"""
    separators = 1
    """number of [SEP] between the texts of a pair"""
    second_segment = 1
    """segment of the second text of a pair"""

    def _set_special(self, tokens: Sequence[str]) -> None:
        """Set the ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = map(self.vocab.index, tokens)
        self.mask = tokens[-1]

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all texts, flat [n] int32, and their row splits [len(texts) + 1]."""

    @abc.abstractmethod
    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, and each token's begin and end [n], half open, as character indices of its text."""

    def encode_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, for the words of sentences."""
        return self.encode(words)

    def split_at_masks(self, text: str) -> list[str]:
        """Return what is before, between and after the masks of a text."""
        return text.split(self.mask)

    def word(self, number: int) -> str:
        """Return the text of a token for a reader."""
        return self.vocab[number]

    def in_graph(self) -> Any:
        """Return the FastBertTokenizer, for use in a graph. Raises UsageError if there is none."""
        raise UsageError(
            "a byte-level BPE has no operation in a graph that takes text; use the run with bert.encode, "
            "bert.fill_mask, squad.predict, tasks.predict or serve, or export it with python -m bert.export onnx"
        )

    def special_tokens(self, paired: bool) -> int:
        """Return the number of special tokens of a row."""
        return 2 + (self.separators if paired else 0)

    def row(self, first: np.ndarray, second: np.ndarray | None = None) -> Row:
        """Return [CLS] first [SEP], or [CLS] first [SEP] second [SEP] with `separators` [SEP] in the middle."""
        parts: list[Any] = [[self.cls_id], first, [self.sep_id]]
        if second is not None:
            parts += [[self.sep_id] * (self.separators - 1), second, [self.sep_id]]
        ids = np.concatenate(parts).astype(np.int32)
        segments, begin = np.zeros_like(ids), len(ids)
        if second is not None:
            begin = 1 + len(first) + self.separators
            segments[begin:] = self.second_segment
        return Row(ids, segments, begin)


class WordPieceTokenizer(Tokenizer):
    """The tokenizer of a `vocab.txt`."""

    def __init__(self, vocab_path: Path, lower_case: bool = True) -> None:
        self.vocab = load_vocab(vocab_path)
        self.vocab_sha256 = files.sha256(vocab_path)
        self.lower_case = lower_case
        self._set_special(SPECIAL)
        self.is_continuation = np.array([token.startswith("##") for token in self.vocab])  # [V]
        if text is None:
            self._fast, self._wordpiece = None, WordPiece(self.vocab, lower_case)
        else:
            self._fast = text.FastBertTokenizer(
                self.vocab,
                token_out_type=tf.int32,
                lower_case_nfd_strip_accents=lower_case,
                support_detokenization=False,
            )

    def in_graph(self) -> Any:
        """Return the FastBertTokenizer, for use in a graph. Raises UsageError without tensorflow-text."""
        if self._fast is None:
            raise UsageError(
                "a tokenizer in a graph needs tensorflow-text, which is not installed; "
                f"install the version for TensorFlow {tf.__version__}, or export on a machine that has it"
            )
        return self._fast

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode`."""
        if self._fast is None:
            return self._wordpiece.encode(texts)
        ids = self._fast.tokenize(tf.constant(_as_bytes(texts), tf.string))
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_with_offsets`."""
        if self._fast is None:
            ids, splits, begin, end = self._wordpiece.encode_with_offsets(texts)
            return ids, splits, begin, np.maximum(end, begin + 1)
        encoded = _as_bytes(texts)
        ids, starts, ends = self._fast.tokenize_with_offsets(tf.constant(encoded, tf.string))
        rows = np.repeat(np.arange(len(texts)), np.diff(ids.row_splits.numpy()))
        begin, end = _characters(encoded, rows, starts.flat_values.numpy(), ends.flat_values.numpy())
        # A folded character ("..." for an ellipsis) gives several tokens, all empty but the last: each gets the whole
        # character.
        return ids.flat_values.numpy(), ids.row_splits.numpy(), begin, np.maximum(end, begin + 1)


class BytePairTokenizer(Tokenizer):
    """The tokenizer of RoBERTa's `tokenizer.json`: <s> text </s>, or <s> first </s></s> second </s>, in one segment.

    A space belongs to the token behind it, but not to its characters. Raise InputError if the file is of another kind.
    """

    separators = 2
    second_segment = 0

    def __init__(self, path: Path) -> None:
        self._bpe = ByteBPE(path, byte_bpe.ROBERTA)
        self.vocab = sorted(self._bpe.vocabulary, key=self._bpe.vocabulary.__getitem__)
        self.vocab_sha256 = files.sha256(path)
        self.lower_case = False
        self._set_special((byte_bpe.PAD, byte_bpe.UNKNOWN, byte_bpe.BEGIN, byte_bpe.CLOSE, byte_bpe.MASK))
        self._leading = np.array([token[0] == SPACE and token.strip(SPACE) != "" for token in self.vocab])  # [V]

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `Tokenizer.encode`."""
        return _flat(self._bpe.encode_batch([self._prefixed(item) for item in texts]))

    def encode_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode`, with a space before each word, as it has within a sentence."""
        return _flat(self._bpe.encode_batch([f" {word}" for word in words]))

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `Tokenizer.encode_with_offsets`."""
        prefixed = [self._prefixed(item) for item in texts]
        found = self._bpe.encode_with_offsets(prefixed)
        ids, splits = _flat([row for row, _ in found])
        spans = np.fromiter(chain.from_iterable(chain.from_iterable(part for _, part in found)), np.int64)
        begin, end = spans.reshape(-1, 2).T
        added = np.array([len(longer) - len(item) for longer, item in zip(prefixed, texts, strict=True)], np.int64)
        shift = np.repeat(added, np.diff(splits))
        begin = np.maximum(begin + self._leading[ids] - shift, 0)
        return ids, splits, begin, np.maximum(end - shift, begin + 1)

    def split_at_masks(self, text: str) -> list[str]:
        """As `Tokenizer.split_at_masks`; a mask stands for the spaces before it, too."""
        *before, last = text.split(self.mask)
        return [*(part.rstrip() for part in before), last]

    def word(self, number: int) -> str:
        """Return the text of a token, with the space before it; bytes that are no character become U+FFFD."""
        return self._bpe.decode([number])

    def _prefixed(self, item: str) -> str:
        return f" {item}" if self._bpe.prefix and item and not item[0].isspace() else item


def tokenizer_for(vocab: Path, config: ModelConfig) -> Tokenizer:
    """Return the tokenizer of a `vocab.txt` or a `tokenizer.json`.

    Raises InputError if the model is causal or has another vocabulary size.
    """
    if config.causal:
        raise InputError(f"{vocab.parent}: a causal model, which reads no word pieces; give the run of a BERT model")
    if vocab.suffix == ".json":
        pairs = BytePairTokenizer(vocab)
        _check_size(pairs.vocab, vocab, config)
        return pairs
    tokens = load_vocab(vocab)
    _check_size(tokens, vocab, config)
    return WordPieceTokenizer(vocab, lower_case=is_lower_case(tokens))


def _check_size(tokens: Sequence[str], vocab: Path, config: ModelConfig) -> None:
    if config.vocab_size not in (0, len(tokens)):
        raise InputError(
            f"{vocab}: {len(tokens)} entries, but the model was trained with {config.vocab_size}; give its vocabulary"
        )


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all rows, flat [n] int32, and their row splits."""
    splits = np.cumsum([0, *map(len, rows)])
    return np.fromiter(chain.from_iterable(rows), np.int32, splits[-1]), splits


def _as_bytes(texts: Sequence[str]) -> list[bytes]:
    return [item.encode("utf-8", "replace") for item in texts]  # a lone surrogate becomes "?", also one character


def _characters(
    encoded: list[bytes], rows: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Convert byte offsets of each text to character offsets, for all texts at once."""
    joined = np.frombuffer(b"".join(encoded), np.uint8)
    before = np.append(0, np.cumsum((joined & 0xC0) != 0x80))  # characters that begin before each byte
    base = np.cumsum([0, *(len(item) for item in encoded)])[rows]  # first byte of the token's text
    first = before[base]
    return before[base + starts] - first, before[base + ends] - first
