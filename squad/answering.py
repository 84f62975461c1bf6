"""The graph of squad.export: questions and passages as text to answers as text."""

import math
from typing import NamedTuple

import tensorflow as tf

from bert.export import graph, windows
from bert.export.graph import int32
from bert.export.tokenizer import GraphTokenizer
from bert.hardware import graphs
from bert.model import inference
from squad.answers import MAX_ANSWER_LENGTH, N_BEST
from squad.features import INPUTS
from squad.model import AnswerSpans
from tasks.model import FineTuned

ROW = [None, N_BEST]


class Passages(NamedTuple):
    """B passages: their characters and their tokens, flat [t], followed by one padding token."""

    characters: tf.RaggedTensor  # [B, (characters)] the number of each, as a string
    count: tf.Tensor  # [B] number of tokens
    first: tf.Tensor  # [B] index of a passage's first token
    ids: tf.Tensor  # [t + 1]
    begin: tf.Tensor  # [t + 1] characters of the token in its passage, half open
    end: tf.Tensor


class Cuts(NamedTuple):
    """W windows in the order of their questions; all fields [W]."""

    question: tf.Tensor
    number: tf.Tensor  # index among the windows of its question
    offset: tf.Tensor  # position of the first passage token
    first: tf.Tensor  # index of that token
    length: tf.Tensor  # number of passage tokens


class Spans(NamedTuple):
    """The best spans of W windows, best first."""

    score: tf.Tensor  # [W, K], -inf for an invalid span
    first: tf.Tensor  # [W, K] indices of first and last token
    last: tf.Tensor
    null: tf.Tensor  # [W] score of no answer


# Of one batch: a specification for each field.
SPANS = Spans(
    tf.TensorSpec(ROW, tf.float32),
    tf.TensorSpec(ROW, tf.int32),
    tf.TensorSpec(ROW, tf.int32),
    tf.TensorSpec([None], tf.float32),
)


