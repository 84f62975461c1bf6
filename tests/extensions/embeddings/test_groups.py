"""Texts of one's own files: which rows are read, and what a text is in a file without columns."""

from pathlib import Path

from extensions.embeddings import groups
from tasks.examples import Skipped


def test_rows_are_chosen_by_what_they_have_as_it_is_written(tmp_path: Path) -> None:
    lines = [f'{{"text": "{text}", "fold": {one}}}' for text, one in zip("abc", ["1", "true", "1.0"], strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for value, texts in (("1", "ac"), ("1.0", "c"), ("true", "b"), ("2", "")):
        found = groups.read(tmp_path / "a.jsonl", ("text",), None, skipped=Skipped(strict=True), where={"fold": value})
        assert "".join(group.texts[0] for group in found) == texts


def test_a_text_on_each_line_of_txt_is_read_with_its_tabs(tmp_path: Path) -> None:
    """docs/embeddings.md: a text on each line."""
    lines = ["the cat\tsat", "a dog", "", "b\tc\td", "e\t"]
    for order in (lines, lines[1:] + lines[:1]):
        (tmp_path / "a.txt").write_text("\n".join(order) + "\n")
        skipped = Skipped(strict=True)
        found = groups.read(tmp_path / "a.txt", ("0",), None, skipped=skipped)
        assert [group.texts for group in found] == [(line,) for line in order if line]
        assert "a tab is part of the text in .txt; for a table, name it .tsv" in skipped.doubt
    (tmp_path / "a.txt").write_text("the cat\tsat\n")
    pair = groups.read(tmp_path / "a.txt", ("0", "1"), None, skipped=Skipped())
    assert [group.texts for group in pair] == [("the cat", "sat")]  # two columns are a table
