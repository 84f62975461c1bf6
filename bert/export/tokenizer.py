"""The tokenizer as operations of a graph, for models that take text: what `WordPieceTokenizer` computes.

A graph has no operation for Google's rules. So a table in the graph replaces each character by what `Normalizer` makes
of it, and tensorflow-text splits the words, which are between spaces then.

B texts, c characters of all texts, r characters after replacement, w words, n tokens.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert.core.errors import UsageError
from bert.export.graph import int32
from bert.text import characters
from bert.text.fast_normalization import DIVIDED, FastNormalizer
from bert.text.normalization import IDEOGRAPHS, Normalizer, TokenizerConfig
from bert.text.tokenization import Tokenizer, WordPieceTokenizer

try:
    import tensorflow_text as text
except ModuleNotFoundError:
    text = None

PAGE = 256  # code points
PLACES = (range(0x33000), range(0xE0000, 0xE1000))  # of all characters outside the private planes
CODES, PRIVATE = 0x110000, 0xF0000  # number of code points; first code point of the private planes
SIGMA, SMALL, FINAL = 0x3A3, 0x3C3, 0x3C2
NEWER = characters.NEWER_CLASS  # these have no case, whatever TensorFlow's Unicode says
REMOVED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]"
UNKNOWN = "\U0010ffff"  # in no vocabulary


class Tokens(NamedTuple):
    """The tokens of texts, and the characters of each one, half open."""

    ids: tf.RaggedTensor  # [B, (tokens)]
    begin: tf.Tensor  # [n]
    end: tf.Tensor  # [n]


class GraphTokenizer:
    """Text tensors to token ids and character offsets."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raise UsageError for tokenizers that have no form in a graph, and without tensorflow-text."""
        if not isinstance(tokenizer, WordPieceTokenizer):
            raise UsageError(
                "only word pieces have operations in a graph that takes text; use the run with bert.encode, "
                "bert.fill_mask, squad.predict, tasks.predict or serve, or export it with python -m bert.export onnx"
            )
        if tokenizer.rules.special:
            raise UsageError(
                f"the special token {tokenizer.rules.special[0]} has no operation in a graph that takes text; export "
                "the model with python -m bert.export onnx, or use serve"
            )
        if text is None:
            raise UsageError(
                "a tokenizer in a graph needs tensorflow-text, which is not installed; "
                f"install the version for TensorFlow {tf.__version__}, or export on a machine that has it"
            )
        self._rules, vocab = tokenizer.rules, tokenizer.vocab
        self._fast: Any = text.FastWordpieceTokenizer(
            vocab,
            token_out_type=tf.int32,
            max_bytes_per_word=4 * self._rules.longest_word,
            no_pretokenization=True,
            support_detokenization=False,
        )

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the token ids of UTF-8 texts [B], [B, (tokens)]."""
        codes = _decoded(texts)
        words = tf.strings.split(tf.strings.reduce_join(codes.with_flat_values(self._replaced(texts, codes)), axis=-1))
        return words.with_flat_values(self._fast.tokenize(self._short(words.flat_values))).merge_dims(1, 2)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> Tokens:
        """Return the same, and the characters of each token."""
        codes = _decoded(texts)
        replaced = self._replaced(texts, codes)
        joined = tf.strings.reduce_join(codes.with_flat_values(replaced), axis=-1)
        words = tf.strings.split(joined)
        after = _decoded(joined)  # [B, (r)]
        place = tf.range(tf.size(replaced)) - int32(tf.gather(codes.row_starts(), codes.value_rowids()))
        origin = tf.repeat(place, tf.strings.length(replaced, "UTF8_CHAR"))  # [r]
        inside, row = after.flat_values != ord(" "), after.value_rowids()
        before = tf.concat([[False], inside[:-1] & (row[1:] == row[:-1])], axis=0)
        at = _bytes_before(after.flat_values)
        word_at = tf.boolean_mask(at, inside & ~before)  # bytes before each word [w]
        ids, starts, ends = self._fast.tokenize_with_offsets(self._short(words.flat_values))
        base = tf.gather(word_at, ids.value_rowids())
        longest = tf.gather(tf.strings.length(words.flat_values), ids.value_rowids())
        first, last = (tf.searchsorted(at, base + tf.minimum(int32(x.flat_values), longest)) for x in (starts, ends))
        begin, end = tf.gather(origin, first), tf.gather(origin, last - 1) + 1
        return Tokens(words.with_flat_values(ids).merge_dims(1, 2), begin, end)

    def _replaced(self, texts: tf.Tensor, codes: tf.RaggedTensor) -> tf.Tensor:
        """Return what replaces each character [c]."""
        index, strings = _table(self._rules)
        flat, same = codes.flat_values, tf.strings.unicode_encode(codes.flat_values[:, None], "UTF-8")
        page = tf.gather(index, flat // PAGE)
        replaced = tf.where(page < 0, same, tf.gather(strings, tf.maximum(page, 0) * PAGE + flat % PAGE))
        if self._rules.fast:
            is_private = (flat >= PRIVATE) & (flat % 0x10000 < 0xFFFE)
            replaced = tf.where(is_private, "", replaced)
        elif self._rules.lower_case:
            has_sigma = tf.reduce_any(flat == SIGMA)
            replaced = tf.cond(has_sigma, lambda: _with_final_sigmas(texts, flat, replaced), lambda: replaced)
        if not self._rules.split_ideographs:
            return replaced
        ranges = DIVIDED if self._rules.fast else IDEOGRAPHS
        ideographs = tf.reduce_any([(flat >= first) & (flat <= last) for first, last in ranges], axis=0)
        return tf.where(ideographs, tf.strings.join([" ", replaced, " "]), replaced)

    def _short(self, words: tf.Tensor) -> tf.Tensor:
        """Return words [w]; each word that is too long ends with `UNKNOWN`, so that it becomes [UNK]."""
        too_long = tf.strings.length(words, "UTF8_CHAR") > self._rules.longest_word
        return tf.where(too_long, tf.strings.join([words, UNKNOWN]), words)


def _decoded(texts: tf.Tensor) -> tf.RaggedTensor:
    """Return the code points of texts [B], [B, (characters)]."""
    return tf.strings.unicode_decode(texts, "UTF-8", errors="strict")


def _bytes_before(codes: tf.Tensor) -> tf.Tensor:
    """Return the number of UTF-8 bytes before each character."""
    size = 1 + sum(tf.cast(codes >= first, tf.int32) for first in (0x80, 0x800, 0x10000))
    return tf.cumsum(size, exclusive=True)


def _with_final_sigmas(texts: tf.Tensor, codes: tf.Tensor, replaced: tf.Tensor) -> tf.Tensor:
    """Return the replacements [c]; each capital sigma becomes the small sigma that its place in the word needs."""
    cleaned = tf.strings.regex_replace(tf.strings.regex_replace(texts, NEWER, "-"), REMOVED, "")
    lower = _decoded(tf.strings.lower(cleaned, encoding="utf-8")).flat_values
    places = tf.where((codes == SIGMA) | (codes == SMALL) | (codes == FINAL))
    sigmas = tf.boolean_mask(lower, (lower == SMALL) | (lower == FINAL))
    return tf.tensor_scatter_nd_update(replaced, places, tf.strings.unicode_encode(sigmas[:, None], "UTF-8"))


@functools.cache
def _table(rules: TokenizerConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each page of code points among the pages with replacements, or -1; and the replacements.

    A page without replacements has -1. The second array has the strings of all characters of the other pages.
    """
    normalizer = FastNormalizer if rules.fast else Normalizer
    replacement = normalizer(dataclasses.replace(rules, split_ideographs=False)).replacement
    changed = {code: new for place in PLACES for code in place if (new := replacement(chr(code))) != chr(code)}
    pages = sorted({code // PAGE for code in changed})
    index = np.full(CODES // PAGE, -1, np.int32)
    index[pages] = np.arange(len(pages))
    codes = [code for page in pages for code in range(page * PAGE, (page + 1) * PAGE)]
    return index, np.array([changed.get(code, chr(code)).encode() for code in codes])
