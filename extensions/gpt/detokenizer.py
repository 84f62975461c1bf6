"""Undo the tokenization of WikiText, by the rules of Megatron-LM's published perplexities.

WikiText has spaces around punctuation, "@-@" for a hyphen within a word, and "= =" in headings. A model of ordinary
text is evaluated on ordinary text, while words are still counted in the original. The rules, and their order, are those
of `tasks/zeroshot_gpt/detokenizer.py` (github.com/NVIDIA/Megatron-LM, up to 2025): other rules give another perplexity.
"""

import re
from typing import NamedTuple

PUNCTUATION = ":;.!?,"
SEPARATORS = "-,."  # written @-@, @,@ and @.@ within words and numbers
DEGREE = chr(176)


class Rule(NamedTuple):
    """Replace all matches of a regular expression."""

    pattern: str
    replacement: str


def _literally(old: str, new: str) -> Rule:
    return Rule(re.escape(old), new)


def _enclosed(opening: str, closing: str) -> Rule:
    """Return the rule that removes the white space just inside a pair of brackets or quotation marks."""
    first, last = re.escape(opening), re.escape(closing)
    return Rule(rf"{first}\s*([^{last}]*?)\s*{last}", rf"{opening}\1{closing}")


RULES = (
    _literally("s '", "s'"),
    # The slashes are part of the published pattern. They keep it from matching text such as "' 90s".
    Rule("/' [0-9]/", "/'[0-9]/"),
    *(_literally(f" @{mark}@ ", mark) for mark in SEPARATORS),
    *(_literally(f" {mark} ", f"{mark} ") for mark in PUNCTUATION),
    *(_enclosed(*pair) for pair in ("()", "[]", "{}", '""', "''")),
    *(_literally(" ".join("=" * count), "=" * count) for count in (4, 3, 2)),
    _literally(f" {DEGREE} ", DEGREE),
    _literally(" \n", "\n"),
    _literally("\n ", "\n"),
    _literally(" N ", " 1 "),
    _literally(" 's", "'s"),
)


def count_words(text: str) -> int:
    """Return the number of words in the original text of WikiText, as Megatron-LM counts them.

    Only spaces separate words, so that a line's end is one more word: the test set of WikiText-103 has 245,566.
    """
    return len(text.strip().split(" "))


def detokenize(text: str) -> str:
    """Return the text of WikiText as it would be written by hand, by applying `RULES` in order."""
    for rule in RULES:
        text = re.sub(rule.pattern, rule.replacement, text)
    return text
