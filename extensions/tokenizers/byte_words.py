"""Which tokens of a byte-level BPE are of one word, for masks of whole words.

The words are those into which GPT-2's regular expression cuts a text: a run of letters, of digits or of other
characters, each with the space before it, and endings such as 's. Two tokens in a row are of one word if the second
does not begin with a space, and goes on with what the first one ended with.

Where a character is divided among tokens, these tell no kind of character. Such tokens, and those behind them, belong
to the word before them if there is no space between.
"""

from collections.abc import Container, Sequence

import numpy as np

from bert.text import characters

LETTER, DIGIT, OTHER = 1, 2, 4
SPACE = "\u0120"  # what stands for a space
ANY = LETTER | DIGIT | OTHER
ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")  # a word ends behind them
PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # bytes that stand for themselves
BYTE_OF = {chr(number): number for number in PRINTED} | {
    chr(0x100 + place): number for place, number in enumerate(sorted({*range(0x100)} - {*PRINTED}))
}


def bytes_of(token: str) -> bytes:
    """Return the bytes that a token's characters stand for. If not all stand for bytes, return the token in UTF-8."""
    numbers = [BYTE_OF.get(character) for character in token]
    return token.encode("utf-8") if None in numbers else bytes(number for number in numbers if number is not None)


def joins(tokens: Sequence[str], alone: Container[str] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return with which kinds of characters each token begins, and with which it ends, as sets of bits uint8 [V].

    Token b goes on with the word of token a if first[b] & last[a]. alone: tokens that are words, whatever is beside
    them.
    """
    first, last = np.array([(0, 0) if token in alone else _ends(token) for token in tokens], np.uint8).T
    return first, last


def _ends(token: str) -> tuple[int, int]:
    if token == SPACE:  # the first token of a word whose other characters follow
        return 0, ANY
    text = bytes_of(token).decode("utf-8", "surrogateescape")  # bytes of a part of a character become surrogates
    return _kind(text[:1]), 0 if token in ENDINGS else _kind(text[-1:])


def _kind(character: str) -> int:
    """Return the kind of a character; none of white space, and any of a part of a character."""
    if not character or character.isspace():
        return 0
    category = characters.category(character)
    return ANY if category == "Cs" else LETTER if category[0] == "L" else DIGIT if category[0] == "N" else OTHER
