"""The clock's rates follow from the times of its laps; scores are logged from 0 to 100, also those of older runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from bert.core import journal
from bert.training import metrics


def test_rates_of_updates_only_and_of_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    clock = metrics.Clock(flops=lambda tokens, sequences: tokens * 3e10 + sequences * 1.28e12, replicas=2, peak=5e14)
    mask = np.arange(16 * 128).reshape(16, 128) % 4
    for kind, seconds, sequences in (
        ("input", 1.0, 0),
        ("compute", 3.0, 0),
        ("communication", 1.0, 16),
        ("other", 2.0, 0),
        ("input", 1.0, 0),
        ("compute", 2.0, 16),
    ):
        now[0] += seconds
        clock.lap(kind)
        if sequences:
            clock.count(sequences, mask)
    found = clock.rates()
    assert found["sequences_per_second"] == pytest.approx(64 / 6)
    assert found["tokens_per_second"] == pytest.approx(128 * 64 / 6) and found["padding"] == 0.25
    assert found["sequences_per_second_overall"] == pytest.approx(6.4)
    assert found["input_share"] == pytest.approx(0.2) and found["communication_share"] == pytest.approx(0.1)
    assert found["model_teraflops_per_second"] == pytest.approx(5.12 * 64 / 6)
    assert found["utilisation"] == pytest.approx(5.12e12 * 64 / 6 / 1e15)
    now[0] += 1
    clock.lap("compute")
    clock.count(4, np.ones((4, 32), np.int32))
    found = clock.rates()
    assert found["sequences_per_second"] == 8 and found["padding"] == 0  # since the last call
    assert "utilisation" not in metrics.Clock(flops=lambda tokens, sequences: 1.0, replicas=1, peak=0.0).rates()


def test_packed_sequences_are_counted_as_sequences_and_their_rows_as_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    clock = metrics.Clock(flops=lambda tokens, sequences: tokens * 1e9 + sequences * 7e12, replicas=3, peak=0.0)
    now[0] = 2.0
    clock.lap("compute")
    clock.count(11, np.repeat([[1, 2, 2, 0, 0]], 5, axis=0))  # 11 sequences in 5 rows of 5 tokens
    found = clock.rates()
    assert found["sequences_per_second"] == 3 * 11 / 2 and found["tokens_per_second"] == 3 * 25 / 2
    assert found["padding"] == pytest.approx(0.4)
    assert found["model_teraflops_per_second"] == pytest.approx(3 * (25 * 1e-3 + 11 * 7) / 2)


OLDER: list[dict[str, Any]] = [
    {"step": 5, "split": "train", "loss": 2.5, "mlm_loss": 2.5, "mlm_accuracy": 0.25, "padding": 0.5, "loss_scale": 8},
    {"step": 5, "split": "heldout", "loss": 2.0, "mlm_loss/books": 2.0, "mlm_accuracy/books": 0.5},
    {"step": 5, "split": "heldout", "f1": 0.125, "matthews": -1, "exact_match": "nan"},
    {"step": 5, "split": "fed", "samples": 3},
]
IN_PERCENT: list[dict[str, Any]] = [
    {**OLDER[0], "mlm_accuracy": 25.0},
    {**OLDER[1], "mlm_accuracy/books": 50.0},
    {**OLDER[2], "f1": 12.5, "matthews": -100},
    OLDER[3],
]


def test_a_resumed_run_of_an_earlier_version_has_all_its_scores_on_one_scale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / journal.NAME
    path.write_text("".join(json.dumps(line) + "\n" for line in [*OLDER, {**OLDER[0], "step": 6}]) + '{"step": 4, "sp')
    expected = [
        line | ({"exact_match": pytest.approx(float("nan"), nan_ok=True)} if "f1" in line else {})
        for line in IN_PERCENT
    ]
    assert list(journal.intact(path))[:4] == expected
    for step in (5, 6):  # it is resumed twice
        log = metrics.Log(tmp_path, steps=9, first=step, active=True)
        log.write(6, "heldout", {"f1": 80.0})
        log.close()
        assert (f"note: {path}: {metrics.EARLIER}" in capsys.readouterr().err) == (step == 5)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    later = {"step": 6, "split": "heldout", "f1": 80.0}
    assert lines == [line | {"scale": 100} for line in [*IN_PERCENT, later, later]]
    assert list(journal.intact(path)) == [*expected, later, later]


def test_a_line_of_another_scale_is_damaged(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).write_text('{"step": 1, "split": "train", "scale": 1, "mlm_accuracy": 0.5}\n')
    assert list(journal.lines(tmp_path / journal.NAME)) == [None]


@pytest.mark.slow
def names_in_order(folder: Path, count: int) -> None:
    """Have the next `count` files for TensorBoard names in the order in which they are made.

    It reads files in the order of their names. Those of one second differ by a counter of the process, of which 10
    comes before 9 as text.
    """
    for _ in range(count):
        tf.summary.create_file_writer(str(folder)).close()
        made = max(int(path.name.split(".")[-2]) for path in folder.iterdir())
        if len(str(made + 1)) == len(str(made + count)):
            return


def test_tensorboard_has_each_update_once_after_a_kill_and_after_a_rollback(tmp_path: Path) -> None:
    """TensorBoard's own reader gives one value for each update, and it is the last one that was made."""
    names_in_order(tmp_path / "counter", 5)
    first = 0
    for made, kept in ((7, 4), (6, 5), (5, 0), (3, 3)):  # updates that were made, and those that the checkpoint has
        log = metrics.Log(tmp_path, steps=9, first=first, active=True)
        for step in range(first + 1, made + 1):
            log.write(step, "train", {"loss": made + step / 100})
            log.write(step, "heldout", {"accuracy": 10.0 * step})
        first = kept
    (cut,) = [path for path in (tmp_path / "events").iterdir() if path.stat().st_size > 1][-1:]
    with open(cut, "ab") as stream:
        stream.write(b"\x40\0\0")  # the begin of a record, as a killed process leaves one
    metrics.Log(tmp_path, steps=9, first=3, active=True).write(4, "train", {"loss": 9.04})
    reader = EventAccumulator(str(tmp_path / "events"), size_guidance={"tensors": 0}, purge_orphaned_data=False)
    reader.Reload()
    found = [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in reader.Tensors("train/loss")]
    assert found == [(step, pytest.approx(value)) for step, value in ((1, 3.01), (2, 3.02), (3, 3.03), (4, 9.04))]
    assert [event.step for event in reader.Tensors("heldout/accuracy")] == [1, 2, 3]
