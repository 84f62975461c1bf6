"""WordPiece in Python, for use without tensorflow-text: the same ids and offsets as its FastBertTokenizer.

Three steps, as in tensorflow-text (Song et al. 2021, "Fast WordPiece Tokenization", and its BERT normalizer):

1. Normalise each character. For lower-cased text: NFKC with case folding, without ignorable characters, then NFD
   without marks (category Mn). For all text: a control character (Cc, Cf) becomes a space.
2. Split into words at white space. A punctuation mark or a CJK ideograph is a word by itself.
3. Split each word into the longest token that it begins with, then the longest "##" token, and so on. A word that
   cannot be split in this way, or that has more than 100 bytes, is [UNK].

Words repeat, so the ids of each word are cached.

The Unicode version is the interpreter's (14 in Python 3.11, 15 in 3.12); tensorflow-text 2.21 has Unicode 16. Results
differ only for characters that the interpreter does not know: they are left unchanged.
"""

import unicodedata
from collections.abc import Sequence
from itertools import chain

import numpy as np

MAX_WORD_BYTES = 100  # a longer word is [UNK]
MAX_CACHED_WORDS = 500_000  # about 100 MB
SEPARATOR = "\x1f"  # around a character that is a word by itself; normalised text has no control characters
SYMBOLS = frozenset("$+<=>^`|~")  # punctuation in BERT, but not in Unicode
IDEOGRAPHS = (  # first and last of each range, as in Google's BERT
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
IGNORABLE = (  # Unicode's property Default_Ignorable_Code_Point
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)


class WordPiece:
    """Texts to token ids and character offsets."""

    def __init__(self, vocab: Sequence[str], lower_case: bool) -> None:
        """vocab: all tokens in the order of their ids, including [UNK]."""
        self.replacements, self.words = _Replacements(lower_case), _Words(vocab)
        self.sizes = np.array([len(token.removeprefix("##")) for token in vocab])  # characters [V]

    def normalise(self, text: str) -> list[str]:
        """Return the words of a text before they are split into tokens."""
        return text.translate(self.replacements).split()

    def pieces(self, token: str) -> tuple[int, ...]:
        """Return the ids of the tokens that spell `token`, which is inside a word if it begins with "##"; or of [UNK].

        The token itself may be missing in the vocabulary; if it is there, the result is its own id.
        """
        inside = token.startswith("##") and token != "##"
        word = token.removeprefix("##") if inside else token
        return self.words.split(word, inside) or (self.words.ids["[UNK]"],)

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all texts, flat [n] int32, and their row splits [len(texts) + 1]."""
        rows = [list(chain.from_iterable(map(self.words.__getitem__, self.normalise(text)))) for text in texts]
        splits = np.cumsum([0, *map(len, rows)])
        return np.fromiter(chain.from_iterable(rows), np.int32, splits[-1]), splits

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, and each token's begin and end [n], half open, as character indices of its text.

        Of several tokens from one character, all but the last are empty.
        """
        joined = "\n".join(["", *texts, ""])  # white space between texts: no token crosses them
        codes = _codes(joined)
        present = np.flatnonzero(np.bincount(codes))
        sizes = np.zeros(present[-1] + 1, np.int64)
        sizes[present] = [len(self.replacements[code]) for code in present.tolist()]
        replaced = joined.translate(self.replacements)
        new_codes = _codes(replaced)
        is_text = new_codes != ord(SEPARATOR)
        origin = np.append(np.repeat(np.arange(len(codes)), sizes[codes])[is_text], len(codes))
        number = np.cumsum(is_text) - is_text  # index without separators; of a separator, that of the next character
        edges = np.diff(np.concatenate([[True], ~is_text | (new_codes == ord(" ")), [True]]).astype(np.int8))
        ids, begin, end = self._tokens(replaced.split(), np.flatnonzero(edges < 0), np.flatnonzero(edges > 0))
        number = np.append(number, len(origin) - 1)
        begin, end = origin[number[begin]], origin[number[end]]
        starts = np.cumsum([1, *(len(text) + 1 for text in texts)])  # of each text in `joined`
        splits = np.searchsorted(begin, starts)
        base = np.repeat(starts[:-1], np.diff(splits))
        return ids, splits, begin - base, end - base

    def _tokens(
        self, words: Sequence[str], first: np.ndarray, last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ids, begins and ends [n] of the tokens of words [w] that span the characters first:last [w]."""
        parts = [self.words[word] for word in words]
        counts = np.array([len(part) for part in parts], np.int64)
        ids = np.fromiter(chain.from_iterable(parts), np.int32, counts.sum())
        sizes = np.where(np.repeat(counts, counts) > 1, self.sizes[ids], np.repeat(last - first, counts))
        end = np.cumsum(sizes)
        end += np.repeat(first - np.append(0, np.cumsum(last - first)[:-1]), counts)
        return ids, end - sizes, end


class _Replacements(dict[int, str]):
    """Cache: code point -> its text after normalisation, with separators around characters that are words."""

    def __init__(self, lower_case: bool) -> None:
        super().__init__()
        self.lower_case = lower_case

    def __missing__(self, code: int) -> str:
        text = normalize(code, self.lower_case)
        self[code] = "".join(_separated(character) for character in text)
        return self[code]


class _Words(dict[str, tuple[int, ...]]):
    """Cache: word -> ids of its tokens."""

    def __init__(self, vocab: Sequence[str]) -> None:
        super().__init__()
        self.ids = {token: number for number, token in enumerate(vocab)}
        self.longest = max(map(len, vocab))

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) > MAX_CACHED_WORDS:
            self.clear()
        self[word] = self.split(word) or (self.ids["[UNK]"],)
        return self[word]

    def split(self, word: str, inside: bool = False) -> tuple[int, ...]:
        """Return the longest tokens from the left; none if they do not cover the word.

        inside: the characters continue a word, so that the first token begins with "##", too.
        """
        if len(word.encode()) > MAX_WORD_BYTES:
            return ()
        ids, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin or inside else ""
            for end in range(min(len(word), begin + self.longest), begin, -1):
                number = self.ids.get(prefix + word[begin:end])
                if number is not None:
                    break
            else:
                return ()
            ids.append(number)
            begin = end
        return tuple(ids)


def normalize(code: int, lower_case: bool) -> str:
    """Return the normalised text of a code point: "" for an ignorable character, "?" for a lone surrogate."""
    if 0xD800 <= code < 0xE000:
        return "?"  # as str.encode(errors="replace") gives
    text = chr(code)
    if lower_case and not (code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0):  # noncharacters are kept
        previous = ""
        while text != previous:
            previous, folded = text, unicodedata.normalize("NFKC", text.casefold())
            text = "".join(character for character in folded if not _within(character, IGNORABLE))
        marked = unicodedata.normalize("NFD", text)
        text = "".join(character for character in marked if unicodedata.category(character) != "Mn")
    return "".join(" " if unicodedata.category(character) in ("Cc", "Cf") else character for character in text)


def _separated(character: str) -> str:
    """Return a space for white space; put separators around a character that is a word by itself."""
    if character in SYMBOLS or unicodedata.category(character)[0] == "P" or _within(character, IDEOGRAPHS):
        return f"{SEPARATOR}{character}{SEPARATOR}"
    return " " if character.isspace() else character


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _within(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)