class Answering(tf.Module):
    """Questions and passages to answers in one graph: what squad.features, squad.reader and squad.answers do in NumPy.

    B questions, W windows of all of them, R windows per batch, S positions, L longest answer, K spans per window.
    """

    def __init__(
        self, fine_tuned: FineTuned[AnswerSpans], *, limit: float | None, max_answer_length: int = MAX_ANSWER_LENGTH
    ) -> None:
        """limit: null odds above it mean no answer; None: every question gets an answer."""
        super().__init__()
        self.encoder, self.head = fine_tuned.encoder, fine_tuned.head  # tf.Module tracks their variables
        self.tokenizer, self.windowing = fine_tuned.tokenizer, fine_tuned.kind.windowing
        self.in_graph = GraphTokenizer(self.tokenizer)
        self.logits, self.limit, self.longest = fine_tuned.logits, limit, max_answer_length
        self.answer = graphs.function(
            self._answer, [tf.TensorSpec([None], tf.string, n) for n in ("question", "context")]
        )

    def _answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        checked = tf.debugging.assert_equal(tf.size(question), tf.size(context), "every question needs its context")
        with tf.control_dependencies([checked]):  # so that this error comes first
            question, context = tf.identity(question), tf.identity(context)
        questions = self.in_graph.tokenize(question)[:, : self.windowing.max_query_length]
        passages = self._passages(context)
        room = self.windowing.max_seq_length - 3 - int32(questions.row_lengths())  # [B]
        step = tf.minimum(self.windowing.doc_stride, room)
        count = windows.counts(passages.count, room, step)  # windows [B]
        cuts = _cut(passages, questions, room, step, count)
        spans = self._read(questions, passages, cuts, _best_window(passages, room, step, count))
        return self._choose(context, passages, cuts, spans)

    def _passages(self, context: tf.Tensor) -> Passages:
        """Tokenize with character offsets, as Tokenizer.encode_with_offsets does."""
        ids, begin, end = self.in_graph.tokenize_with_offsets(context)
        # Not unicode_split: it encodes each character again, which TensorFlow 2.17 refuses for one such as U+FFFE.
        codes = tf.strings.unicode_decode(context, "UTF-8", errors="strict")
        characters = codes.with_flat_values(tf.strings.as_string(codes.flat_values))
        count, first = int32(ids.row_lengths()), int32(ids.row_starts())
        return Passages(characters, count, first, *(tf.pad(x, [[0, 1]]) for x in (ids.flat_values, begin, end)))

    def _read(self, questions: tf.RaggedTensor, passages: Passages, cuts: Cuts, best: tf.Tensor) -> Spans:
        """Score windows in batches of similar length, padded to a multiple of LENGTH_MULTIPLE."""

        def read(rows: tf.Tensor) -> Spans:
            return self._score(questions, passages, Cuts(*(tf.gather(x, rows) for x in cuts)), best)

        return Spans(*graph.in_batches(cuts.offset + cuts.length, SPANS, read))

    def _score(self, questions: tf.RaggedTensor, passages: Passages, cuts: Cuts, best: tf.Tensor) -> Spans:
        """Run the model on R windows and return their best spans."""
        inputs = self._inputs(questions, passages, cuts)
        with inference.inlined():
            logits = self.logits(inputs)
        start, end = (tf.debugging.check_numerics(x, "not finite: the model's training failed") for x in logits)
        null = start[:, 0] + end[:, 0]
        at, offset = tf.range(tf.shape(start)[1]), cuts.offset[:, None]
        inside = (at >= offset) & (at < offset + cuts.length[:, None])
        place = tf.where(inside, cuts.first[:, None] + at - offset, tf.size(best) - 1)  # [R, S]
        start = tf.where(inside & (tf.gather(best, place) == cuts.number[:, None]), start, -math.inf)
        end = tf.pad(tf.where(inside, end, -math.inf), [[0, 0], [0, self.longest - 1]], constant_values=-math.inf)
        scores = start[:, :, None] + tf.signal.frame(end, self.longest, 1)  # [R, S, L]
        scores = tf.reshape(scores, [-1, tf.shape(start)[1] * self.longest])
        score, span = tf.math.top_k(tf.pad(scores, [[0, 0], [0, N_BEST]], constant_values=-math.inf), N_BEST)
        first = tf.gather(place, tf.minimum(span // self.longest, at[-1]), batch_dims=1)
        return Spans(score, first, first + span % self.longest, null)

    def _inputs(self, questions: tf.RaggedTensor, passages: Passages, cuts: Cuts) -> dict[str, tf.Tensor]:
        passage = tf.gather(passages.ids, tf.ragged.range(cuts.first, cuts.first + cuts.length))
        cls, sep = (tf.fill([tf.size(cuts.first), 1], x) for x in (self.tokenizer.cls_id, self.tokenizer.sep_id))
        line = tf.concat([cls, tf.gather(questions, cuts.question), sep, passage, sep], axis=1)
        padded = graph.model_input(line, cuts.offset, self.tokenizer.pad_id, self.windowing.max_seq_length)
        return dict(zip(INPUTS, padded, strict=True))

    def _choose(self, context: tf.Tensor, passages: Passages, cuts: Cuts, spans: Spans) -> dict[str, tf.Tensor]:
        """Return each question's best answer, with its probability among the best answers with different texts."""
        questions = tf.size(context)
        score, begin, end = _distinct(passages, cuts, spans, questions)
        best = score[:, 0]
        has_answer = best > -math.inf
        null = tf.cast(tf.math.unsorted_segment_min(spans.null, cuts.question, questions), tf.float64)
        odds = null - tf.where(has_answer, best, 0)
        if self.limit is not None:
            score = tf.concat([score, null[:, None]], axis=1)
            has_answer &= odds <= self.limit
        probability = tf.where(has_answer, tf.nn.softmax(score)[:, 0], 1)
        start, end = tf.where(has_answer, begin[:, 0], 0), tf.where(has_answer, end[:, 0], 0)
        answer = tf.strings.substr(context, start, end - start, unit="UTF8_CHAR")
        outputs = {"answer": answer, "start": start, "end": end, "probability": tf.cast(probability, tf.float32)}
        return outputs if self.limit is None else outputs | {"null_odds": tf.cast(odds, tf.float32)}


def _cut(passages: Passages, questions: tf.RaggedTensor, room: tf.Tensor, step: tf.Tensor, count: tf.Tensor) -> Cuts:
    """Cut the windows, as bert.text.windows.cut does."""
    question, number, skipped, length = windows.cut(passages.count, room, step, count)
    offset = tf.gather(int32(questions.row_lengths()) + 2, question)
    return Cuts(question, number, offset, tf.gather(passages.first, question) + skipped, length)


def _best_window(passages: Passages, room: tf.Tensor, step: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return for each token the window with the most context [t + 1], as windows.best_window does."""
    row = tf.repeat(tf.range(tf.size(count)), passages.count)  # [t]
    at = tf.range(tf.size(row)) - tf.gather(passages.first, row)
    tokens = windows.Spans(row, at, at + 1)
    return tf.pad(windows.most_context(tokens, passages.count, room, step, count), [[0, 1]])


def _distinct(passages: Passages, cuts: Cuts, spans: Spans, questions: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Return each question's best spans with different texts: scores (float64, padded with -inf), begins and ends.

    All are [B, 1 to N_BEST + 1]; begins and ends are characters. Of spans with the same text, keep the best; of equally
    good ones, keep the first.
    """
    valid = spans.score > -math.inf
    question = tf.boolean_mask(tf.broadcast_to(cuts.question[:, None], tf.shape(valid)), valid)  # [c] candidates
    score, first, last = (tf.boolean_mask(x, valid) for x in (spans.score, spans.first, spans.last))
    order = tf.argsort(-score, stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(question, order), stable=True))
    question, score, first, last = (tf.gather(x, order) for x in (question, score, first, last))
    begin, end = tf.gather(passages.begin, first), tf.gather(passages.end, last)
    base = tf.gather(int32(passages.characters.row_starts()), question)
    text = tf.gather(passages.characters.flat_values, tf.ragged.range(base + begin, base + end))
    text = tf.strings.reduce_join(text, axis=-1, separator=" ")
    texts, which = tf.unique(tf.strings.join([tf.strings.as_string(question), text], " "))
    leads = tf.math.unsorted_segment_min(tf.range(tf.size(which)), which, tf.size(texts))  # first span of each text

    def rows(values: tf.Tensor, absent: float) -> tf.Tensor:
        listed = tf.RaggedTensor.from_value_rowids(tf.gather(values, leads), tf.gather(question, leads), questions)
        return tf.pad(listed[:, :N_BEST].to_tensor(absent), [[0, 0], [0, 1]], constant_values=absent)

    return rows(tf.cast(score, tf.float64), -math.inf), rows(begin, 0), rows(end, 0)
