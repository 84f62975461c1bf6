"""WordPiece in Python, for an interpreter that has no tensorflow-text: the ids and offsets of its FastBertTokenizer.

Three steps, as there (Song et al. 2021, "Fast WordPiece Tokenization", and tensorflow-text's BERT normalizer):

1. Each character is replaced on its own. For lower-cased text: NFKC with case folding and without ignorable characters,
   then NFD without marks (category Mn). For any text: a control character (Cc, Cf) becomes a space.
2. White space separates words. A punctuation mark and a CJK ideograph are a word each.
3. A word becomes the longest token it begins with, then the longest "##" token, and so on. A word that cannot be taken
   apart so, or of more than 100 bytes, is [UNK].

Texts repeat their words, so each word is taken apart once and its ids are kept.

Unicode is the interpreter's (14 in Python 3.11, 15 in 3.12). tensorflow-text 2.21 has Unicode 16: characters that the
interpreter does not know yet are left as they are, and there alone the two differ.
"""

import unicodedata
from collections.abc import Sequence
from itertools import chain

import numpy as np

LONGEST = 100  # bytes of a word
KEPT = 500_000  # words whose ids are kept: some 100 MB
BESIDE = "\x1f"  # beside a character that is a word by itself; as a control character it is in no text after step 1
SYMBOLS = frozenset("$+<=>^`|~")  # punctuation marks to BERT, but not to Unicode
IDEOGRAPHS = (  # first and last, as in Google's BERT
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
    """Texts to token ids and the characters that each token came from."""

    def __init__(self, vocab: Sequence[str], lower_case: bool) -> None:
        """`vocab`: all tokens in the order of their ids, [UNK] among them."""
        self.replacements, self.words = _Replacements(lower_case), _Words(vocab)
        self.sizes = np.array([len(token.removeprefix("##")) for token in vocab])  # characters [V]

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of all texts, flat [n] int32, and the row splits [len(texts) + 1] that separate them."""
        replaced = (text.translate(self.replacements) for text in texts)
        rows = [list(chain.from_iterable(map(self.words.__getitem__, text.split()))) for text in replaced]
        splits = np.cumsum([0, *map(len, rows)])
        return np.fromiter(chain.from_iterable(rows), np.int32, splits[-1]), splits

    def encode_with_offsets(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """As `encode`, with each token's first character [n] and the first one of what follows it [n].

        Of several tokens from one character, all but the last end where they begin.
        """
        given = "\n".join(["", *texts, ""])  # a space ends each text: no token ends beyond its own
        codes = _codes(given)
        present = np.flatnonzero(np.bincount(codes))
        sizes = np.zeros(present[-1] + 1, np.int64)
        sizes[present] = [len(self.replacements[code]) for code in present.tolist()]
        replaced = given.translate(self.replacements)
        marks = _codes(replaced)
        real = marks != ord(BESIDE)
        origin = np.append(np.repeat(np.arange(len(codes)), sizes[codes])[real], len(codes))
        number = np.cumsum(real) - real  # of the character itself or, for a mark, of the next one
        apart = np.diff(np.concatenate([[True], ~real | (marks == ord(" ")), [True]]).astype(np.int8))
        ids, begin, end = self._tokens(replaced.split(), np.flatnonzero(apart < 0), np.flatnonzero(apart > 0))
        number = np.append(number, len(origin) - 1)
        begin, end = origin[number[begin]], origin[number[end]]
        heads = np.cumsum([1, *(len(text) + 1 for text in texts)])  # where each text begins in `given`
        splits = np.searchsorted(begin, heads)
        base = np.repeat(heads[:-1], np.diff(splits))
        return ids, splits, begin - base, end - base

    def _tokens(
        self, words: Sequence[str], first: np.ndarray, last: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, begins and ends [n] of the tokens of words [w], each from character `first` [w] up to `last` [w]."""
        parts = [self.words[word] for word in words]
        counts = np.array([len(part) for part in parts], np.int64)
        ids = np.fromiter(chain.from_iterable(parts), np.int32, counts.sum())
        sizes = np.where(np.repeat(counts, counts) > 1, self.sizes[ids], np.repeat(last - first, counts))
        end = np.cumsum(sizes)
        end += np.repeat(first - np.append(0, np.cumsum(last - first)[:-1]), counts)
        return ids, end - sizes, end


class _Replacements(dict[int, str]):
    """What a character, by its number, is in the text that is split at white space; found out when first asked for."""

    def __init__(self, lower_case: bool) -> None:
        super().__init__()
        self.lower_case = lower_case

    def __missing__(self, code: int) -> str:
        text = normalize(code, self.lower_case)
        self[code] = "".join(_apart(character) for character in text)
        return self[code]


class _Words(dict[str, tuple[int, ...]]):
    """The ids of a word's tokens, found out when first asked for."""

    def __init__(self, vocab: Sequence[str]) -> None:
        super().__init__()
        self.ids = {token: number for number, token in enumerate(vocab)}
        self.longest = max(map(len, vocab))

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) > KEPT:
            self.clear()
        self[word] = self._taken_apart(word) or (self.ids["[UNK]"],)
        return self[word]

    def _taken_apart(self, word: str) -> tuple[int, ...]:
        """The longest tokens from the left; none where they do not make up the word."""
        if len(word.encode()) > LONGEST:
            return ()
        found, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin else ""
            for end in range(min(len(word), begin + self.longest), begin, -1):
                number = self.ids.get(prefix + word[begin:end])
                if number is not None:
                    break
            else:
                return ()
            found.append(number)
            begin = end
        return tuple(found)


def normalize(code: int, lower_case: bool) -> str:
    """The text that stands for a character, by its number: "" for one that is ignored. A lone surrogate gives "?"."""
    if 0xD800 <= code < 0xE000:
        return "?"  # as str.encode(errors="replace") has it
    text = chr(code)
    if lower_case and not (code & 0xFFFE == 0xFFFE or 0xFDD0 <= code < 0xFDF0):  # noncharacters stay
        before = ""
        while text != before:
            before, folded = text, unicodedata.normalize("NFKC", text.casefold())
            text = "".join(character for character in folded if not _within(character, IGNORABLE))
        marked = unicodedata.normalize("NFD", text)
        text = "".join(character for character in marked if unicodedata.category(character) != "Mn")
    return "".join(" " if unicodedata.category(character) in ("Cc", "Cf") else character for character in text)


def _apart(character: str) -> str:
    """A space for white space; a character that is a word by itself between the marks that say so."""
    if character in SYMBOLS or unicodedata.category(character)[0] == "P" or _within(character, IDEOGRAPHS):
        return f"{BESIDE}{character}{BESIDE}"
    return " " if character.isspace() else character


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _within(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)
