"""A hundred thousand records have the statistics of BERT."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tensorflow as tf

from bert.core import outputs
from data import shards, tfrecords, vocab
from data.synthetic import __main__ as synthetic
from data.synthetic import grammar

pytestmark = pytest.mark.faults

DOCUMENTS, PARAGRAPHS = 260, 35


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """TFRecords of invented text."""
    root = tmp_path / "corpus"

    def make(partial: Path) -> outputs.StageResult:
        with open(partial / "part-00000.jsonl", "w") as stream:
            for number in range(DOCUMENTS):
                draw = Random(f"document {number}")
                sentences: list[str] = []
                for _ in range(PARAGRAPHS):
                    facts = grammar.scene(draw, "train", *draw.choice(synthetic.SCENES), synthetic.TWIN)
                    sentences += grammar.paragraph(draw, facts, asking=0.4)
                stream.write(json.dumps({"id": f"invented:{number}", "sentences": sentences}) + "\n")
        return outputs.StageResult(counts={"documents": DOCUMENTS}, records={"part-00000.jsonl": DOCUMENTS})

    outputs.build(root / "documents", stage="documents", parameters={}, inputs=[], make=make)
    shards.main(["--source", str(root / "documents"), "--output", str(root / "shards"), "--shards", "3"])
    vocab.main(["--source", str(root / "shards"), "--output", str(root / "vocab"), "--size", "2003"])
    inputs = ["--source", str(root / "shards"), "--vocab", str(root / "vocab" / "vocab.txt"), "--workers", "1"]
    tfrecords.main([*inputs, "--output", str(root / "seq128"), "--max_seq_length", "128", "--dupe_factor", "18"])
    return root / "seq128"


def test_a_hundred_thousand_instances_have_the_statistics_of_bert(folder: Path) -> None:
    wanted = {"input_ids": 128, "input_mask": 128, "segment_ids": 128, "masked_lm_positions": 20, "masked_lm_ids": 20}
    spec = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in wanted.items()}
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([20], tf.float32)
    spec["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    tokens = (folder / "vocab.txt").read_text().splitlines()
    cls, sep, mask = (tokens.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    count = real = predicted = hidden = kept = random_next = 0
    paths = sorted(map(str, folder.glob("train-*.tfrecord")))
    for batch in tf.data.TFRecordDataset(paths).batch(4096):
        row = {name: value.numpy() for name, value in tf.io.parse_example(batch, spec).items()}
        used, ids = row["masked_lm_weights"] > 0, row["input_ids"]
        shown = np.take_along_axis(ids, row["masked_lm_positions"], axis=1)
        inside = np.take_along_axis(row["input_mask"], row["masked_lm_positions"], axis=1)
        assert inside[used].all() and not np.isin(row["masked_lm_ids"][used], [0, cls, sep, mask]).any()
        assert not np.isin(shown[used], [0, cls, sep]).any() and (used.sum(1) >= 1).all()
        count += len(ids)
        real += int(row["input_mask"].sum())
        predicted += int(used.sum())
        hidden += int((shown == mask)[used].sum())
        kept += int((shown == row["masked_lm_ids"])[used].sum())
        random_next += int(row["next_sentence_labels"].sum())
    assert count >= 100_000
    assert abs(predicted / real - 0.15) < 0.003
    assert abs(hidden / predicted - 0.8) < 0.01 and abs(kept / predicted - 0.1) < 0.01
    assert abs(1 - (hidden + kept) / predicted - 0.1) < 0.01
    assert abs(random_next / count - 0.5) < 0.01
