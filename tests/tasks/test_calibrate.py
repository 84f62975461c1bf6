"""A calibration is fitted to a classifier, stored for its weights, and used where it is asked for."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from bert.errors import IntegrityError, UsageError
from bert.storage import checked_json
from tasks import calibrate
from tasks.calibrate import NAME, Calibration, Options
from tasks.classification import Classification, softmax
from tasks.config import TaskData
from tasks.examples import TextExample
from tasks.labels import Labels
from tasks.model import FineTuned

STORED = Calibration(
    temperature=2.5, threshold=0.25, error_before=0.3, error_after=0.1, examples=7, weights="those of the model"
)


def model(weights: str = STORED.weights, labels: Labels | None = None) -> FineTuned:
    """What a calibration needs of a model."""
    kind = Classification(TaskData(), labels or Labels(names=("no", "yes")), ("f1",))
    return cast(FineTuned, SimpleNamespace(kind=kind, weights=weights))


def test_a_stored_calibration_changes_probabilities_and_the_label(tmp_path: Path) -> None:
    checked_json.write(tmp_path / NAME, dataclasses.asdict(STORED))
    fine_tuned = model()
    logits = np.array([[1.0, -1.0]])  # P(yes) is 0.12, and 0.31 at the temperature
    example = [TextExample(id="0", first="x")]
    (before,) = fine_tuned.kind.predictions(cast(Any, example), {}, logits)
    calibrate.apply(fine_tuned, tmp_path)
    (after,) = fine_tuned.kind.predictions(cast(Any, example), {}, logits)
    assert (before["label"], after["label"]) == ("no", "yes")
    assert list(after["probabilities"].values()) == pytest.approx(softmax(logits / 2.5)[0].tolist())


def test_a_calibration_is_for_the_weights_that_it_was_made_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"make it with python -m tasks\.calibrate"):
        calibrate.apply(model(), tmp_path)
    checked_json.write(tmp_path / NAME, dataclasses.asdict(STORED))
    with pytest.raises(UsageError, match="made for another checkpoint"):
        calibrate.apply(model("others"), tmp_path)
    content = (tmp_path / NAME).read_text()
    (tmp_path / NAME).write_text(content.replace("0.25", "0.35"))
    with pytest.raises(IntegrityError, match="calibrate again"):
        calibrate.apply(model(), tmp_path)


def test_a_number_cannot_be_calibrated() -> None:
    options = Options(model=Path("run"), input=Path("dev.tsv"))
    with pytest.raises(UsageError, match="only models of classes"):
        calibrate.calibrate(model(labels=Labels(regression=True)), options)


def test_an_over_confident_model_gets_a_temperature_above_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    honest = rng.normal(size=(997, 2))
    labels = (rng.random(997) < softmax(honest)[:, 1]).astype(int)
    monkeypatch.setattr(calibrate, "Reader", lambda *_: None)
    monkeypatch.setattr(calibrate, "logits_and_gold", lambda *_: (4 * honest, {"label": labels[:, None]}))
    found = calibrate.calibrate(model(), Options(model=Path("run"), input=Path("dev.tsv"), metric="accuracy"))
    assert found.temperature == pytest.approx(4, rel=0.25) and found.error_after < found.error_before / 2
    assert found.threshold is not None and 0.3 < found.threshold < 0.7
