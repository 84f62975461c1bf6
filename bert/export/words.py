"""The words of sentences to their tags, in one graph.

B sentences, W words of each, padded with empty ones, P = B W, t word pieces of all of them, C tags, S positions.
"""

import tensorflow as tf

from bert.export import windows
from bert.export.graph import in_batches, int32
from bert.export.texts import NOT_FINITE, Reader
from bert.export.trained import Trained
from bert.hardware import graphs


class Tagging(Reader):
    """A tag for each word, read at its first piece in the window where the word has the most context."""

    def __init__(self, trained: Trained) -> None:
        super().__init__(trained)
        assert self.head is not None
        self.labels = tf.constant(self.head.labels, tf.string)
        words = tf.TensorSpec([None, None], tf.string, "words")
        self.served = {"serving_default": graphs.function(self._answer, [words])}

    def _answer(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        pieces, count = self._pieces(tf.reshape(words, [-1]))
        tokens = tf.reduce_sum(tf.reshape(count, tf.shape(words)), axis=1)  # [B]
        room = tf.fill(tf.shape(tokens), self.sizes.length - 2)
        step = tf.minimum(self.sizes.stride, room)
        number = windows.counts(tokens, room, step)
        cuts = windows.cut(tokens, room, step, number)
        sentence = tf.repeat(tf.range(tf.size(tokens)), tf.fill(tf.shape(tokens), tf.shape(words)[1]))
        begin = tf.cumsum(count, exclusive=True) - tf.gather(tf.cumsum(tokens, exclusive=True), sentence)  # [P]
        best = windows.most_context(windows.Spans(sentence, begin, begin + count), tokens, room, step, number)
        window = tf.gather(tf.cumsum(number, exclusive=True), sentence) + best
        # A word that every window cuts gets a separate window (tasks.alignment).
        is_cut = begin + count > tf.gather(cuts.skipped + cuts.length, window)
        window = tf.where(is_cut, tf.size(cuts.text) + tf.cumsum(int32(is_cut), exclusive=True), window)
        cuts = windows.joined(cuts, self._own(sentence, begin, count, tokens, is_cut))
        tag, probability = self._read(pieces, tf.gather(tf.cumsum(tokens, exclusive=True), cuts.text), cuts)  # [W, S]
        position = 1 + begin - tf.gather(cuts.skipped, window)  # of the first piece
        place = tf.stack([window, tf.where(count > 0, position, 0)], axis=1)
        tags = tf.where(count > 0, tf.gather(self.labels, tf.gather_nd(tag, place)), "")
        certain = tf.where(count > 0, tf.gather_nd(probability, place), 0)
        return {"tags": tf.reshape(tags, tf.shape(words)), "probabilities": tf.reshape(certain, tf.shape(words))}

    def _own(
        self, sentence: tf.Tensor, begin: tf.Tensor, count: tf.Tensor, tokens: tf.Tensor, is_cut: tf.Tensor
    ) -> windows.Windows:
        """Return a window for each word that is cut, with the word in its middle. tokens: of each sentence [B]."""
        sentence, begin, count = (tf.boolean_mask(x, is_cut) for x in (sentence, begin, count))
        room = self.sizes.length - 2
        skipped = tf.clip_by_value(begin - (room - count) // 2, 0, tf.gather(tokens, sentence) - room)
        return windows.Windows(sentence, tf.zeros_like(sentence), skipped, tf.fill(tf.shape(sentence), room))

    def _pieces(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the pieces of all words [t + 1], and the number of pieces of each word [P], 0 only for an empty word.

        A word that gives no piece becomes [UNK], so that it keeps its tag. If no window can hold a word, only its first
        pieces are taken. The last element of `pieces` is padding.
        """
        tokens = self.in_graph.tokenize(words)
        lengths = int32(tokens.row_lengths())
        count = tf.where(words == "", 0, tf.clip_by_value(lengths, 1, self.sizes.length - 2))
        starts = tf.where(lengths > 0, int32(tokens.row_starts()), tf.size(tokens.flat_values))
        padded = tf.pad(tokens.flat_values, [[0, 1]], constant_values=self.tokenizer.unk_id)
        pieces = tf.gather(padded, tf.ragged.range(starts, starts + count).flat_values)
        return tf.pad(pieces, [[0, 1]]), count

    def _read(self, pieces: tf.Tensor, begin: tf.Tensor, cuts: windows.Windows) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tag at each position of all windows, and its probability [W, S]; begin: of their sentences [W]."""
        output, length = self.output, self.sizes.length
        assert output is not None
        cls, sep = (tf.fill([tf.size(begin), 1], x) for x in (self.tokenizer.cls_id, self.tokenizer.sep_id))
        starts = begin + cuts.skipped
        ids = tf.concat([cls, tf.gather(pieces, tf.ragged.range(starts, starts + cuts.length)), sep], axis=1)

        def compute(rows: tf.Tensor) -> list[tf.Tensor]:
            states, mask = self.states(tf.gather(ids, rows), tf.gather(cuts.length + 2, rows))
            probabilities = tf.nn.softmax(tf.debugging.check_numerics(output(states, mask), NOT_FINITE))
            rest = [[0, 0], [0, length - tf.shape(mask)[1]]]
            tag = tf.argmax(probabilities, axis=2, output_type=tf.int32)
            return [tf.pad(tag, rest), tf.pad(tf.reduce_max(probabilities, axis=2), rest)]

        results = [tf.TensorSpec([None, length], tf.int32), tf.TensorSpec([None, length], tf.float32)]
        tag, probability = in_batches(cuts.length, results, compute)
        return tag, probability
