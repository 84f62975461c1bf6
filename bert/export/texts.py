"""Texts and pairs of texts to what the model makes of them, in one graph.

B texts, pairs or questions, C classes or choices, N inputs of the model, R of them per batch, S positions, D width.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from bert import embedding, hidden_states
from bert.export import windows
from bert.export.graph import in_batches, int32, model_input
from bert.export.tokenizer import GraphTokenizer
from bert.export.trained import Trained
from bert.hardware import graphs
from bert.labels import SIGMOID
from bert.model.heads import pooled
from bert.model.inference import inlined

NOT_FINITE = "not finite: the model's training failed"


class Lines(NamedTuple):
    """N inputs of the model."""

    ids: tf.RaggedTensor  # [N, (tokens)] with special tokens
    first: tf.Tensor  # number of tokens in the first segment [N]


class Reader(tf.Module):
    """What every signature shares: tokens, and the encoder."""

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self.encoder, self.output = trained.encoder, trained.output  # tracks variables
        self.tokenizer, self.head, self.sizes = trained.run.tokenizer, trained.head, trained.sizes
        self.in_graph = GraphTokenizer(trained.run.tokenizer)
        self.served: dict[str, Any] = {}
        """its signatures, by name"""

    def lines(self, first: tf.Tensor, second: tf.Tensor | None = None) -> Lines:
        """Return the input for texts [N], or for pairs of texts, cut as tasks.inputs does."""
        tokens = self.in_graph.tokenize(first)
        length, count = self.sizes.length, int32(tokens.row_lengths())
        cls, sep = (tf.fill([tf.size(first), 1], x) for x in (self.tokenizer.cls_id, self.tokenizer.sep_id))
        if second is None:
            count = tf.minimum(count, length - 2)
            return Lines(tf.concat([cls, _beginning(tokens, count), sep], axis=1), count + 2)
        others = self.in_graph.tokenize(second)
        if self.sizes.first_length:
            count = tf.minimum(count, self.sizes.first_length)
        count, rest = shares(count, int32(others.row_lengths()), length - 3, self.sizes.odd_to_longer)
        ids = tf.concat([cls, _beginning(tokens, count), sep, _beginning(others, rest), sep], axis=1)
        return Lines(ids, count + 2)

    def windows(self, text: tf.Tensor) -> tuple[Lines, tf.Tensor]:
        """Return the inputs for the windows of texts [N], as tasks.inputs does, and each window's index of its text."""
        tokens = self.in_graph.tokenize(text)
        count = int32(tokens.row_lengths())
        room = tf.fill(tf.shape(count), self.sizes.length - 2)
        step = tf.minimum(self.sizes.stride, room)
        cuts = windows.cut(count, room, step, windows.counts(count, room, step))
        cls, sep = (tf.fill([tf.size(cuts.text), 1], x) for x in (self.tokenizer.cls_id, self.tokenizer.sep_id))
        starts = tf.gather(int32(tokens.row_starts()), cuts.text) + cuts.skipped
        pieces = tf.gather(tf.pad(tokens.flat_values, [[0, 1]]), tf.ragged.range(starts, starts + cuts.length))
        return Lines(tf.concat([cls, pieces, sep], axis=1), cuts.length + 2), cuts.text

    def states(self, ids: tf.RaggedTensor, first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the last hidden states [R, S, D] of inputs, and their mask [R, S]; arguments as in `Lines`."""
        ids, mask, segments = model_input(ids, first, self.tokenizer.pad_id, self.sizes.length)
        with inlined():
            return self.encoder(ids, mask, segments), mask

    def logits(self, lines: Lines, outputs: int) -> tf.Tensor:
        """Return the logits [N, outputs] of the pooled states."""
        output = self.output
        assert output is not None

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            states, mask = self.states(*(tf.gather(x, rows) for x in lines))
            return [tf.debugging.check_numerics(output(states, mask), NOT_FINITE)]

        return in_batches(lines.ids.row_lengths(), [tf.TensorSpec([None, outputs], tf.float32)], compute)[0]


def shares(first: tf.Tensor, second: tf.Tensor, room: int, odd_to_longer: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Return how many tokens of each text are kept [N], so that both together have at most `room`.

    Tokens are removed from the longer text, and from the second one if both are equally long. odd_to_longer: as in
    tasks.inputs.
    """
    half: tf.Tensor | int = room - room // 2
    half = tf.where(first <= second, room // 2, half) if odd_to_longer else half
    of_first = tf.minimum(first, tf.maximum(room - second, half))
    return of_first, tf.minimum(second, room - of_first)


def _beginning(tokens: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
    """Return the first tokens of each row, as many as `counts` [N] says."""
    starts = int32(tokens.row_starts())
    return tf.gather(tf.pad(tokens.flat_values, [[0, 1]]), tf.ragged.range(starts, starts + counts))


def _paired(first: tf.Tensor, second: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    same = tf.debugging.assert_equal(tf.shape(first), tf.shape(second), "every first text needs its second")
    with tf.control_dependencies([same]):  # so that this error comes first
        return tf.identity(first), tf.identity(second)


class Classifying(Reader):
    """Classes of texts, or a number for each."""

    def __init__(self, trained: Trained) -> None:
        super().__init__(trained)
        assert self.head is not None
        self.labels = tf.constant(self.head.labels, tf.string)
        text, *pair = (tf.TensorSpec([None], tf.string, name) for name in ("text", "first", "second"))
        self.served = {"serving_default": graphs.function(self._of_texts, [text])}
        if self.sizes.windows == "first":
            self.served["pairs"] = graphs.function(self._of_pairs, pair)

    def _of_texts(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        assert self.head is not None
        if self.sizes.windows == "first":
            return self._answer(self.logits(self.lines(text), self.head.outputs))
        lines, number = self.windows(text)
        pooled = tf.math.segment_max if self.sizes.windows == "max" else tf.math.segment_mean
        return self._answer(pooled(self.logits(lines, self.head.outputs), number))

    def _of_pairs(self, first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        assert self.head is not None
        return self._answer(self.logits(self.lines(*_paired(first, second)), self.head.outputs))

    def _answer(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what the logits of texts [B, C] mean."""
        assert self.head is not None
        if self.head.regression:
            number = logits[:, 0]
            return {"value": tf.sigmoid(number) if self.head.activation == SIGMOID else number}
        probabilities = tf.nn.softmax(logits)
        best = tf.argmax(probabilities, axis=1)
        return {
            "label": tf.gather(self.labels, best),
            "probability": tf.reduce_max(probabilities, axis=1),
            "labels": tf.tile(self.labels[None], [tf.shape(best)[0], 1]),
            "probabilities": probabilities,
        }


class Labelling(Classifying):
    """The probability of each label of a text, and whether it is given."""

    def __init__(self, trained: Trained) -> None:
        super().__init__(trained)
        self.thresholds = tf.constant(trained.thresholds, tf.float32)

    def _answer(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return what the logits of texts [B, C] mean."""
        probabilities = tf.sigmoid(logits)
        return {
            "labels": tf.tile(self.labels[None], [tf.shape(logits)[0], 1]),
            "probabilities": probabilities,
            "given": probabilities >= self.thresholds,
        }


class Choosing(Reader):
    """The best of several choices; each is a pair of texts."""

    def __init__(self, trained: Trained) -> None:
        super().__init__(trained)
        texts = [tf.TensorSpec([None, None], tf.string, name) for name in ("first", "second")]
        self.served = {"serving_default": graphs.function(self._answer, texts)}

    def _answer(self, first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        first, second = _paired(first, second)  # [B, C]
        lines = self.lines(tf.reshape(first, [-1]), tf.reshape(second, [-1]))
        probabilities = tf.nn.softmax(tf.reshape(self.logits(lines, 1), tf.shape(first)))
        best = tf.argmax(probabilities, axis=1, output_type=tf.int32)
        return {"choice": best, "probabilities": probabilities}


class Encoding(Reader):
    """Features of texts, as bert.encode computes them from the last layer; `embedding` as the model was trained."""

    def __init__(self, trained: Trained) -> None:
        super().__init__(trained)
        self.made = embedding.of(trained.run.settings, trained.run.settings_path)
        self.served = {"serving_default": graphs.function(self._answer, [tf.TensorSpec([None], tf.string, "text")])}

    def _answer(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        made, width = self.made, self.encoder.width
        before = made.prompt() if made else ""
        lines = self.lines(before + text if before else text)

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            states, mask = self.states(*(tf.gather(x, rows) for x in lines))
            states = tf.debugging.check_numerics(states, NOT_FINITE)
            found = [pooled(states, mask, "mean"), states[:, 0]]
            if made:
                found.append(hidden_states.embedded(states, mask, made))
            return found

        names = ["mean", "cls", *(["embedding"] if made else [])]
        widths = [width, width, *([made.width(width)] if made else [])]
        specs = [tf.TensorSpec([None, numbers], tf.float32) for numbers in widths]
        return dict(zip(names, in_batches(lines.ids.row_lengths(), specs, compute), strict=True))
