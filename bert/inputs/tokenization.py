"""One tokenizer for pretraining, fine-tuning and inference: WordPiece through tensorflow-text's FastBertTokenizer.

It follows BERT's rules (clean, split CJK and punctuation, lower-case and strip accents if asked, longest match first).
It differs from Google's `tokenization.py` where Unicode compatibility characters are folded: a superscript two gives
"2", an ellipsis three full stops. Text such as "[SEP]" is only text: it never becomes the special id.

Where tensorflow-text is not installed (it has no wheel for TensorFlow 2.17 on Python 3.12), `bert.inputs.wordpiece`
gives the same ids and offsets. Only `Tokenizer.in_graph` needs it then.
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
    """Texts to token ids and, on request, the characters each came from."""

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
        """The FastBertTokenizer, whose operations can be part of a graph. Raises UsageError without tensorflow-text."""
        if self._fast is None:
            raise UsageError(
                "a tokenizer inside a graph needs tensorflow-text, which is not installed; "
                f"install the one for TensorFlow {tf.__version__}, or export where it is installed"
            )
        return self._fast

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of all texts, flat [n] int32, and the row splits [len(texts) + 1] that separate them."""
        if self._fast is None:
            return self._wordpiece.encode(texts)
        ids = self._fast.tokenize(tf.constant(_as_bytes(texts), tf.string))
        return ids.flat_values.numpy(), ids.row_splits.numpy()

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, with each token's first character and the one after its last [n], as indices into its text."""
        if self._fast is None:
            ids, splits, begin, end = self._wordpiece.encode_with_offsets(texts)
            return ids, splits, begin, np.maximum(end, begin + 1)
        encoded = _as_bytes(texts)
        ids, starts, ends = self._fast.tokenize_with_offsets(tf.constant(encoded, tf.string))
        rows = np.repeat(np.arange(len(texts)), np.diff(ids.row_splits.numpy()))
        begin, end = _characters(encoded, rows, starts.flat_values.numpy(), ends.flat_values.numpy())
        # A folded character ("..." for an ellipsis) gives several tokens, all but the last empty: each means the
        # character.
        return ids.flat_values.numpy(), ids.row_splits.numpy(), begin, np.maximum(end, begin + 1)


def tokenizer_for(vocab: Path, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a model's vocabulary. Raises InputError if that is not of the model's size."""
    words = load_vocab(vocab)
    if config.vocab_size not in (0, len(words)):
        raise InputError(
            f"{vocab}: {len(words)} entries, but the model was trained with {config.vocab_size}; give the model's own"
        )
    return Tokenizer(vocab, lower_case=is_lower_case(words))


def _as_bytes(texts: Sequence[str]) -> list[bytes]:
    return [item.encode("utf-8", "replace") for item in texts]  # a lone surrogate becomes "?", still one character


def _characters(
    encoded: list[bytes], rows: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Byte offsets into each text as character offsets, for all texts at once."""
    joined = np.frombuffer(b"".join(encoded), np.uint8)
    before = np.append(0, np.cumsum((joined & 0xC0) != 0x80))  # characters begun before each byte
    base = np.cumsum([0, *(len(item) for item in encoded)])[rows]  # where the token's text begins
    first = before[base]
    return before[base + starts] - first, before[base + ends] - first
