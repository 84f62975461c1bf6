"""The exported graph answers as the Python path does, from the same text, with nothing of ours around it."""

import errno
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf import saved_model_pb2

from bert.core import files, manifest
from bert.core.errors import ResourceError, UsageError
from bert.model.encoder import variables
from bert.model.heads import TaskModel
from bert.text import windows
from bert.training import checkpoint
from squad import answering, export, model, threshold
from squad.config import Windowing
from squad.examples import Dataset, Example
from squad.model import AnswerSpans
from squad.reader import Reader
from tests.bert.export.served import CONFIG, HOSTILE, VOCAB

pytest.importorskip("tensorflow_text", reason="its operations are part of the graph")

NARROW = Windowing(max_seq_length=23, doc_stride=5, max_query_length=7)
WIDE = Windowing(max_seq_length=71, doc_stride=31, max_query_length=11)
WRITTEN = st.characters(exclude_categories=["Cs"])  # anything but halves of surrogates, which UTF-8 does not have


def fine_tuned_run(folder, windowing=NARROW, impossible=True, threshold_=None, **changes):
    """A run directory with random weights, large ones, so that scores are far apart."""
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    config = replace(CONFIG, **changes)
    config.save(folder / "bert_config.json")
    flat = {f"windows.{name}": value for name, value in asdict(windowing).items()} | {"data.impossible": impossible}
    files.write_json(folder / "config.json", {"config": flat})
    made = TaskModel(config, 7, AnswerSpans.described)
    checkpoint.save(folder, 3, {name: tf.identity(x) for name, x in variables(made).items()}, keep=1)
    if threshold_ is not None:
        weights = manifest.content_hash(checkpoint.steps(folder)[-1])
        files.write_json(folder / threshold.NAME, {"threshold": threshold_, "weights": weights})
    return folder


def exported(run, output, *more):
    export.main(["--model", str(run), "--output", str(output), *map(str, more)])
    return output / "1"


def ask(served, pairs):
    """The answers of a SavedModel's signature to (question, context) pairs."""
    questions, contexts = (tf.constant([pair[i] for pair in pairs], tf.string) for i in (0, 1))
    return {name: value.numpy() for name, value in served(question=questions, context=contexts).items()}


def as_read(reader, limit, pairs):
    """What squad.predict makes of them: the best answers and all null odds."""
    examples = [Example(id=str(i), question=q, passage=i, answers=()) for i, (q, _) in enumerate(pairs)]
    found = [answers for _, answers in reader.answer(Dataset(passages=[c for _, c in pairs], examples=examples))]
    return [answers.best(limit) for answers in found], [answers.null_odds for answers in found]


def assert_same(served, reader, limit, pairs):
    got = ask(served, pairs)
    best, odds = as_read(reader, limit, pairs)
    assert [text.decode() for text in got["answer"]] == [candidate.text for candidate in best]
    assert got["start"].tolist() == [candidate.start for candidate in best]
    assert got["end"].tolist() == [candidate.start + len(candidate.text) for candidate in best]
    np.testing.assert_allclose(got["probability"], [c.probability for c in best], rtol=1e-3, atol=1e-5)
    if limit is not None:
        np.testing.assert_allclose(got["null_odds"], odds, rtol=1e-4, atol=1e-4)


def saved_graph(folder):
    """The graph as it stands in the file."""
    return saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())


class Both:
    """A model behind its exported signature, and behind squad.predict."""

    def __init__(self, folder, limit, windowing, **changes):
        self.run = fine_tuned_run(folder / "run", windowing, limit is not None, limit, **changes)
        self.folder = exported(self.run, folder / "served")
        self.loaded = tf.saved_model.load(str(self.folder))
        self.served, self.limit = self.loaded.signatures["serving_default"], limit
        self.reader = Reader(model.load(self.run), batch=32, limit=limit)

    def assert_same(self, pairs):
        assert_same(self.served, self.reader, self.limit, pairs)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    return Both(tmp_path_factory.mktemp("narrow"), -1.5, NARROW)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    return Both(tmp_path_factory.mktemp("wide"), None, WIDE, norm_placement="pre", recompute_activations=True)


@pytest.mark.slow
def test_hostile_texts_are_answered_as_by_predict(narrow, wide):
    pairs = [(question, context) for question in ("who?", "", HOSTILE[-1]) for context in HOSTILE]
    for both in (narrow, wide):
        both.assert_same(pairs)
    answers = ask(narrow.served, pairs)["answer"]
    assert 0 < sum(answer == b"" for answer in answers) < len(pairs)  # some above the threshold, some below


# The same examples always: of two spans with nearly the same score, two orders of additions may choose differently.
@settings(max_examples=25, derandomize=True)
@given(st.lists(st.tuples(st.text(WRITTEN, max_size=20), st.text(WRITTEN, max_size=400)), min_size=1, max_size=5))
def test_any_texts_are_answered_as_by_predict(narrow, pairs):
    narrow.assert_same(pairs)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 90)), min_size=1, max_size=5),
    st.integers(13, 40),
    st.integers(1, 43),
)
def test_windows_are_those_that_training_has(lengths, size, stride):
    asked, told = (np.array(column, np.int32) for column in zip(*lengths, strict=True))
    room = size - 3 - asked
    spans = [windows.cut(int(tokens), int(free), stride) for tokens, free in zip(told, room, strict=True)]
    best = [windows.best_window(int(tokens), int(free), stride) for tokens, free in zip(told, room, strict=True)]
    first, step = np.cumsum(told, dtype=np.int32) - told, np.minimum(stride, room)
    passages = answering.Passages(None, tf.constant(told), tf.constant(first), None, None, None)
    count = tf.constant([len(cuts) for cuts in spans])
    question = tf.RaggedTensor.from_row_lengths(np.zeros(asked.sum(), np.int32), asked)
    cuts = answering._cut(passages, question, tf.constant(room), tf.constant(step), count)
    rows = [
        (q, w, asked[q] + 2, first[q] + at, length) for q, cut in enumerate(spans) for w, (at, length) in enumerate(cut)
    ]
    assert np.stack(cuts, axis=1).tolist() == np.array(rows).tolist()
    found = answering._best_window(passages, tf.constant(room), tf.constant(step), count)
    assert found[:-1].numpy().tolist() == np.concatenate(best).tolist()


