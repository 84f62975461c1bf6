"""WikiText reads like ordinary text again, and its words are counted as for the published perplexities."""

import hashlib
import os
from pathlib import Path

import pytest

from extensions.gpt import detokenizer
from extensions.gpt.detokenizer import count_words, detokenize

WORDS = 245_566  # of the test set of WikiText-103, in Megatron-LM's logs
TEST_SET = "WIKITEXT103_TEST"  # environment variable: the path of wiki.test.tokens


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        ("the players ' coach", "the players' coach"),
        ("a guest @-@ starring role", "a guest-starring role"),
        ("1 @,@ 250 @.@ 5 km", "1,250.5 km"),
        ("two kinds : a ; b . Then ! Who ? I , he said", "two kinds: a; b. Then! Who? I, he said"),
        ("it ( in 1990 ) and [ sic ] and { x }", "it (in 1990) and [sic] and {x}"),
        ('as " Craig " in', 'as "Craig" in'),
        ("the ' best ' one", "the 'best' one"),
        (" = Title = ", " = Title = "),
        (" = = Part = = ", " == Part == "),
        (" = = = Small = = = ", " === Small === "),
        (" = = = = Least = = = = ", " ==== Least ==== "),
        ("at 20 \u00b0 C", "at 20\u00b0C"),
        (" first \n \n second \n", " first\n\nsecond\n"),
        ("about N people", "about 1 people"),
        ("John 's", "John's"),
        ("at /' 5/ there", "at /'[0-9]/ there"),
        ("the band 's songs , the bands ' \n song", "the band's songs, the bands'\nsong"),
        ("", ""),
    ],
)
def test_each_rule(original: str, expected: str) -> None:
    assert detokenize(original) == expected


def test_rules_apply_in_their_order() -> None:
    # The first rule joins the apostrophe; that of quotations then takes it for an opening one, as published.
    assert detokenize("the boys ' game ' ended") == "the boys'game' ended"
    # Once colons are joined to their words, the space before a bracket is not there any more.
    assert detokenize("( a , b ) : ( c )") == "(a, b): (c)"


def test_there_are_as_many_rules_as_were_published() -> None:
    assert len(set(detokenizer.RULES)) == len(detokenizer.RULES) == 24


def test_only_spaces_separate_words() -> None:
    assert count_words(" \n = A B = \n \n one two . \n") == len(["=", "A", "B", "=", "\n", "\n", "one", "two", "."])
    assert count_words("one\ntwo  three\t") == 3  # two spaces have an empty word between them


def test_the_words_of_the_real_test_set() -> None:
    if not (path := os.environ.get(TEST_SET)):
        pytest.skip(f"needs wiki.test.tokens of WikiText-103; give its path in {TEST_SET}")
    content = Path(path).read_bytes()
    assert count_words(content.decode()) == WORDS, hashlib.sha256(content).hexdigest()
    assert " @-@ " not in detokenize(content.decode())
