"""Published rows, and the rules by which some are not fitted."""

import csv
import dataclasses

import pytest

from benchmarks.planner import published


def test_every_row_names_its_source() -> None:
    with published.ROWS.open(encoding="ascii", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 829 and len({row["id"] for row in rows}) == 829
    assert all(row["source"] and (row["path"] or row["locator"]) for row in rows)


@pytest.mark.parametrize(
    ("place", "field", "factor", "reason"),
    [
        (0, "rate", 1 / 1.3, "times as fast"),
        (0, "batch", 2, "the table says"),
        (-1, "rate", 1 / 2, "against one node"),
    ],
)
def test_a_row_that_contradicts_the_others_is_refused(place: int, field: str, factor: float, reason: str) -> None:
    group = list(published.series()["DLE-TF2|DGX-A100-80|multi|fp16|128"])
    assert not list(published._contradicted(group))
    group[place] = dataclasses.replace(group[place], **{field: getattr(group[place], field) * factor})
    [(row, said)] = published._contradicted(group)
    assert row is group[place] and reason in said


def test_few_rows_are_refused() -> None:
    kept = sum(map(len, published.series().values()))
    assert len(published.contradictions()) < 0.1 * kept
