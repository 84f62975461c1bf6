"""Long texts are cut without loss, and files are grouped in order."""

import io
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.pipeline import sources


@given(st.text("ab \n", max_size=99), st.integers(1, 20))
def test_pieces_are_the_text(text, limit):
    found = list(sources.pieces(text, limit))
    assert "".join(found) == text and all(len(piece) <= limit for piece in found)
    assert list(sources.stream_pieces(io.StringIO(text), limit)) == found


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It is raining. It is cold", "It is raining. "),
        ("Rain\nIs it cold? No it is", "Rain\nIs it cold? "),
        ("It rains. Cold\nbut. it is", "It rains. Cold\n"),
        ("\u96e8\u3002" * 9 + "\u96e8" * 8, "\u96e8\u3002" * 9),
        ("It rains here and there", "It rains here and "),
        ("x" * 30, "x" * 20),
    ],
)
def test_a_cut_is_at_a_line_end_or_a_sentence_end_or_a_space(text: str, first: str) -> None:
    assert next(sources.pieces(text, 20)) == first


def test_groups_keep_the_order_and_a_large_file_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "GROUP_BYTES", 11)
    paths = [tmp_path / f"{number}.txt" for number in range(6)]
    for path, size in zip(paths, (5, 6, 1, 99, 3, 7), strict=True):
        path.write_bytes(bytes(size))
    expected = [tuple(paths[begin:end]) for begin, end in ((0, 2), (2, 3), (3, 4), (4, 6))]
    assert sources.group_files(paths) == expected


def test_control_characters_are_removed_and_white_space_is_not() -> None:
    every = "".join(map(chr, range(0x3000))) + "\ud800\U0001f41d"
    clean, removed = sources.without_controls(every)
    expected = [c for c in every if unicodedata.category(c) != "Cc" or c.isspace()]
    assert clean == "".join(expected) and removed == len(every) - len(expected)
    for character in every:
        assert sources.without_controls(f"a{character}b") == (
            f"a{character * (character in clean)}b",
            character not in clean,
        )
