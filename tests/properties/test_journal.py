"""Whatever number metrics.jsonl holds, bert.report draws it."""

import json
import math
from pathlib import Path

import pytest

from bert import report
from bert.core import journal


@pytest.mark.slow
@pytest.mark.parametrize("value", ["nan", "-inf", 1e308, 10**300])
def test_any_number_can_be_drawn(value: float | str, tmp_path: Path) -> None:
    line = {"step": 7, "loss": value, "mlm_accuracy": value, "tokens_per_second": value}
    text = "".join(json.dumps(line | {"split": split}) + "\n" for split in ("train", "heldout"))
    (tmp_path / "a$b_{^").mkdir()
    (tmp_path / "a$b_{^" / journal.NAME).write_text(text)
    report.main([str(tmp_path / "a$b_{^"), "--output", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out/report.json").read_text(), parse_constant=pytest.fail)
    assert math.isclose(float(found[str(tmp_path / "a$b_{^")]["train_loss"]), float(value)) or value == "nan"
