"""Every rule of a record is checked, and a broken one is named with the record and its byte."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bert.core import manifest
from bert.text import frames, tf_example
from data import tfrecords
from data.audit import checks
from tests.finished import PREDICTIONS, SEQUENCE, encode, examples, sign, write


def first_prediction(row: dict[str, np.ndarray]) -> int:
    return int(row["masked_lm_positions"][0])


def unpredicted(row: dict[str, np.ndarray]) -> int:
    """The first word that is not predicted; a predicted one may have any token in its place, [PAD] too."""
    return next(i for i in range(1, SEQUENCE) if row["input_ids"][i] > 5 and i not in row["masked_lm_positions"])


def put(name: str, at: int | slice, value: object) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda row: row[name].__setitem__(at, value)


def ends(row: dict[str, np.ndarray]) -> int:
    return int(row["input_mask"].sum()) - 1


RECORDS: dict[str, Callable[[dict[str, np.ndarray]], None]] = {
    "input_ids: an id outside the vocabulary": lambda row: put("input_ids", first_prediction(row), 95)(row),
    "input_mask: not ones, then zeros": put("input_mask", 1, 0),
    "input_ids: [PAD] inside input_mask": lambda row: put("input_ids", unpredicted(row), 0)(row),
    "input_ids: not [CLS] a [SEP] b [SEP]": put("input_ids", 0, 7),
    "segment_ids: do not agree with [SEP]": put("segment_ids", 1, 1),
    "input_ids: a [MASK] that is not predicted": lambda row: put("input_ids", unpredicted(row), 4)(row),
    "masked_lm_weights: not ones, then zeros": put("masked_lm_weights", 0, 0.5),
    "masked_lm_weights: no prediction": put("masked_lm_weights", slice(None), 0.0),
    "masked_lm_positions: one outside the text": lambda row: put("masked_lm_positions", 0, ends(row))(row),
    "masked_lm_positions: not ascending": lambda row: put("masked_lm_positions", 1, first_prediction(row))(row),
    "masked_lm_ids: a special token is predicted": put("masked_lm_ids", 0, 2),
    "masked_lm_ids: an id outside the vocabulary": put("masked_lm_ids", 0, -3),
    "masked_lm_ids: an unused position is not zero": put("masked_lm_ids", -1, 9),
    "next_sentence_labels: not 0 or 1": put("next_sentence_labels", 0, 2),
    "does not parse: ": lambda row: row.update(segment_ids=row["segment_ids"][:-1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RECORDS)
def test_a_record_that_breaks_a_rule_is_named(rule: str, damaged_copy: Path, verify_folders: Callable) -> None:
    folder = damaged_copy / "tfrecords" / "seq37"
    path = folder / "train-00001-of-00003.tfrecord"
    rows = examples(path)
    short = next(n for n, row in enumerate(rows) if 2 <= row["masked_lm_weights"].sum() < PREDICTIONS and n > 2)
    RECORDS[rule](rows[short])
    write(path, rows)
    sign(folder)
    code, lines = verify_folders(folder)
    begin = int(frames.read_index(path)[short])
    assert code == 4 and any(line.startswith(f"{path}: record {short} at byte {begin}: {rule}") for line in lines)
    assert all(f": record {short} at byte " in line for line in lines)


STRETCHES: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "ids: an id outside the vocabulary": put("ids", 1, 95),
    "ids: a special token in the text": put("ids", 1, 4),
    "sentences: one is empty": put("sentences", 0, 0),
    "sentences: their lengths do not add up": put("sentences", 0, 2**62),
    "ids: empty": lambda row: row.update(ids=row["ids"][:0]),
    "document: lower than that of the previous record": put("document", 0, 0),
    "does not parse: ": lambda row: row.pop("document"),
}


@pytest.fixture(scope="module")
def tokenised(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stored") / "documents"
    inputs = ["--source", str(finished / "corpus" / "shards"), "--vocab", str(finished / "vocab.txt"), "--workers", "1"]
    tfrecords.main([*inputs, "--output", str(output), "--max_seq_length", "37", "--kind", "documents"])
    return output


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["", *STRETCHES])
def test_tokenised_documents_are_judged_too(
    rule: str, tokenised: Path, tmp_path: Path, verify_folders: Callable
) -> None:
    folder = Path(shutil.copytree(tokenised, tmp_path / "records"))
    path = folder / "train-00001-of-00003.tfrecord"
    rows = examples(path)
    assert rows[9]["document"] > 0
    if rule:
        STRETCHES[rule](rows[9])
    with frames.RecordWriter(path) as writer:
        for row in rows:
            writer.write(tf_example.encode(row))
    sign(folder)
    code, lines = verify_folders(folder)
    begin = int(frames.read_index(path)[9])
    if rule:
        assert code == 4 and any(line.startswith(f"{path}: record 9 at byte {begin}: {rule}") for line in lines)
        assert all(f": record 9 at byte {begin}: " in line for line in lines)
    else:
        assert code == 0 and len(lines) == 1


def test_no_content_of_a_record_is_too_strange_to_judge(finished: Path) -> None:
    path = finished / "tfrecords" / "seq37" / "heldout-00000-of-00001.tfrecord"
    rows, draw = examples(path), np.random.default_rng(5)
    found = checks.record_format(manifest.read(path.parent), [])
    assert found is not None
    for _ in range(70):
        row = dict(rows[draw.integers(len(rows))])
        name = draw.choice(sorted(row))
        values = row[name].astype(np.float32) if name == "masked_lm_weights" else row[name].astype(np.int64)
        strange = [np.nan, np.inf, -1.0, 1e30] if name == "masked_lm_weights" else [-1, 2**62, -(2**63), 95, 1000]
        values[draw.integers(len(values))] = draw.choice(strange)
        payloads = [encode(rows[0]), encode(row | {name: values})]
        assert {number for number, _ in checks.KINDS["instances"].check(payloads, found[1]).wrong} == {1}
