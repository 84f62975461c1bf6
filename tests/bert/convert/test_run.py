"""Run directories are exported, and imports are run directories."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert.convert import __main__ as convert
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from bert.model.inference import InferenceEncoder
from squad import model as questions
from squad.config import Windowing
from squad.model import AnswerSpans
from tests.bert.convert.folders import SMALL, a_run


@pytest.mark.slow
def test_an_imported_head_for_questions_answers_them(tmp_path: Path) -> None:
    values = a_run(tmp_path / "run", SMALL, TaskModel(SMALL, 0, AnswerSpans.described))
    convert.main(["export", "google", str(tmp_path / "run"), str(tmp_path / "theirs")])
    convert.main(["import", "google", str(tmp_path / "theirs"), str(tmp_path / "back")])
    loaded = questions.load(tmp_path / "back")
    model = TaskModel(SMALL, 1, AnswerSpans.described)
    for name, variable in variables(model).items():
        variable.assign(values[name])
    ids = tf.constant(np.random.default_rng(4).integers(0, SMALL.vocab_size, (3, 7)), tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    expected = model.head(InferenceEncoder(model.encoder, tf.float32)(*batch.values()), batch["input_mask"])
    for found, one in zip(loaded.logits(batch), expected, strict=True):
        np.testing.assert_array_equal(found, one)
    assert loaded.kind.windowing == Windowing(max_seq_length=17, doc_stride=5, max_query_length=2)
