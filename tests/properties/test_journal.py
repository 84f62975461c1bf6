"""Whatever metrics.jsonl holds, bert.report makes figures of its whole lines or ends in one line."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert import report
from bert.core import journal
from bert.core.errors import InputError
from tests.properties.fuzz import fuzz

KEYS = st.sampled_from(["step", "split", "loss", "mlm_accuracy", "tokens_per_second"]) | st.text(max_size=5)
NUMBERS = st.floats() | st.integers() | st.sampled_from(["nan", "inf", "-inf", 10**400])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5), lambda below: st.lists(below, max_size=2), max_leaves=3
)
GOOD = st.fixed_dictionaries(
    {"step": st.integers(0, 10**6), "split": st.sampled_from(["train", "heldout", "other"])},
    optional={"loss": NUMBERS, "mlm_accuracy": NUMBERS, "tokens_per_second": NUMBERS},
)


def as_bytes(line: Any) -> bytes:
    return json.dumps(line).encode()


LINES = st.lists(
    GOOD.map(as_bytes) | st.dictionaries(KEYS, VALUES).map(as_bytes) | VALUES.map(as_bytes) | st.binary(max_size=20),
    max_size=6,
)


@fuzz
@given(LINES, st.integers(0, 99))
def test_any_lines_make_figures_or_an_error(lines: list[bytes], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = b"\n".join(lines)
        (Path(folder) / journal.NAME).write_bytes(data[: max(0, len(data) - cut)])
        try:
            kept = report.read_metrics(Path(folder))
        except InputError:
            return
    figures = kept.figures()
    json.dumps(report.as_json(figures), allow_nan=False)
    report.table({"run$": figures}).encode()


@pytest.mark.parametrize("value", ["nan", "-inf", 1e308, 10**300])
def test_any_number_can_be_drawn(value: float | str, tmp_path: Path) -> None:
    line = {"step": 7, "loss": value, "mlm_accuracy": value, "tokens_per_second": value}
    text = "".join(json.dumps(line | {"split": split}) + "\n" for split in ("train", "heldout"))
    (tmp_path / "a$b_{^").mkdir()
    (tmp_path / "a$b_{^" / journal.NAME).write_text(text)
    report.main([str(tmp_path / "a$b_{^"), "--output", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out/report.json").read_text(), parse_constant=pytest.fail)
    assert math.isclose(float(found[str(tmp_path / "a$b_{^")]["train_loss"]), float(value)) or value == "nan"
