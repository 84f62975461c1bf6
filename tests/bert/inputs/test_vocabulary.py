"""A vocabulary is read with every problem named."""

from pathlib import Path

import pytest

from bert.errors import InputError
from bert.inputs.vocabulary import SPECIAL, load_vocab

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


def test_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes("".join(f"{token}\r\n" for token in TOKENS).encode())
    assert load_vocab(path) == TOKENS
