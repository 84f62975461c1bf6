"""WordPiece: words become tokens of a vocabulary, the longest one first (tokenization.py of google-research/bert).

Each word is split into the longest token that it begins with, then the longest "##" token, and so on. A word that
cannot be split in this way, or that is too long, is [UNK].

Words repeat, and so do the parts of a text between white space. So the ids of both are cached.
"""

from array import array
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from bert.text.fast_normalization import FastNormalizer
from bert.text.normalization import NOT_SPACES, Normalizer, TokenizerConfig

MAX_CACHED = 500_000  # words, or parts of texts; about 100 MB
LONGEST_CACHED = 24  # characters of a part of a text: in languages without spaces it is a sentence, which never repeats
LAST_SPACE = 0x3000
ID = np.dtype(np.int32)  # in the caches as bytes, which are joined fastest


def normalizer_of(rules: TokenizerConfig) -> Normalizer:
    """Return what makes words of texts by the rules."""
    return FastNormalizer(rules) if rules.fast else Normalizer(rules)


class WordPiece:
    """Texts to token ids and character offsets."""

    def __init__(self, vocab: Sequence[str], rules: TokenizerConfig) -> None:
        """vocab: all tokens in the order of their ids, including [UNK] and the special tokens of the rules."""
        self.rules = rules
        self.normalizer = normalizer_of(rules)
        self._ids = {token: number for number, token in enumerate(vocab)}
        self._sizes = [len(token.removeprefix("##")) for token in vocab]
        self._longest = max(map(len, vocab))
        self._unknown = (self._ids["[UNK]"],)
        words = rules.longest_word  # longer ones are [UNK]; kept, each could be as long as a text
        self._words = _Cache(lambda word: array("i", self.split(word) or self._unknown).tobytes(), words)
        self._tokens = _Cache(self._encoded, LONGEST_CACHED)
        self._located = _Cache(self._with_offsets, LONGEST_CACHED)

    def words(self, text: str) -> list[str]:
        """Return the words of a text before they are split into tokens."""
        return list(chain.from_iterable(map(self.normalizer.words, self.normalizer.tokens(text))))

    def pieces(self, token: str) -> tuple[int, ...]:
        """Return the ids of the tokens that spell `token`, which is inside a word if it begins with "##"; or of [UNK].

        The token itself may be missing in the vocabulary; if it is there, the result is its own id.
        """
        inside = token.startswith("##") and token != "##"
        return self.split(token.removeprefix("##") if inside else token, inside) or self._unknown

    def split(self, word: str, inside: bool = False) -> tuple[int, ...]:
        """Return the longest tokens from the left; none if they do not cover the word.

        inside: the characters continue a word, so that the first token begins with "##", too.
        """
        if word in self.rules.special and not inside:
            return (self._ids[word],)
        if self.is_too_long(word):
            return ()
        ids, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin or inside else ""
            for end in range(min(len(word), begin + self._longest), begin, -1):
                number = self._ids.get(prefix + word[begin:end])
                if number is not None:
                    break
            else:
                return ()
            ids.append(number)
            begin = end
        return tuple(ids)

    def is_too_long(self, word: str) -> bool:
        """Return whether a word has too many characters to be split."""
        return len(word) > self.rules.longest_word

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all texts, flat [n] int32, and their row splits [len(texts) + 1]."""
        rows = [b"".join(map(self._tokens.__getitem__, self.normalizer.tokens(text))) for text in texts]
        splits = np.cumsum([0, *map(len, rows)]) // ID.itemsize
        return np.frombuffer(b"".join(rows), ID), splits

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, and each token's begin and end [n], half open, as character indices of its text.

        Of several tokens from one character, each has the whole character.
        """
        joined = "\n".join([*texts, ""])  # white space between texts: no token crosses them
        first, last = self._parts(joined)
        if not any(character in joined for character in NOT_SPACES):
            tokens = joined.split()
        else:
            tokens = [joined[begin:end] for begin, end in zip(first.tolist(), last.tolist(), strict=True)]
        located = list(map(self._located.__getitem__, tokens))
        counts = np.fromiter(map(len, located), np.int64, len(located)) // (3 * ID.itemsize)
        ids, begins, ends = np.frombuffer(b"".join(located), ID).reshape(-1, 3).T
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)])  # of each text in `joined`
        splits = np.append(0, np.cumsum(counts))[np.searchsorted(first, starts)]
        base = np.repeat(first, counts) - np.repeat(starts[:-1], np.diff(splits))
        return np.ascontiguousarray(ids), splits, begins + base, np.maximum(ends, begins + 1) + base

    def _parts(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return where the parts of a text between white space begin and end, half open."""
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        inside = ~_SPACES[np.minimum(codes, LAST_SPACE + 1)]
        edges = np.diff(np.concatenate([[False], inside, [False]]).astype(np.int8))
        return np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)

    def _encoded(self, token: str) -> bytes:
        """Return the ids of a part of a text [n]."""
        return b"".join(map(self._words.__getitem__, self.normalizer.words(token)))

    def _with_offsets(self, token: str) -> bytes:
        """Return the ids of a part of a text, and the begin and the end of what each one comes from [n, 3]."""
        packed = array("i")
        for word, begins, ends in self.normalizer.origins(token):
            first, ids = 0, array("i", self._words[word])
            for number in ids:
                last = first + self._sizes[number] - 1 if len(ids) > 1 else -1
                packed.extend((number, begins[first], ends[last]))
                first = last + 1
        return packed.tobytes()


class _Cache(dict[str, bytes]):
    """Cache of what is computed for a text."""

    def __init__(self, compute: Callable[[str], bytes], longest: int | None = None) -> None:
        """longest: texts of more characters are not kept."""
        super().__init__()
        self._compute, self._longest = compute, longest

    def __missing__(self, text: str) -> bytes:
        value = self._compute(text)
        if self._longest is None or len(text) <= self._longest:
            if len(self) >= MAX_CACHED:
                self.clear()
            self[text] = value
        return value


_SPACES = np.array([chr(code).isspace() and chr(code) not in NOT_SPACES for code in range(LAST_SPACE + 2)])
