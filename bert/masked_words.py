"""A trained masked language model for inference: the probabilities of all words at masked positions.

B texts, T positions, M masked positions, V words.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf

from bert.config import ModelConfig
from bert.errors import InputError, IntegrityError
from bert.inputs import sampler, vocabulary
from bert.inputs.batches import LENGTH_MULTIPLE
from bert.inputs.tokenization import tokenizer_for
from bert.model import heads, inference
from bert.model.encoder import Encoder, variables
from bert.model.inference import InferenceEncoder
from bert.training import checkpoint

Compute = Literal["float32", "bfloat16", "float16"]


class MaskedWords:
    """Read a run and compute the probabilities of words."""

    def __init__(self, run: Path, compute: Compute = "float32", batch: int = 32, compiled: bool = True) -> None:
        """compute: data type of matrix products. batch: maximum number of texts that are computed at once.

        compiled: whether parts of the model are compiled for each shape.
        Raise InputError if `run` is no run directory, or has no head for masked words.
        """
        config = ModelConfig.load(run / "bert_config.json")
        self.tokenizer, self.config, self.batch = tokenizer_for(vocabulary.path_in(run), config), config, batch
        check_head(run, "masked_lm")
        encoder = Encoder(dataclasses.replace(config, fused_attention=False, recompute_activations=False), seed=0)
        self.head = heads.MaskedLM(config, seed=0)
        self.checkpoint = checkpoint.load_weights(run, variables(encoder) | variables(self.head))
        self.encoder = InferenceEncoder(encoder, tf.as_dtype(compute))
        tokens, places = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, 2], tf.int32)
        self._compute = inference.traced(self._log_probabilities, [tokens] * 3 + [places], compiled)

    def _log_probabilities(self, ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Return log p [M, V] at `places` [M, 2], row and position, of texts [B, T]."""
        hidden = tf.gather_nd(self.encoder(ids, mask, segments), places)
        scores = self.head(hidden, self.encoder.embeddings.word, self.encoder.dtype)
        logits = tf.cast(scores, tf.float32) + self.head.biases()
        return tf.nn.log_softmax(logits)[:, : self.config.vocab_size]

    def log_probabilities(
        self, texts: Sequence[np.ndarray], places: Sequence[Sequence[int]], segments: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """Yield for each text the log probabilities [n, V] at its n places.

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
            pairs = [(row, place) for row, found in enumerate(here) for place in found]
            result = self._compute(ids, mask, second, np.array(pairs, np.int32).reshape(-1, 2)).numpy()
            if not np.isfinite(result).all():
                raise IntegrityError("the model's scores are not finite: its training failed; use another checkpoint")
            yield from np.split(result, np.cumsum([len(found) for found in here])[:-1])


def check_head(run: Path, head: str) -> None:
    """Raise InputError if the checkpoint of a run has no variable of a head."""
    if not has_head(run, head):
        raise InputError(f"{run}: has no head {head!r}; give a run of bert.pretrain, or an import that has it")


def has_head(run: Path, head: str) -> bool:
    """Return whether the checkpoint of a run has the variables of a head."""
    folder = checkpoint.to_use(run)
    stored = tf.train.load_checkpoint(str(folder / checkpoint.BUNDLE)).get_variable_to_shape_map()
    return any(name.startswith(f"{head}/") for name in stored)
