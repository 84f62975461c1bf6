"""Published rows, and the rules by which some are not fitted."""

import csv
import dataclasses

from benchmarks.planner import published
from benchmarks.planner.published import Row


def test_every_row_names_its_source() -> None:
    with published.ROWS.open(encoding="ascii", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 829 and len({row["id"] for row in rows}) == 829
    assert all(row["source"] and (row["path"] or row["locator"]) for row in rows)


def group() -> list[Row]:
    return list(published.series()["DLE-TF2|DGX-A100-80|multi|fp16|128"])


def test_clean_rows_are_kept() -> None:
    assert not list(published._contradicted(group()))


def test_a_row_that_is_faster_with_more_gpus_is_refused() -> None:
    first, *others = group()
    slow = dataclasses.replace(first, rate=first.rate / 1.3)
    found = {row.id: reason for row, reason in published._contradicted([slow, *others])}
    assert list(found) == [first.id] and "times as fast" in found[first.id]


def test_a_batch_that_is_not_the_product_is_refused() -> None:
    first, *others = group()
    found = list(published._contradicted([dataclasses.replace(first, batch=first.batch * 2), *others]))
    assert [row.id for row, _ in found] == [first.id] and "the table says" in found[0][1]


def test_a_loss_that_no_network_explains_is_refused() -> None:
    *others, last = group()
    found = list(published._contradicted([*others, dataclasses.replace(last, rate=last.rate / 2)]))
    assert [row.id for row, _ in found] == [last.id] and "against one node" in found[0][1]


def test_few_rows_are_refused() -> None:
    kept = sum(map(len, published.series().values()))
    assert len(published.contradictions()) < 0.1 * kept
