"""Normalizer and pre-tokenizer of a `tokenizer.json` that make the words of `bert.text.normalization` of texts.

`BertNormalizer` makes other ones: see `bert.text.fast_normalization`. So the steps are spelled out here, with regular
expressions that name each character, since the Unicode of the library is another one. They are in the form that
Oniguruma and JavaScript understand.

A character newer than Unicode 14.0 is replaced by U+FDD0, unless an entry of the vocabulary has it: a word with either
of them is [UNK]. What remains: U+1715, U+1193D, U+16FF0 and U+16FF1, which are not put in canonical order with marks
beside them.
"""

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

from bert.text import characters
from bert.text.fast_normalization import DIVIDED, bert
from bert.text.normalization import SYMBOLS, TokenizerConfig, is_ideograph
from bert.text.wordpiece import normalizer_of

CODES = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0xE1000)]  # all others are unassigned or private
NEVER = "\ufdd0"  # a noncharacter, which no text should have
MOST_BETWEEN = 30  # characters without case between a letter and a capital sigma, so that a search ends
PADDED = "[]\\^-"  # characters with a meaning within brackets


def normalizer(rules: TokenizerConfig, vocab: Sequence[str]) -> Any:
    """Return the normalizer for these rules."""
    if rules.fast:
        return bert(True, rules.split_ideographs, rules.strip_accents, rules.lower_case)
    steps: list[Any] = [_replace(_class(_removed()), "")]
    if rules.split_ideographs:
        steps += [bert(False, True, False, False)]
    used = {character for token in vocab for character in token}
    newer = (first_last for listed in characters.NEWER.values() for first_last in characters.ranges(listed))
    steps += [_replace(_class(chr(c) for a, b in newer for c in range(a, b + 1) if chr(c) not in used), NEVER)]
    if rules.lower_case:
        steps += [_replace(_final_sigma(), "\u03c2"), normalizers.Lowercase()]
    if rules.strip_accents:
        steps += [_replace(character, whole) for character, whole in _decompositions()]
        steps += [normalizers.NFD(), _replace(_class(_of("Mn")), "")]
    return normalizers.Sequence(steps)


def pre_tokenizer(rules: TokenizerConfig) -> Any:
    """Return the pre-tokenizer for these rules."""
    if rules.fast:
        return pre_tokenizers.BertPreTokenizer()
    alone = [*SYMBOLS, *(one for one in _all() if characters.category(one)[0] == "P")]
    if rules.split_ideographs:  # those that BertNormalizer does not know
        alone += [one for one in _all() if is_ideograph(one) and not any(a <= ord(one) <= b for a, b in DIVIDED)]
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(_class(alone)), "isolated")]
    return pre_tokenizers.Sequence(steps)


def fields(rules: TokenizerConfig, vocab: Sequence[str]) -> dict[str, Any]:
    """Return both as they stand in a `tokenizer.json`."""
    parts = {"normalizer": normalizer(rules, vocab), "pre_tokenizer": pre_tokenizer(rules)}
    return {name: json.loads(part.__getstate__()) for name, part in parts.items()}


def differing(rules: TokenizerConfig, vocab: Sequence[str]) -> list[str]:
    """Return the entries of a vocabulary for which the rules give other words than normalizer and pre-tokenizer."""
    ours, normalize = normalizer_of(rules), normalizer(rules, vocab).normalize_str
    divide = pre_tokenizer(rules).pre_tokenize_str
    words = ((token, token.removeprefix("##")) for token in vocab)
    return [
        token
        for token, text in words
        if not text.isascii()
        and [one for part in ours.tokens(text) for one in ours.words(part)]
        != [one for one, _ in divide(normalize(text))]
    ]


def _replace(pattern: str, by: str) -> Any:
    return normalizers.Replace(Regex(pattern), by)


def _all() -> Iterable[str]:
    return map(chr, CODES)


def _of(*categories: str) -> list[str]:
    return [one for one in _all() if characters.category(one) in categories]


def _removed() -> list[str]:
    return ["\ufffd", *(one for one in _of("Cc", "Cf") if one not in "\t\n\r")]


@functools.cache
def _decompositions() -> list[tuple[str, str]]:
    """Return the characters whose canonical decomposition the library does not know."""
    theirs = normalizers.NFD().normalize_str
    return [(one, whole) for one in _all() if (whole := characters.nfd(one)) != one and theirs(one) != whole]


@functools.cache
def _final_sigma() -> str:
    """Return a pattern for capital sigmas that become a small letter at the end of a word, as in Unicode 14.0.

    Such a sigma comes after a cased letter, and no cased letter comes after it. Case-ignorable characters can stand
    between.
    """
    cased = [one for one in _all() if characters.lower(f"{one}\u03a3")[-1] == "\u03c2"]
    ignored = {one for one in _all() if characters.lower(f"A{one}\u03a3")[-1] == "\u03c2"} - {*cased}
    letter, between = _class(cased), _class(ignored)
    sigma = "\u03a3"
    return f"{sigma}(?<={letter}{between}{{0,{MOST_BETWEEN}}}{sigma})(?!{between}*{letter})"


def _class(members: Iterable[str]) -> str:
    """Return the regular expression for one of some characters."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, members)):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    ends = (_end(first) if first == last else f"{_end(first)}-{_end(last)}" for first, last in ranges)
    return f"[{''.join(ends)}]"


def _end(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\{chr(code)}" if chr(code) in PADDED else chr(code)
