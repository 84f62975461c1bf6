"""A picture is a PNG with the same bytes every time, and is written whole or not at all."""

from pathlib import Path

import pytest

from bert.core import charts


def test_equal_plots_give_equal_bytes_of_the_given_size(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with charts.plots(tmp_path / name, 2, width=5) as (left, right):
            left.plot([1, 2], [3, 4])
            right.set(title=charts.plain("$a_{"))
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "two").read_bytes() and content.startswith(b"\x89PNG")
    assert [int.from_bytes(content[at : at + 4]) for at in (16, 20)] == [130 * 5, int(130 * charts.HEIGHT)]


def test_a_drawing_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), charts.plots(tmp_path / "none", 1, width=5) as (axes,):
        axes.plot([1], [1 / 0])
    assert not list(tmp_path.iterdir())
