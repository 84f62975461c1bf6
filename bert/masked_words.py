"""A trained masked language model for inference: the probabilities of words at chosen positions.

B texts, T positions, M chosen positions, Q words that are asked for, V words.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert.core.errors import InputError, IntegrityError
from bert.hardware.choices import Compute, EngineName
from bert.heads import MASKED_LM
from bert.model import heads
from bert.runs import Run
from bert.text import sampler
from bert.text.batches import LENGTH_MULTIPLE


class MaskedWords:
    """Computes the probabilities of masked words with the weights of a run."""

    def __init__(
        self,
        run: Run,
        compute: Compute = "float32",
        batch: int = 32,
        engine: EngineName = "tensorflow",
        compiled: bool = True,
    ) -> None:
        """compute: data type of matrix products. batch: maximum number of texts to compute at once.

        engine: what computes the encoder. compiled: whether XLA compiles parts of the model for each shape. Raise
        InputError if the run has no head for masked words; raise as `engines.choose` does.
        """
        self.tokenizer, self.config, self.batch = run.tokenizer, run.config, batch
        check_head(run)
        self.head = heads.MaskedLM(run.config, seed=0)
        self.encoder = run.encoder(compute, engine, [self.head])
        words = [tf.TensorSpec([None, 2], tf.int32)]
        self._compute = self.encoder.function(self._log_probabilities, at_places=True, compiled=compiled)
        self._ask = self.encoder.function(self._asked, at_places=True, given=words, compiled=compiled)

    def _logits(self, hidden: tf.Tensor) -> tf.Tensor:
        """Return logits [M, >= V] for hidden states [M, D]."""
        scores = self.head(hidden, self.encoder.embeddings.word, self.encoder.dtype)
        return tf.cast(scores, tf.float32) + self.head.biases()

    def _log_probabilities(self, hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the log probabilities of all words [M, V]."""
        return tf.nn.log_softmax(self._logits(hidden))[:, : self.config.vocab_size]

    def _asked(self, hidden: tf.Tensor, mask: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Return the log probability [Q] of each word. words: [Q, 2], number of the word's place, and its id."""
        logits = self._logits(hidden)
        return tf.gather_nd(logits, words) - tf.gather(tf.reduce_logsumexp(logits, axis=1), words[:, 0])

    def ask(self, ids: np.ndarray, mask: np.ndarray, places: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the log probability [Q] of each word. words: [Q, 2], number of the word's place, and its id.

        ids: [B, T] tokens of a batch of texts. mask: [B, T], 0 at padding. places: [M, 2], row and position. Only the
        scores of these words are read. That saves most of the time that reading all scores would take. Raise
        IntegrityError if the model's scores are not finite.
        """
        arguments = (tf.constant(array, tf.int32) for array in (ids, mask, np.zeros_like(ids), places, words))
        return _finite(self._ask(*arguments).numpy())

    def log_probabilities(
        self, texts: Sequence[np.ndarray], places: Sequence[Sequence[int]], segments: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield, for each text, the log probabilities [n, V] at its n places.

        texts: token ids with [CLS], [SEP] and [MASK]. segments: position at which the second segment of each text
        begins. Raise IntegrityError if the model's scores are not finite.
        """
        for begin in range(0, len(texts), self.batch):
            chosen = texts[begin : begin + self.batch]
            longest = max(map(len, chosen))
            width = sampler.padded_length(longest, LENGTH_MULTIPLE, self.config.max_position_embeddings)
            ids = np.full((len(chosen), width), self.tokenizer.pad_id, np.int32)
            mask, second = np.zeros_like(ids), np.zeros_like(ids)
            for row, text in enumerate(chosen):
                ids[row, : len(text)], mask[row, : len(text)] = text, 1
                if segments is not None:
                    second[row, segments[begin + row] : len(text)] = 1
            here = places[begin : begin + self.batch]
            pairs = [(row, place) for row, of_row in enumerate(here) for place in of_row]
            result = _finite(self._compute(ids, mask, second, np.array(pairs, np.int32).reshape(-1, 2)).numpy())
            yield from np.split(result, np.cumsum([len(of_row) for of_row in here])[:-1])

    def likeliest(self, log_probabilities: np.ndarray, count: int) -> np.ndarray:
        """Return the ids of the most likely words [n, count], best first, for log probabilities [n, V].

        Rows after the last entry of the vocabulary have probabilities, but no word; they are skipped.
        """
        words = log_probabilities[:, : len(self.tokenizer.vocab)]
        return np.argsort(-words, axis=1, kind="stable")[:, :count]


def _finite(scores: np.ndarray) -> np.ndarray:
    if not np.isfinite(scores).all():
        raise IntegrityError("the model's scores are not finite: its training failed; use another checkpoint")
    return scores


def check_head(run: Run) -> None:
    """Raise InputError if a run's checkpoint has no head for masked words."""
    if not run.has(MASKED_LM):
        raise InputError(
            f"{run.path}: has no head {MASKED_LM!r}; give a run of bert.pretrain, or an import that has it"
        )
