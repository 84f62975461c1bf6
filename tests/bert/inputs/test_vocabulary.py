"""A vocabulary is read with every problem named."""

from pathlib import Path

import pytest

from bert.errors import InputError
from bert.inputs.tokenization import WordPieceTokenizer
from bert.inputs.vocabulary import SPECIAL, is_lower_case, load_vocab
from data.vocab import check_case

TOKENS = [*SPECIAL, "the", "river", "##s", "caf\u00e9"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*SPECIAL, "a", "b", "a"], "line 8: 'a' is also at line 6"),
        ([*SPECIAL, "", "b"], "line 6: '' is not a token"),
        ([*SPECIAL, "two words"], "line 6: 'two words' is not a token"),
        ([*SPECIAL[:4], "a"], r"\[MASK\] missing"),
    ],
)
def test_a_faulty_vocabulary_is_refused_with_its_line(lines: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=message):
        load_vocab(path)


def test_a_vocabulary_like_the_chinese_one_of_google_is_an_uncased_one(tmp_path: Path) -> None:
    """It has a line separator as a token, and markers with capitals."""
    path, tokens = tmp_path / "vocab.txt", [*SPECIAL, "[unused1]", "<S>", "<T>", "\u2028", "##\u2028", "\u6211", "nba"]
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    assert load_vocab(path) == tokens and is_lower_case(tokens) and not is_lower_case([*tokens, "NBA"])
    check_case(tokens, True, path)
    ids, _ = WordPieceTokenizer(path, lower_case=True).encode(["\u6211 NBA"])
    assert [tokens[number] for number in ids] == ["\u6211", "nba"]


def test_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{token}\r\n" for token in TOKENS).encode())
    assert load_vocab(path) == TOKENS
