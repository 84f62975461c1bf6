"""A damaged vocabulary is refused or has the five special tokens and no token twice."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bert.text.vocabulary import SPECIAL, load_vocab
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, survives

GOOD = "\n".join([*SPECIAL, "the", "##s", "\u00e9", "\u2028", "\U0001f600"]).encode() + b"\n"


@given(content=damaged(GOOD) | st.binary(max_size=40))
@fuzz
def test_a_vocabulary_is_refused_or_whole(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    tokens = survives(lambda: load_vocab(path))
    if tokens:
        assert len(set(tokens)) == len(tokens) and {*SPECIAL} <= {*tokens}
        assert not [token for token in tokens if not token or set(token) & set(" \t\r\f\v\n")]


def test_the_vocabulary_is_whole_before_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(GOOD)
    assert len(load_vocab(path)) == 10