def test_the_batch_changes_nothing_and_may_be_empty(narrow):
    pairs = [("who?", context) for context in HOSTILE]
    together, alone = ask(narrow.served, pairs), [ask(narrow.served, [pair]) for pair in pairs]
    for name in ("answer", "start", "end"):
        assert together[name].tolist() == [one[name][0] for one in alone]
    assert {name: len(values) for name, values in ask(narrow.served, []).items()} == dict.fromkeys(together, 0)


def test_a_request_that_cannot_be_meant_is_refused(narrow):
    with pytest.raises(tf.errors.InvalidArgumentError, match="every question needs its context"):
        narrow.served(question=tf.constant(["who?", "where?"]), context=tf.constant(["river"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid formatting"):
        ask(narrow.served, [("who?", b"caf\xe9")])


def test_scores_that_are_no_numbers_are_an_error_not_an_answer(narrow):
    reading = answering.Answering(model.load(narrow.run), limit=None)
    reading.head.output.output.bias.assign([math.nan, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        reading._answer(tf.constant(["who?"]), tf.constant(["a river"]))  # eagerly


def test_short_texts_are_read_in_narrow_windows_and_many_in_several_batches(wide, monkeypatch):
    reading = answering.Answering(model.load(wide.run), limit=None)
    shapes, logits = [], reading.logits

    def spy(inputs):
        shapes.append(tuple(inputs["input_ids"].shape))
        return logits(inputs)

    monkeypatch.setattr(reading, "logits", spy)
    reading._answer(tf.constant(["who?"] * 37), tf.constant(["a river"] * 36 + ["a " * 100]))  # eagerly
    assert shapes == [(32, 16), (7, 71)]  # 36 short windows, and three that overlap


def test_the_signature_is_as_documented_and_the_folder_as_servers_want_it(narrow, wide):
    given = narrow.served.structured_input_signature[1]
    assert given == {name: tf.TensorSpec([None], tf.string, name) for name in ("question", "context")}
    kinds = {"answer": tf.string, "start": tf.int32, "end": tf.int32, "probability": tf.float32}
    assert {name: spec.dtype for name, spec in wide.served.structured_outputs.items()} == kinds
    assert {name: spec.dtype for name, spec in narrow.served.structured_outputs.items()} == kinds | {
        "null_odds": tf.float32
    }
    assert [path.name for path in narrow.folder.parent.iterdir()] == ["1"]
    assert "_XlaMustCompile" not in str(saved_graph(narrow.folder))  # a server on CPUs could not run it


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["float16", pytest.param("bfloat16", marks=pytest.mark.thorough)])
def test_half_precision_halves_the_weights_and_answers_nearly_alike(narrow, tmp_path, compute):
    folder = exported(narrow.run, tmp_path, "--compute", compute)
    loaded = tf.saved_model.load(str(folder))
    nodes = [
        node
        for function in saved_graph(folder).meta_graphs[0].graph_def.library.function
        for node in function.node_def
        if node.op == "Const" and node.attr["dtype"].type == tf.int16
    ]
    of_layer = 4 * 24 * 25 + (24 + 1) * 40 + (40 + 1) * 24
    assert sum(len(node.attr["value"].tensor.tensor_content) for node in nodes) == 2 * 2 * of_layer
    pairs = [("who?", context) for context in HOSTILE]
    half, whole = ask(loaded.signatures["serving_default"], pairs), ask(narrow.served, pairs)
    assert not np.array_equal(half["null_odds"], whole["null_odds"])
    np.testing.assert_allclose(half["null_odds"], whole["null_odds"], atol=0.1 * np.ptp(whole["null_odds"]))


@pytest.mark.slow
def test_the_threshold_of_the_command_wins_over_that_of_the_run(narrow, tmp_path):
    folder = exported(narrow.run, tmp_path, "--null_threshold", 1e6)
    never_none = ask(tf.saved_model.load(str(folder)).signatures["serving_default"], [("who?", "a river")])
    assert never_none["answer"][0]


def test_what_cannot_be_exported_leaves_nothing(narrow, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(ResourceError, match="the disk is full"):
        exported(narrow.run, tmp_path / "served")
    assert not list((tmp_path / "served").iterdir())
    (tmp_path / "served" / "1").mkdir()
    (tmp_path / "served" / "1" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not made by this program"):
        exported(narrow.run, tmp_path / "served")
    for flags in (["--version", 0], ["--max_answer_length", 0], ["--null_threshold", "nan"]):
        with pytest.raises(UsageError):
            exported(narrow.run, tmp_path / "other", *flags)
    assert not (tmp_path / "other").exists()
