"""The tokenizer for pretraining, fine-tuning and inference: WordPiece by tensorflow-text's FastBertTokenizer.

It follows BERT's rules: clean the text, split CJK characters and punctuation, lower-case and strip accents (for an
uncased vocabulary), then match the longest token first. Unlike Google's `tokenization.py` it folds Unicode
compatibility characters: a superscript two becomes "2", an ellipsis three full stops. "[SEP]" in a text is ordinary
text and never becomes the special token.

Without tensorflow-text (which has no wheel for TensorFlow 2.17 on Python 3.12), `bert.inputs.wordpiece` gives the same
ids and offsets. Only `Tokenizer.in_graph` needs tensorflow-text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert.config import ModelConfig
from bert.errors import InputError, UsageError
from bert.inputs.vocabulary import SPECIAL, is_lower_case, load_vocab
from bert.inputs.wordpiece import WordPiece
from bert.storage import files

try:
    import tensorflow_text as text
except ModuleNotFoundError:
    text = None


class Tokenizer:
    """Texts to token ids and, optionally, character offsets."""

    def __init__(self, vocab_path: Path, lower_case: bool = True) -> None:
        self.vocab = load_vocab(vocab_path)
        self.vocab_sha256 = files.sha256(vocab_path)
        self.lower_case = lower_case
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (self.vocab.index(t) for t in SPECIAL)
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
        """Return the token ids of all texts, flat [n] int32, and their row splits [len(texts) + 1]."""
        if self._fast is None:
            return self._wordpiece.encode(texts)
        ids = self._fast.tokenize(tf.constant(_as_bytes(texts), tf.string))
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, and each token's begin and end [n], half open, as character indices of its text."""
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


def tokenizer_for(vocab: Path, config: ModelConfig) -> Tokenizer:
    """Return the tokenizer of a vocabulary. Raises InputError if the model is causal or has another vocabulary size."""
    if config.causal:
        raise InputError(f"{vocab.parent}: a causal model, which reads no word pieces; give the run of a BERT model")
    tokens = load_vocab(vocab)
    if config.vocab_size not in (0, len(tokens)):
        raise InputError(
            f"{vocab}: {len(tokens)} entries, but the model was trained with {config.vocab_size}; give its vocabulary"
        )
    return Tokenizer(vocab, lower_case=is_lower_case(tokens))


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
