"""A damaged metrics.jsonl neither stops a run from resuming nor an export."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bert.convert import run
from bert.training import metrics
from tests.properties.fuzz import fuzz
from tests.properties.mutations import damaged, damaged_json, survives

LINES = [
    {"step": step, "split": split, "loss": 9.5 - step, "mlm_accuracy": 0.125, "tokens_per_second": 1234.5}
    for step, split in ((1, "train"), (2, "train"), (2, "heldout"), (3, "train"))
]
GOOD = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
ANY = damaged(GOOD) | st.lists(damaged_json(LINES[2]), max_size=3).map(b"\n".join)


@given(content=ANY)
@fuzz
def test_a_resumed_run_goes_on_below_the_lines_that_it_can_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / metrics.NAME
    path.write_bytes(content)
    log = survives(lambda: metrics.Log(tmp_path, steps=9, first=2, active=True))
    assert log
    log.write(3, "train", {"loss": 1.5})
    log.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[-1])["loss"] == 1.5
    assert all(metrics._step_of(line.encode()) <= 2 for line in lines[:-1])


@given(content=ANY)
@fuzz
def test_an_export_takes_the_scores_that_it_can_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / metrics.NAME
    path.write_bytes(content)
    scores = survives(lambda: run._last_lines(path, 10**9))
    assert scores is not None
    assert all(isinstance(line["step"], int) and isinstance(line["split"], str) for line in scores)
