"""What the planner says of runs and tables that were published."""

import pytest

from benchmarks.planner import known_runs, published


@pytest.mark.parametrize("run", known_runs.all_runs(), ids=lambda run: f"{run.name} {run.remark}".strip())
def test_a_known_run_takes_what_was_stated(run: known_runs.Run) -> None:
    print(f"{run.name:<40} {run.predicted:12,.2f} {run.stated:12,.2f} {run.unit:<6} {run.error:+.1%} {run.remark}")
    tolerance = 0.03 if run.name.startswith("Megatron") else 0.15 if "3472" in run.name else 0.10
    assert abs(run.error) <= tolerance


def test_the_youngest_row_is_too_fast_for_any_row_of_the_older_code() -> None:
    rows = {row.id: row for row in published.rows()}
    older, youngest = rows["r764"], rows["r792"]
    assert older.work == youngest.work and older.cluster.per_node == youngest.cluster.per_node
    straight_line = older.rate / older.cluster.ranks * youngest.cluster.ranks  # 13 % more GPUs that lose nothing
    assert straight_line < 0.9 * youngest.rate
    assert youngest.rate / straight_line > published.SUPERLINEAR
