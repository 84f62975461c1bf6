"""The rows that data/documents.py names as strings are there."""

from bert.core import rows
from data import documents


def test_each_row_that_the_stage_names_is_of_its_type() -> None:
    assert isinstance(rows.load(documents.NEAR_DUPLICATES), documents.Search)
    assert isinstance(rows.load(documents.QUALITY), documents.Filter)
